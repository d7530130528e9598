"""Every layer: its shape, its weights and its operations, stated once and derived everywhere else.

Shapes are (channels, height, width) or (features,), without a batch dimension. A layer stores only
what was chosen; what it reads is given by the graph. Closed forms use x elements in, y elements out.
Padding is (kernel - 1) // 2 on every side, and padding taps count as operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from nas.ops import Cost, Ops

Shape = tuple[int, ...]

LARGEST_SIZE = 2**31 - 1  # what cuDNN and oneDNN take for one side of a tensor


class ShapeError(ValueError):
    """Layers that do not fit together, or a layer that cannot exist."""


@dataclass(frozen=True)
class Layer:
    """One step of a network.

    `costs` is the specification of what is counted: for one image, a `Cost` under each row of the
    table of operations. `input_grad` of a cost is left out by the graph where nothing upstream has
    weights.

    The class attributes say how networks with it may grow. Their defaults are right for a layer that
    treats every channel by itself.

    A layer can be written in any file: its class, its module for `nas.modules.module_of` and, where it has
    weights, their `nas.weights.starts`. Records know it where that file is imported, and in every process of
    a run where an installed package names the file as an entry point of the group "nas.layers".
    """

    mixes_channels: ClassVar[bool] = False
    """Whether a channel out is a weighted sum of channels in. Its width is then free (`widened`). It reads
    new channels with zeros and copies with their shares, so that nothing behind it changes. Any other layer
    passes them on, channel by channel."""
    keeps_sign: ClassVar[bool] = False
    """Whether it puts out nothing negative where it reads nothing negative."""
    tears_copies: ClassVar[bool] = False
    """Whether channels that are equal may differ behind it, as in training behind a dropout."""

    @property
    def groups(self) -> int:
        """The runs of channels that it mixes each by itself."""
        return 1

    def widened(self, width: int) -> Layer:
        """The layer with so many channels or features. Needed where it mixes channels."""
        raise NotImplementedError

    def is_non_negative(self, *inputs: bool) -> bool:
        """Whether it puts out nothing negative, whatever its weights, given the same of each input."""
        return self.keeps_sign and all(inputs)

    def convolution(self, *inputs: Shape) -> Conv2d | None:
        """The convolution that it is, if it is one."""
        return None

    def shape(self, *inputs: Shape) -> Shape:
        """The output's shape. Raises ShapeError when the inputs do not fit."""
        raise NotImplementedError

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        raise NotImplementedError

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        """Shapes of the trained tensors, by name."""
        return {}

    def statistics(self, *inputs: Shape) -> Mapping[str, Shape]:
        """Shapes of the tensors that are kept but not trained, by name."""
        return {}


