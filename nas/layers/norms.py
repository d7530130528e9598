"""Normalisation of one image by itself, without the statistics of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from nas.layers.footprint import WIDE, Footprint, Read
from nas.layers.initial_values import Constant, Start
from nas.layers.layer import Layer
from nas.layers.sequences import normalising, refuse_no_epsilon
from nas.layers.shapes import Shape, ShapeError, image, refuse_no_sizes
from nas.layers.torch_line import TorchLine
from nas.ops import Cost

if TYPE_CHECKING:
    from nas.layers.onnx_place import LayerPlace


@dataclass(frozen=True)
class GroupNorm(Layer):
    """(x − mean) / √(variance + ε) over each of `num_groups` runs of channels of an image, with learned scale
    and shift of each channel (Wu and He, ECCV 2018). Weight and bias: (channels,).

    New channels would change the means of the others, so the width of what it reads cannot grow.
    """

    frees_output = True
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

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"weight": inputs[0][:1], "bias": inputs[0][:1]}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        # As a layer norm of each group, whose elements are the features.
        return {"group_norm": normalising(self.num_groups, prod(inputs[0]) // self.num_groups)}

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return Constant({"weight": 1, "bias": 0}[tensor])

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


@dataclass(frozen=True)
class ChannelNorm(Layer):
    """(x − mean) / √(variance + ε) over the channels of each pixel, with learned scale and shift of each
    channel: the layer norm of ConvNeXt (Liu et al., CVPR 2022). Weight and bias: (channels,).

    As of a group norm, the width of what it reads cannot grow.
    """

    frees_output = True
    fixes_width = True
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        refuse_no_epsilon(self, self.epsilon)

    def shape(self, *inputs: Shape) -> Shape:
        return image(self, inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"weight": inputs[0][:1], "bias": inputs[0][:1]}

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        # As a layer norm of each pixel, whose features are the channels.
        channels, *area = inputs[0]
        return {"channel_norm": normalising(prod(area), channels)}

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return Constant({"weight": 1, "bias": 0}[tensor])

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
