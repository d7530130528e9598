"""Each layer as a line of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from nas.layers import (
    GELU,
    AdaptiveAveragePool,
    Add,
    Attention,
    AveragePool,
    BatchNorm,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Dropout,
    Embedding,
    Experts,
    Flatten,
    Gate,
    GlobalPool,
    Layer,
    LayerNorm,
    Linear,
    MaxPool,
    Positions,
    Product,
    ReLU,
    ReLU6,
    RMSNorm,
    Shape,
    SiLU,
    SquaredReLU,
)
from nas.layers.convolutions import TOO_FEW_CHANNELS
from nas.layers.windows import Sides
from nas.portable.names import refused


@dataclass(frozen=True)
class TorchLine:
    """What computes a node: `made` once where it has weights, `computed` at each pass.

    "{own}" in them stands for its module, "{0}", "{1}" for what it reads.
    """

    computed: str
    made: str = ""


@singledispatch
def line_of(layer: Layer, *reads: Shape) -> TorchLine:
    """How a layer that reads tensors of these shapes is written. Raises PortableError."""
    raise refused(layer, "PyTorch")


@line_of.register
def _(layer: Conv2d, *reads: Shape) -> TorchLine:
    (channels, *area) = reads[0]
    down, right = layer.windows(area)
    stride, padding, read = layer.strides, layer.paddings, "{0}"
    # As in nas/modules/images.py: gradients of oneDNN are wrong where a stride is wider than the image, and
    # in a strided 1x1 convolution of few channels. The same numbers come out.
    clipped = min(down.stride, down.side), min(right.stride, right.side)
    if clipped != stride and layer.padding is not None:
        height, width = padding
        read, padding = f"F.pad({{0}}, ({width}, {width}, {height}, {height}))", (0, 0)
        stride = min(down.stride, down.padded), min(right.stride, right.padded)
    elif layer.kernel == 1 and clipped != (1, 1) and layer.groups == 1 and channels < TOO_FEW_CHANNELS:
        read, stride = f"{{0}}[:, :, ::{clipped[0]}, ::{clipped[1]}]", (1, 1)
    else:
        stride = clipped
    options = _options(
        (stride, (1, 1), f"stride={_sides(stride)}"),
        (padding, (0, 0), f"padding={_sides(padding)}"),
        (layer.groups, 1, f"groups={layer.groups}"),
        (layer.bias, True, f"bias={layer.bias}"),
    )
    return TorchLine(f"{{own}}({read})", f"nn.Conv2d({channels}, {layer.channels}, {layer.kernel}{options})")


@line_of.register
def _(layer: DepthwiseConv2d, *reads: Shape) -> TorchLine:
    return line_of(layer.convolution(*reads), *reads)


@line_of.register(Dense)
@line_of.register(Linear)
def _(layer: Dense | Linear, *reads: Shape) -> TorchLine:
    bias = _options((layer.bias, True, "bias=False"))
    return TorchLine("{own}({0})", f"nn.Linear({reads[0][-1]}, {layer.features}{bias})")


@line_of.register
def _(layer: BatchNorm, *reads: Shape) -> TorchLine:
    return TorchLine("{own}({0})", f"nn.BatchNorm2d({reads[0][0]})")


@line_of.register
def _(layer: MaxPool, *reads: Shape) -> TorchLine:
    return TorchLine(f"F.max_pool2d({{0}}, {_window(layer)})")


@line_of.register
def _(layer: AveragePool, *reads: Shape) -> TorchLine:
    return TorchLine(f"F.avg_pool2d({{0}}, {_window(layer)})")


@line_of.register
def _(layer: AdaptiveAveragePool, *reads: Shape) -> TorchLine:
    return TorchLine(f"F.adaptive_avg_pool2d({{0}}, {layer.size})")


@line_of.register
def _(layer: Add, *reads: Shape) -> TorchLine:
    return TorchLine(" + ".join(f"{{{place}}}" for place in range(len(reads))))


@line_of.register
def _(layer: Concat, *reads: Shape) -> TorchLine:
    return TorchLine(f"torch.cat(({', '.join(f'{{{place}}}' for place in range(len(reads)))}), dim=1)")


@line_of.register
def _(layer: Dropout, *reads: Shape) -> TorchLine:
    return TorchLine(f"F.dropout({{0}}, {layer.rate!r}, self.training)")


@line_of.register
def _(layer: Embedding, *reads: Shape) -> TorchLine:
    return TorchLine("{own}({0})", f"nn.Embedding({layer.symbols}, {layer.features})")


@line_of.register
def _(layer: Positions, *reads: Shape) -> TorchLine:
    return TorchLine(
        "{0} + {own}[: {0}.shape[1]]", f"nn.Parameter(torch.empty({reads[0][0]}, {reads[0][1]}))"
    )


@line_of.register(LayerNorm)
@line_of.register(RMSNorm)
def _(layer: LayerNorm | RMSNorm, *reads: Shape) -> TorchLine:
    return TorchLine("{own}({0})", f"nn.{type(layer).__name__}({reads[0][1]}, eps={layer.epsilon!r})")


@line_of.register
def _(layer: Attention, *reads: Shape) -> TorchLine:
    options = f"heads={layer.heads}, groups={layer.groups}, rotary={layer.rotary!r}"
    return TorchLine(f"attention({{0}}, {{1}}, {{2}}, {options})")


@line_of.register
def _(layer: Experts, *reads: Shape) -> TorchLine:
    sizes = f"{reads[0][1]}, {layer.experts}, {layer.chosen}, {layer.hidden}, gated={layer.gated}"
    return TorchLine("{own}({0})", f"Experts({sizes})")


WITHOUT_CHOICES: Mapping[type[Layer], str] = {
    ReLU: "F.relu({0})",
    ReLU6: "F.relu6({0})",
    GELU: "F.gelu({0})",
    SiLU: "F.silu({0})",
    SquaredReLU: "F.relu({0}).square()",
    GlobalPool: "{0}.mean(dim=(2, 3))",
    Flatten: "{0}.flatten(1)",
    Product: "{0} * {1}",
    Gate: "{0} * (2 * torch.sigmoid({1}))[:, :, None, None]",
}
for _kind, _text in WITHOUT_CHOICES.items():
    line_of.register(_kind, lambda layer, *reads, text=_text: TorchLine(text))


def _window(layer: Any) -> str:
    (height, width), ceil = layer.kernels, layer.ceil_mode
    options = _options(
        (layer.paddings, (0, 0), f"padding={_sides(layer.paddings)}"), (ceil, False, f"ceil_mode={ceil}")
    )
    return f"{_sides((height, width))}, {_sides(layer.strides)}{options}"


def _sides(sides: Sides) -> str:
    return str(sides[0] if isinstance(sides, tuple) and sides[0] == sides[1] else sides)


def _options(*given: tuple[object, object, str]) -> str:
    """Those that are not torch's defaults."""
    return "".join(f", {text}" for value, default, text in given if value != default)
