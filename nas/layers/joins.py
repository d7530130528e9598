"""Layers that put tensors together, or lay them out anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from nas.frozen import frozen
from nas.layers.layer import Footprint, Layer, LayerPlace, Output, Read, TorchLine
from nas.layers.shapes import Shape, ShapeError, Sides, both, image, is_size, refuse_no_sizes, settle_sides
from nas.ops import Cost, Ops


@frozen
class Add(Layer):
    """The sum of two or more inputs of one shape."""

    frees_output = True
    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) < 2 or len(set(inputs)) > 1:
            raise ShapeError(f"Add: needs two or more inputs of one shape, reads {list(inputs)}")
        return inputs[0]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        sums = Ops(add=(len(inputs) - 1) * prod(inputs[0]))
        return {"add": Cost(forward=sums, evaluate=sums)}

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        width = max(read.width for read in reads)
        in_place = reads[0].width == reads[1].width and len(reads) == 2
        output = Output.OVER_FIRST if in_place else Output.NEW
        return Footprint(width, output=output, passes_on=len({read.width for read in reads}) == 1)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine(" + ".join(f"{{{place}}}" for place in range(len(inputs))))

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        total = inputs[0]
        for other in inputs[1:-1]:
            total = at.step("Add", total, other)
        at.last("Add", total, inputs[-1])


@frozen
class Product(Layer):
    """The product of two inputs of one shape, element by element: of a branch and its gate."""

    frees_output = True
    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) != 2 or inputs[0] != inputs[1]:
            raise ShapeError(f"Product: needs two inputs of one shape, reads {list(inputs)}")
        return inputs[0]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x = prod(inputs[0])
        # dx of each input is dy times the other: mul x twice
        return {"product": Cost(Ops(mul=x), Ops(mul=2 * x), Ops(), Ops(mul=x))}

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(max(read.width for read in reads), (0, 1))

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{0} * {1}")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Mul", *inputs)


@frozen
class Gate(Layer):
    """2·sigmoid(z)·x, channel by channel, of inputs x (channels, height, width) and z (channels,).

    The factor 2 makes z = 0 the identity, so that squeeze-excite can be added to a trained network
    (Hu et al., "Squeeze-and-Excitation Networks", CVPR 2018, without the factor).
    """

    frees_output = True

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) != 2 or len(inputs[0]) != 3 or inputs[1] != inputs[0][:1]:
            raise ShapeError(f"Gate: needs (channels, height, width), (channels,); reads {list(inputs)}")
        return inputs[0]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        channels, x = inputs[0][0], prod(inputs[0])
        gate = Ops(exp=channels, add=channels, div=channels, mul=channels + x)
        # dx: mul x; dz: dy·x summed over the area: mul x, add x − channels; σ' = σ(1 − σ)·2: mul 3, add 1
        grad = Ops(mul=2 * x + 3 * channels, add=x)
        return {"gate": Cost(forward=gate, input_grad=grad, evaluate=gate)}

    def is_non_negative(self, *inputs: bool) -> bool:
        return inputs[0]  # a sigmoid is positive, whatever z is

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(reads[0].width, (0,), backward=reads[0].bytes)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{0} * (2 * torch.sigmoid({1}))[:, :, None, None]")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        gate = at.step("Mul", at.step("Sigmoid", inputs[1]), at.constant("two", 2.0))
        at.last("Mul", inputs[0], at.step("Unsqueeze", gate, at.constant("area", [2, 3])))


@frozen
class Concat(Layer):
    """The channels of two or more inputs, one after the other."""

    frees_output = True
    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) < 2 or len({(len(shape), *shape[1:]) for shape in inputs}) > 1:
            raise ShapeError(f"Concat: needs two or more inputs of one area, reads {list(inputs)}")
        if len(inputs[0]) == 2:
            raise ShapeError(f"Concat: reads images or vectors, not (positions, features) as {inputs[0]}")
        return (sum(shape[0] for shape in inputs), *inputs[0][1:])

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return {"concat": Cost()}

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        """Each input's gradient is a part of the output's."""
        return Footprint(max(read.width for read in reads), passes_on=True)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        parts = ", ".join(f"{{{place}}}" for place in range(len(inputs)))
        return TorchLine(f"torch.cat(({parts}), dim=1)")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Concat", *inputs, axis=1)


@frozen
class Flatten(Layer):
    """(channels, height, width) to (channels · height · width,), channels slowest."""

    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        return (prod(image(self, inputs)),)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return {"flatten": Cost()}

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        whole = prod(reads[0].shape[1:]) == 1
        return Footprint(reads[0].width, output=Output.VIEW if whole else Output.NEW, passes_on=True)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine("{0}.flatten(1)")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        at.last("Flatten", *inputs)


@frozen
class ChannelShuffle(Layer):
    """The channels of `num_groups` runs in turn: the first of each, then the second of each, and so on. So
    grouped convolutions behind it read from all runs (Zhang et al., "ShuffleNet", CVPR 2018)."""

    keeps_sign = True
    frees_output = True
    num_groups: int

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "num_groups")

    @property
    def runs(self) -> int:
        return self.num_groups

    def shape(self, *inputs: Shape) -> Shape:
        if image(self, inputs)[0] % self.num_groups:
            raise ShapeError(f"ChannelShuffle: {inputs[0][0]} channels in {self.num_groups} groups")
        return inputs[0]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return {"shuffle": Cost()}

    def order(self, channels: int) -> Sequence[int]:
        each = channels // self.num_groups
        return [group * each + place for place in range(each) for group in range(self.num_groups)]

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(reads[0].width)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine(f"F.channel_shuffle({{0}}, {self.num_groups})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        channels, *area = at.reads[0]
        runs = at.constant("runs", [0, self.num_groups, channels // self.num_groups, *area])
        turned = at.step("Transpose", at.step("Reshape", inputs[0], runs), perm=(0, 2, 1, 3, 4))
        at.last("Reshape", turned, at.constant("shape", [0, channels, *area]))


@frozen
class Upsample(Layer):
    """Each pixel `factor` times along each side, as the nearest of those that are there."""

    keeps_sign = True
    frees_output = True
    factor: Sides
    """One number for both sides, or (height, width)."""

    def __post_init__(self) -> None:
        settle_sides(self, "factor")

    def shape(self, *inputs: Shape) -> Shape:
        (channels, *area), factors = image(self, inputs), both(self.factor)
        found = (channels, *[along * times for along, times in zip(area, factors)])
        if not all(is_size(along) for along in found):
            raise ShapeError(f"Upsample: {area} by {self.factor} has a side of more than 2^31 − 1 pixels")
        return found

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        # A pixel is copied; its gradient is the sum of those of its copies: add y − x.
        return {"upsample": Cost(input_grad=Ops(add=prod(self.shape(*inputs)) - prod(inputs[0])))}

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        return Footprint(reads[0].width)

    def torch_line(self, *inputs: Shape) -> TorchLine:
        return TorchLine(f"F.interpolate({{0}}, scale_factor={self.factor})")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        scales = at.constant("scales", [1.0, 1.0, *map(float, both(self.factor))])
        at.last(
            "Resize",
            *(inputs[0], "", scales),
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )
