"""The torch reading of a graph: a module for every layer, and the network that runs them in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import singledispatch

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, pad

from nas.graph import INPUT, Graph
from nas.layers import (
    AdaptiveAveragePool,
    Add,
    AveragePool,
    BatchNorm,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Dropout,
    Flatten,
    Gate,
    GlobalPool,
    Layer,
    MaxPool,
    ReLU,
    ReLU6,
    Shape,
)

# What PyTorch, torchvision and the published ResNets use.
BATCH_NORM_MOMENTUM = 0.1
BATCH_NORM_EPSILON = 1e-5

# On a CPU, oneDNN's gradient of the weights of a strided 1x1 convolution writes past its scratch memory where
# the layer reads fewer channels than a vector register holds numbers of 32 bits: on AVX2 8, on AVX-512 (bf16
# too) and on the widest SVE it knows 16. Such a gradient is wrong, hangs, or kills the process:
# https://github.com/uxlfoundation/oneDNN/issues/6035
TOO_FEW_CHANNELS = 16

# Their backward pass needs their own output, or their output is another tensor's memory.
KEEP_THEIR_OUTPUT = (ReLU, ReLU6, Flatten, Dropout)


@singledispatch
def module_of(layer: Layer, *inputs: Shape) -> nn.Module:
    """The module that computes `layer`; `inputs` are the shapes it reads, without the batch.

    Its parameters and buffers carry the names of `layer.weights` and `layer.statistics`.
    """
    raise NotImplementedError(f"no module is written for the layer {type(layer).__name__}")


class Network(nn.Module):
    """A graph that computes: images (batch, channels, height, width) to logits (batch, classes).

    Its tensors are uninitialised memory until `load`; they lie on torch's default device. Submodules
    are numbered like the graph's nodes, whose own names may hold dots where torch allows none;
    outside, a tensor is called "node.tensor", as in `Graph.weights` and `Graph.statistics`.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        with torch.device("meta"):  # no time for random weights that `load` overwrites
            modules = [module_of(node.layer, *graph.reads(node)) for node in graph.nodes]
        # Not get_default_device(): before torch 2.7 it passes over `with torch.device(…)`.
        self.layers = nn.ModuleList(modules).to_empty(device=torch.empty(0).device)
        for node, module in zip(graph.nodes, modules):
            if isinstance(module, (nn.ReLU, nn.ReLU6, _Sum)):
                module.inplace = _may_overwrite(graph, node.inputs[0])
        self._plan = tuple(_plan(graph, modules))

    def forward(self, images: Tensor) -> Tensor:
        values: dict[int, Tensor] = {0: images}
        for module, reads, place, dead in self._plan:
            values[place] = module(*[values[index] for index in reads])
            for index in dead:
                del values[index]
        return values[place]

    def place(self, device: torch.device) -> None:
        """Moves every tensor to the device, images' channels last in memory: what convolutions like best."""
        self.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def tensors(self) -> dict[str, Tensor]:
        """The live parameters, then the live statistics, by name."""
        modules = {node.name: module for node, module in zip(self.graph.nodes, self.layers)}
        found: dict[str, Tensor] = {}
        for name in (*self.graph.weights, *self.graph.statistics):
            node, tensor = name.rsplit(".", 1)
            found[name] = getattr(modules[node], tensor)
        return found

    @torch.no_grad()
    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Copies every tensor in; devices, number types and memory formats stay as they are.

        Raises ValueError when a tensor is missing, unknown or of another shape; then nothing is copied.
        """
        own = self.tensors()
        if own.keys() != weights.keys():
            strange = ", ".join(sorted(own.keys() ^ weights.keys())[:5])
            raise ValueError(f"the weights are of another architecture; missing or unknown: {strange}")
        for name, tensor in own.items():
            if tensor.shape != weights[name].shape:
                raise ValueError(f"{name} has the shape {weights[name].shape}, not {tuple(tensor.shape)}")
        for name, tensor in own.items():
            # torch warns of arrays it may not write to, even when it only reads.
            tensor.copy_(torch.from_numpy(np.require(weights[name], requirements=["C", "W"])))


Step = tuple[nn.Module, tuple[int, ...], int, tuple[int, ...]]
"""A module, the places it reads, the place it writes, and the places nobody reads after it."""


def _plan(graph: Graph, modules: list[nn.Module]) -> Iterator[Step]:
    place = {name: index for index, name in enumerate(graph.shapes)}
    last_reader = {name: index for index, node in enumerate(graph.nodes) for name in node.inputs}
    for index, (node, module) in enumerate(zip(graph.nodes, modules)):
        dead = [place[name] for name in dict.fromkeys(node.inputs) if last_reader[name] == index]
        yield module, tuple(place[name] for name in node.inputs), place[node.name], tuple(dead)


def _may_overwrite(graph: Graph, name: str) -> bool:
    """Whether a tensor's only reader may write its result in its place, which spares memory and time."""
    if name == INPUT or len(graph.readers[name]) > 1:
        return False
    return not isinstance(graph.node[name].layer, KEEP_THEIR_OUTPUT)


