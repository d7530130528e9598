"""Normalisation: by the statistics of a batch, or of one image or position by itself.

Closed forms: d numbers that are normalised together. All norms but that of a batch divide and take a root for
each example, so that these are counted; those of a batch norm are made once for a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nas.frozen import frozen
from nas.layers.layer import WIDE, Constant, Footprint, Layer, LayerPlace, Read, Start, TorchLine, keeps_input
from nas.layers.shapes import Shape, ShapeError, image, refuse_no_sizes, sequence
from nas.ops import Cost, Ops

BATCH_NORM_EPSILON = 1e-5
"""Added to the variance: PyTorch's own value, and that of torchvision's and the published ResNets."""


class ImageNorm:
    """What norms of images share: a learned scale and shift of each channel. No layer itself: a record could
    name it. Weight and bias: (channels,)."""

    frees_output = True

    def shape(self, *inputs: Shape) -> Shape:
        return image(self, inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"weight": inputs[0][:1], "bias": inputs[0][:1]}

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return Constant({"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1}[tensor])


@frozen
class BatchNorm(ImageNorm, Layer):
    """Batch normalisation with learnt scale and shift, and running statistics for validation."""

    def statistics(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"running_mean": inputs[0][:1], "running_var": inputs[0][:1]}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        # Work for a channel and a batch (1 / sqrt(var + eps), running statistics) is not for an image.
        x = prod(inputs[0])
        return {
            "bn": Cost(
                # mean: add; variance: sub, mul, add; normalise: sub, mul; affine: mul, add
                forward=Ops(add=5 * x, mul=3 * x),
                # x̂ again: sub, mul; dy − Σdy/N: sub; x̂·Σ: mul; their difference: sub; times γ/σ: mul
                input_grad=Ops(add=3 * x, mul=3 * x),
                # Σdy: add; Σ dy·x̂: mul, add
                weight_grad=Ops(add=2 * x, mul=x),
                # normalise: sub, mul; affine: mul, add
                evaluate=Ops(add=2 * x, mul=2 * x),
            )
        }

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return keeps_input(reads[0])

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{own}({0})", f"nn.BatchNorm2d({inputs[0][0]})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        tensors = [at.weight(name) for name in ("weight", "bias", "running_mean", "running_var")]
        at.last("BatchNormalization", inputs[0], *tensors, epsilon=BATCH_NORM_EPSILON)


@frozen
class GroupNorm(ImageNorm, Layer):
    """(x − mean) / √(variance + ε) over each of `num_groups` runs of channels of an image, with learned scale
    and shift of each channel (Wu and He, ECCV 2018).

    New channels would change the means of the others, so the width of what it reads cannot grow.
    """

    fixes_width = True
    num_groups: int
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "num_groups")
        refuse_no_epsilon(self, self.epsilon)

    def shape(self, *inputs: Shape) -> Shape:
        if image(self, inputs)[0] % self.num_groups:
            raise ShapeError(f"GroupNorm: {inputs[0][0]} channels in {self.num_groups} groups")
        return inputs[0]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        # As a layer norm of each group, whose elements are the features.
        return {"group_norm": normalising(self.num_groups, prod(inputs[0]) // self.num_groups)}

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        """The mean and the inverse root of each group are kept."""
        return Footprint(reads[0].width, (0,), inside=2 * WIDE * self.num_groups)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        made = f"nn.GroupNorm({self.num_groups}, {inputs[0][0]}, eps={self.epsilon!r})"
        return TorchLine("{own}({0})", made)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        """Operator set 17 normalises each channel, so the groups become channels in between."""
        channels, *area = at.reads[0]
        ones, zeros = ([value] * self.num_groups for value in (1.0, 0.0))
        runs = at.step("Reshape", inputs[0], at.constant("runs", [0, self.num_groups, -1]))
        scale, shift = at.constant("ones", ones), at.constant("zeros", zeros)
        normal = at.step("InstanceNormalization", runs, scale, shift, epsilon=self.epsilon)
        whole = at.step("Reshape", normal, at.constant("shape", [0, channels, *area]))
        weight, bias = (at.constant(name, at.weights[name][:, None, None]) for name in ("weight", "bias"))
        at.last("Add", at.step("Mul", whole, weight), bias)


@frozen
class ChannelNorm(ImageNorm, Layer):
    """(x − mean) / √(variance + ε) over the channels of each pixel, with learned scale and shift of each
    channel: the layer norm of ConvNeXt (Liu et al., CVPR 2022).

    As with a group norm, the width of what it reads cannot grow.
    """

    fixes_width = True
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        refuse_no_epsilon(self, self.epsilon)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        # As a layer norm of each pixel, whose features are the channels.
        channels, *area = inputs[0]
        return {"channel_norm": normalising(prod(area), channels)}

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        """The mean and the inverse root of each pixel are kept."""
        return Footprint(reads[0].width, (0,), inside=2 * WIDE * prod(reads[0].shape[1:]))

    def torch_line(self, *inputs: Shape) -> TorchLine:
        made = f"nn.LayerNorm({inputs[0][0]}, eps={self.epsilon!r})"
        return TorchLine("{own}({0}.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)", made)

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        pixels = at.step("Transpose", inputs[0], perm=(0, 2, 3, 1))
        tensors = [at.weight("weight"), at.weight("bias")]
        normal = at.step("LayerNormalization", pixels, *tensors, epsilon=self.epsilon)
        at.last("Transpose", normal, perm=(0, 3, 1, 2))


@frozen
class RMSNorm(Layer):
    """x / √(mean(x²) + ε) at each position, times a learned scale (Zhang and Sennrich, NeurIPS 2019). Weight:
    (features,)."""

    frees_output = True
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        refuse_no_epsilon(self, self.epsilon)

    def shape(self, *inputs: Shape) -> Shape:
        return sequence(self, inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"weight": inputs[0][1:]}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return {"rms_norm": scaling(*inputs[0])}

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return Constant(1)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        """Step by step on a processor: what is normalised and not yet scaled is kept, too."""
        wide = WIDE * reads[0].num
        return Footprint(WIDE, (0,), inside=wide + WIDE * reads[0].shape[0], backward=wide)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{own}({0})", f"nn.RMSNorm({inputs[0][1]}, eps={self.epsilon!r})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Mul", onnx_normal(at, inputs[0], "epsilon", self.epsilon), at.weight("weight"))


@frozen
class LayerNorm(Layer):
    """(x − mean) / √(variance + ε) at each position, with learned scale and shift (Ba et al.,
    arXiv:1607.06450). Weight and bias: (features,)."""

    frees_output = True
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        refuse_no_epsilon(self, self.epsilon)

    def shape(self, *inputs: Shape) -> Shape:
        return sequence(self, inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"weight": inputs[0][1:], "bias": inputs[0][1:]}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return {"layer_norm": normalising(*inputs[0])}

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return Constant({"weight": 1, "bias": 0}[tensor])

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(reads[0].width, (0,), inside=2 * WIDE * reads[0].shape[0])

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{own}({0})", f"nn.LayerNorm({inputs[0][1]}, eps={self.epsilon!r})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        tensors = [at.weight("weight"), at.weight("bias")]
        at.last("LayerNormalization", inputs[0], *tensors, epsilon=self.epsilon)


def scaling(rows: int, d: int) -> Cost:
    """What a norm by the mean of squares, with a scale, costs for this number of rows of d numbers each."""
    # x²: mul d; their mean: add d − 1, div; + ε: add; root: sqrt; its inverse r: div; x̂ = x·r: mul d;
    # scale: mul d
    forward = Ops(mul=3 * d, add=d, div=2, sqrt=1)
    # dx = r·(g − x̂·mean(g·x̂)) with g = dy·w. g: mul d; g·x̂: mul d; mean: add d − 1, div; times x̂: mul d;
    # difference: add d; times r: mul d
    input_grad = Ops(mul=4 * d, add=2 * d - 1, div=1)
    # Σ dy·x̂: mul d, add d
    weight_grad = Ops(mul=d, add=d)
    return _each(rows, forward, input_grad, weight_grad)


def normalising(rows: int, d: int) -> Cost:
    """What a norm with mean, variance, scale and shift costs for this number of rows of d numbers each."""
    # mean: add d − 1, div; x − mean: add d; variance: mul d, add d − 1, div; + ε: add; root: sqrt; its
    # inverse r: div; x̂: mul d; scale: mul d; shift: add d
    forward = Ops(mul=3 * d, add=4 * d - 1, div=3, sqrt=1)
    # dx = r·(g − mean(g) − x̂·mean(g·x̂)) with g = dy·w. g: mul d; mean(g): add d − 1, div; g·x̂: mul d; its
    # mean: add d − 1, div; times x̂: mul d; differences: add 2d; times r: mul d
    input_grad = Ops(mul=4 * d, add=4 * d - 2, div=2)
    # Σ dy·x̂: mul d, add d; Σ dy: add d
    weight_grad = Ops(mul=d, add=2 * d)
    return _each(rows, forward, input_grad, weight_grad)


def _each(positions: int, forward: Ops, input_grad: Ops, weight_grad: Ops) -> Cost:
    """The cost of one position, at all of them. Validation is as forward."""
    once = (forward, input_grad, weight_grad, forward)
    return Cost(*[ops * positions for ops in once])


def refuse_no_epsilon(layer: object, epsilon: object) -> None:
    """Raises ShapeError unless it is a number between 0 and 1."""
    if type(epsilon) is not float or not 0 < epsilon < 1:
        raise ShapeError(f"{type(layer).__name__}: epsilon {epsilon!r:.40} is not between 0 and 1")


def onnx_normal(at: LayerPlace, values: str, name: str, epsilon: float) -> str:
    """Writes x / √(mean(x²) + ε) along the last axis, which operator set 17 lacks; `name` is that of ε."""
    squares = at.step("ReduceMean", at.step("Mul", values, values), axes=(-1,))
    root = at.step("Sqrt", at.step("Add", squares, at.constant(name, epsilon)))
    return at.step("Div", values, root)
