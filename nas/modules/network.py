"""The network that runs the modules of a graph in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nas.graph import Graph
from nas.modules.module_table import Sum, Tied, module_of


class Network(nn.Module):
    """A graph that computes: images (batch, channels, height, width) to logits (batch, classes), or symbols
    (batch, positions) of int64 to logits (batch, positions, symbols).

    Its tensors are uninitialised memory until `load`; they lie on torch's default device. Submodules
    are numbered like the graph's nodes, whose own names may hold dots where torch allows none;
    outside, a tensor is called "node.tensor", as in `Graph.weights` and `Graph.statistics`.
    """

    def __init__(self, graph: Graph) -> None:
        """Raises MissingReading if a layer has no module."""
        super().__init__()
        self.graph = graph
        with torch.device("meta"):  # no time for random weights that `load` overwrites
            modules = [module_of(node.layer, *graph.reads(node)) for node in graph.nodes]
        # Not get_default_device(): before torch 2.7 it passes over `with torch.device(…)`.
        self.layers = nn.ModuleList(modules).to_empty(device=torch.empty(0).device)
        for node, module in zip(graph.nodes, modules):
            # The modules that can write over what they read; `may_overwrite` says whether anybody else needs
            # that.
            if isinstance(module, (nn.ReLU, nn.ReLU6, Sum)):
                module.inplace = graph.may_overwrite(node.inputs[0])
        module_named = {node.name: module for node, module in zip(graph.nodes, modules)}
        for name, embedding in graph.tables.items():
            module = module_named[name]
            assert isinstance(module, Tied)
            module.embedding = (module_named[embedding],)
        self.plan: tuple[Step, ...] = tuple(_plan(graph, modules))
        """What `forward` runs, in order. It may be replaced by steps that compute the same."""

    def forward(self, examples: Tensor) -> Tensor:
        """The logits of a batch. The dead are deleted at once, so that in validation no tensor outlives its
        last reader."""
        values: dict[int, Tensor] = {0: examples}
        for module, reads, place, dead in self.plan:
            values[place] = module(*[values[index] for index in reads])
            for index in dead:
                del values[index]
        return values[place]

    def place(self, device: torch.device, layout: torch.memory_format) -> None:
        """Moves every tensor to the device, without waiting for it, and those of convolutions to this memory
        format."""

        def moved(tensor: Tensor) -> Tensor:
            arranged = tensor.to(memory_format=layout) if tensor.dim() == 4 else tensor
            return to_device(arranged, device)

        self._apply(moved)  # type: ignore[no-untyped-call]

    def tensors(self) -> dict[str, Tensor]:
        """The live parameters, then the live statistics, by name. Names and order are those of the graph's
        weights and statistics."""
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


Step = tuple[Callable[..., Any], tuple[int, ...], int, tuple[int, ...]]
"""A module or what computes the same, the places it reads, the one it writes, those nobody reads after it."""


def _plan(graph: Graph, modules: list[nn.Module]) -> Iterator[Step]:
    """The steps in the order of the graph. A tensor is let go after its last reader, as in a function whose
    variables go out of scope: a network of images would else hold all of its activations in validation."""
    place = {name: index for index, name in enumerate(graph.shapes)}
    last_reader = {name: index for index, node in enumerate(graph.nodes) for name in node.inputs}
    for index, (node, module) in enumerate(zip(graph.nodes, modules)):
        dead = [place[name] for name in dict.fromkeys(node.inputs) if last_reader[name] == index]
        yield module, tuple(place[name] for name in node.inputs), place[node.name], tuple(dead)


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """The values on the device, without waiting for it: only a copy from pinned memory does not."""
    if values.device.type != "cpu" or device.type in ("cpu", "mps"):
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