@dataclass(frozen=True)
class Conv2d(Layer):
    """A convolution without bias. Weight: (channels, channels in / groups, kernel, kernel)."""

    mixes_channels = True
    channels: int
    kernel: int = 3
    stride: int = 1
    groups: int = 1

    def __post_init__(self) -> None:
        _refuse_no_sizes(self, "channels", "kernel", "stride", "groups")
        _refuse_even(self, self.kernel)
        if self.channels % self.groups:
            raise ShapeError(f"Conv2d: {self.channels} channels in {self.groups} groups")

    def shape(self, *inputs: Shape) -> Shape:
        (channels, *area) = _image(self, inputs)
        if channels % self.groups:
            raise ShapeError(f"Conv2d: {channels} channels in, {self.groups} groups")
        return (self.channels, *_windows(self, area, self.kernel, self.stride))

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"weight": (self.channels, inputs[0][0] // self.groups, self.kernel, self.kernel)}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        # Every output element reads one kernel of one group; each of the two gradients is the same
        # set of products, summed along another axis.
        taps = self.kernel * self.kernel * (inputs[0][0] // self.groups)
        products = Ops(mac=taps * prod(self.shape(*inputs)))
        return {"conv": Cost(products, products, products, products)}

    def widened(self, width: int) -> Conv2d:
        return replace(self, channels=width)

    def convolution(self, *inputs: Shape) -> Conv2d:
        return self


@dataclass(frozen=True)
class DepthwiseConv2d(Layer):
    """A convolution of every channel by itself, without bias (Howard et al., "MobileNets", 2017).

    It is as wide as what it reads, so that it widens with it, and is otherwise the `Conv2d` with as many
    groups as channels. Weight: (channels, 1, kernel, kernel).
    """

    kernel: int = 3
    stride: int = 1

    def __post_init__(self) -> None:
        _refuse_no_sizes(self, "kernel", "stride")
        _refuse_even(self, self.kernel)

    def shape(self, *inputs: Shape) -> Shape:
        return self.convolution(*inputs).shape(*inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return self.convolution(*inputs).weights(*inputs)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return self.convolution(*inputs).costs(*inputs)

    def convolution(self, *inputs: Shape) -> Conv2d:
        channels = _image(self, inputs)[0]
        return Conv2d(channels, self.kernel, self.stride, channels)


@dataclass(frozen=True)
class Dense(Layer):
    """A fully connected layer. Weight: (features, features in)."""

    mixes_channels = True
    features: int
    bias: bool = True

    def __post_init__(self) -> None:
        _refuse_no_sizes(self, "features")

    def shape(self, *inputs: Shape) -> Shape:
        _vector(self, inputs)
        return (self.features,)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        weight = {"weight": (self.features, inputs[0][0])}
        return {**weight, "bias": (self.features,)} if self.bias else weight

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        products = Ops(mac=inputs[0][0] * self.features)
        rows = {"dense": Cost(products, products, products, products)}
        if self.bias:
            sums = Ops(add=self.features)
            rows["bias"] = Cost(forward=sums, weight_grad=sums, evaluate=sums)
        return rows

    def widened(self, width: int) -> Dense:
        return replace(self, features=width)


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Batch normalisation with learnt scale and shift, and running statistics for validation."""

    def shape(self, *inputs: Shape) -> Shape:
        return _image(self, inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        channels = inputs[0][:1]
        return {"weight": channels, "bias": channels}

    def statistics(self, *inputs: Shape) -> Mapping[str, Shape]:
        channels = inputs[0][:1]
        return {"running_mean": channels, "running_var": channels}

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


@dataclass(frozen=True)
class ReLU(Layer):
    """max(x, 0)."""

    def shape(self, *inputs: Shape) -> Shape:
        return _only(self, inputs)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        compare = Ops(cmp=prod(inputs[0]))
        return {"relu": Cost(forward=compare, input_grad=compare, evaluate=compare)}

    def is_non_negative(self, *inputs: bool) -> bool:
        return True


@dataclass(frozen=True)
class _Windowed:
    """Square windows of an image, channel by channel. No layer itself: a record could name it."""

    kernel: int
    stride: int

    def __post_init__(self) -> None:
        _refuse_no_sizes(self, "kernel", "stride")

    def shape(self, *inputs: Shape) -> Shape:
        (channels, *area) = _image(self, inputs)
        return (channels, *_windows(self, area, self.kernel, self.stride))


@dataclass(frozen=True)
class MaxPool(_Windowed, Layer):
    """The greatest of each window."""

    keeps_sign = True

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        y = prod(self.shape(*inputs))
        compare = Ops(cmp=(self.kernel**2 - 1) * y)
        return {"maxpool": Cost(forward=compare, input_grad=Ops(add=y), evaluate=compare)}


@dataclass(frozen=True)
class AveragePool(_Windowed, Layer):
    """The mean of each window, padding included."""

    keeps_sign = True

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        x, y, taps = prod(inputs[0]), prod(self.shape(*inputs)), self.kernel**2
        # Where windows overlap, an input element gathers its gradient from several of them.
        gathered = taps * y if self.stride < self.kernel else 0
        mean = Ops(add=(taps - 1) * y, div=y)
        return {"avgpool": Cost(mean, Ops(mul=x, add=gathered), Ops(), mean)}


@dataclass(frozen=True)
class GlobalPool(Layer):
    """The mean of each channel: (channels, height, width) to (channels,)."""

    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        return _image(self, inputs)[:1]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        channels, x = inputs[0][0], prod(inputs[0])
        mean = Ops(add=x - channels, div=channels)
        return {"avgpool": Cost(forward=mean, input_grad=Ops(mul=x), evaluate=mean)}


@dataclass(frozen=True)
class Add(Layer):
    """The sum of two or more inputs of one shape."""

    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) < 2 or len(set(inputs)) > 1:
            raise ShapeError(f"Add: needs two or more inputs of one shape, reads {list(inputs)}")
        return inputs[0]

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        sums = Ops(add=(len(inputs) - 1) * prod(inputs[0]))
        return {"add": Cost(forward=sums, evaluate=sums)}


@dataclass(frozen=True)
class Concat(Layer):
    """The channels of two or more inputs, one after the other."""

    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) < 2 or len({(len(shape), *shape[1:]) for shape in inputs}) > 1:
            raise ShapeError(f"Concat: needs two or more inputs of one area, reads {list(inputs)}")
        return (sum(shape[0] for shape in inputs), *inputs[0][1:])

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return {"concat": Cost()}


@dataclass(frozen=True)
class Flatten(Layer):
    """(channels, height, width) to (channels · height · width,), channels slowest."""

    keeps_sign = True

    def shape(self, *inputs: Shape) -> Shape:
        return (prod(_image(self, inputs)),)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        return {"flatten": Cost()}


@dataclass(frozen=True)
class Dropout(Layer):
    """Sets a share `rate` of the elements to zero in training and scales the rest by 1 / (1 − rate)."""

    keeps_sign = True
    tears_copies = True
    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ShapeError(f"Dropout: rate {self.rate} is not between 0 and 1")

    def shape(self, *inputs: Shape) -> Shape:
        return _only(self, inputs)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        scale = Ops(mul=prod(inputs[0]))
        return {"dropout": Cost(forward=scale, input_grad=scale)}


@dataclass(frozen=True)
class Gate(Layer):
    """2·sigmoid(z)·x, channel by channel, of inputs x (channels, height, width) and z (channels,).

    The factor 2 makes z = 0 the identity, so that squeeze-excite can be added to a trained network
    (Hu et al., "Squeeze-and-Excitation Networks", CVPR 2018, without the factor).
    """

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


def softmax_cross_entropy(classes: int) -> Cost:
    """The loss of one image. Validation needs the greatest logit only."""
    return Cost(
        forward=Ops(cmp=classes - 1, add=2 * classes + 1, exp=classes + 1, div=classes),
        input_grad=Ops(add=classes, mul=classes),
        evaluate=Ops(cmp=classes - 1),
    )


def is_size(value: object) -> bool:
    """Whether a value can be one side of a tensor; a bool cannot."""
    return type(value) is int and 1 <= value <= LARGEST_SIZE


def _only(layer: object, inputs: tuple[Shape, ...]) -> Shape:
    if len(inputs) != 1:
        raise ShapeError(f"{type(layer).__name__}: reads one input, not {len(inputs)}")
    return inputs[0]


def _image(layer: object, inputs: tuple[Shape, ...]) -> Shape:
    shape = _only(layer, inputs)
    if len(shape) != 3:
        raise ShapeError(f"{type(layer).__name__}: reads (channels, height, width), not {shape}")
    return shape


def _vector(layer: Layer, inputs: tuple[Shape, ...]) -> Shape:
    shape = _only(layer, inputs)
    if len(shape) != 1:
        raise ShapeError(f"{type(layer).__name__}: reads (features,), not {shape}")
    return shape


def _windows(layer: object, area: list[int], kernel: int, stride: int) -> list[int]:
    """Windows along each side of the image."""
    padded = [side + 2 * ((kernel - 1) // 2) for side in area]
    if min(padded) < kernel:
        raise ShapeError(f"{type(layer).__name__}: kernel {kernel} on an area of {area}")
    return [(side - kernel) // stride + 1 for side in padded]


def _refuse_even(layer: Layer, kernel: int) -> None:
    if kernel % 2 == 0:
        raise ShapeError(f"{type(layer).__name__}: kernel {kernel} is even; use an odd one")


def _refuse_no_sizes(layer: object, *names: str) -> None:
    for name in names:
        value = getattr(layer, name)
        if not is_size(value):
            shown = repr(value)[:40]
            raise ShapeError(
                f"{type(layer).__name__}: {name} is {shown}, not a whole number from 1 to 2^31 − 1"
            )