class _Sum(nn.Module):
    inplace = False

    def forward(self, first: Tensor, second: Tensor, *others: Tensor) -> Tensor:
        # In place only where it does not round the sum to a narrower type than a new tensor would have.
        in_place = self.inplace and first.dtype == second.dtype
        total = first.add_(second) if in_place else first + second
        for other in others:
            total = total + other
        return total


class _StridedPixels(nn.Conv2d):
    """A strided 1x1 convolution that oneDNN only sees without its stride: see TOO_FEW_CHANNELS."""

    def forward(self, images: Tensor) -> Tensor:
        if images.device.type == "cpu":
            # Pooling of windows of one pixel takes each stride-th pixel as it is. So does slicing, but its
            # gradient comes back with the channels first: a step of the digits' seed took 3 to 12 % longer.
            return conv2d(avg_pool2d(images, 1, self.stride), self.weight, self.bias)
        return super().forward(images)


class _Padded(nn.Conv2d):
    """A convolution whose padding is part of its image."""

    margin = (0, 0)

    def forward(self, images: Tensor) -> Tensor:
        height, width = self.margin
        return super().forward(pad(images, (width, width, height, height)))


class _Concatenation(nn.Module):
    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.cat(inputs, dim=1)


class _Mean(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.mean(dim=(2, 3))


class _Gate(nn.Module):
    def forward(self, images: Tensor, z: Tensor) -> Tensor:
        return images * (2 * torch.sigmoid(z))[:, :, None, None]


@module_of.register
def _(layer: Conv2d, *inputs: Shape) -> nn.Module:
    (channels, *area), padding = inputs[0], layer.paddings
    down, right = layer.windows(area)
    kind: type[nn.Conv2d] = nn.Conv2d
    # Where it is wider than the image, oneDNN on AVX-512 in bf16 reads gradients of taps that meet padding
    # only from memory never written. Beyond the image a stride changes nothing, if there is one window.
    stride = min(down.stride, down.side), min(right.stride, right.side)
    if stride != layer.strides and layer.padding is not None:
        # The last of two windows may be at the end of the padding, which then is made a part of the image.
        kind, padding = _Padded, (0, 0)
        stride = min(down.stride, down.padded), min(right.stride, right.padded)
    elif layer.kernel == 1 and stride != (1, 1) and layer.groups == 1 and channels < TOO_FEW_CHANNELS:
        kind = _StridedPixels
    module = kind(
        channels, layer.channels, layer.kernels, stride, padding, groups=layer.groups, bias=layer.bias
    )
    if isinstance(module, _Padded):
        module.margin = layer.paddings
    return module


@module_of.register
def _(layer: DepthwiseConv2d, *inputs: Shape) -> nn.Module:
    return module_of(layer.convolution(*inputs), *inputs)


@module_of.register
def _(layer: Dense, *inputs: Shape) -> nn.Module:
    return nn.Linear(inputs[0][0], layer.features, bias=layer.bias)


@module_of.register
def _(layer: BatchNorm, *inputs: Shape) -> nn.Module:
    module = nn.BatchNorm2d(inputs[0][0], BATCH_NORM_EPSILON, BATCH_NORM_MOMENTUM)
    # It matters only without a momentum, and counting is one more kernel a layer and step.
    module.num_batches_tracked = None
    return module


@module_of.register
def _(layer: ReLU, *inputs: Shape) -> nn.Module:
    return nn.ReLU()


@module_of.register
def _(layer: ReLU6, *inputs: Shape) -> nn.Module:
    return nn.ReLU6()


@module_of.register
def _(layer: MaxPool, *inputs: Shape) -> nn.Module:
    return nn.MaxPool2d(layer.kernels, layer.strides, layer.paddings, ceil_mode=layer.ceil_mode)


@module_of.register
def _(layer: AveragePool, *inputs: Shape) -> nn.Module:
    return nn.AvgPool2d(layer.kernels, layer.strides, layer.paddings, layer.ceil_mode)


@module_of.register
def _(layer: AdaptiveAveragePool, *inputs: Shape) -> nn.Module:
    return nn.AdaptiveAvgPool2d(layer.size)


@module_of.register
def _(layer: GlobalPool, *inputs: Shape) -> nn.Module:
    return _Mean()


@module_of.register
def _(layer: Add, *inputs: Shape) -> nn.Module:
    return _Sum()


@module_of.register
def _(layer: Concat, *inputs: Shape) -> nn.Module:
    return _Concatenation()


@module_of.register
def _(layer: Flatten, *inputs: Shape) -> nn.Module:
    return nn.Flatten()


@module_of.register
def _(layer: Dropout, *inputs: Shape) -> nn.Module:
    return nn.Dropout(layer.rate)


@module_of.register
def _(layer: Gate, *inputs: Shape) -> nn.Module:
    return _Gate()
