"""An architecture as a reader sees it: units instead of layers, blocks instead of units, and what a line of
morphisms made of the seed.

A unit is a layer that mixes or joins, with what follows it on its own way: a convolution with its batch norm
and its ReLU. A block is what lies between two tensors that everything passes through. Equal blocks in a row
are one, with their number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import pairwise, takewhile

from aiperf.wire.trial import Trial
from aiperf.wording import spoken
from nas.frozen import frozen
from nas.graph import INPUT, Graph, Node
from nas.layers import (
    AdaptiveAveragePool,
    Attention,
    AveragePool,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Embedding,
    Experts,
    GlobalPool,
    Layer,
    LayerNorm,
    Linear,
    MaxPool,
    RMSNorm,
    Shape,
)
from nas.layers.shapes import both

LONGEST_PERIOD = 4
"""Most blocks that are recognised as one repeated period: attention and MLP of a transformer are two."""
BEGIN = (
    *(Conv2d, DepthwiseConv2d, Dense, Linear, Embedding, Attention, Experts, RMSNorm, LayerNorm),
    *(MaxPool, AveragePool, AdaptiveAveragePool, GlobalPool),
)
"""Layers that always begin a unit. Any other joins the unit that it reads, if it reads nothing else and is
the only reader; else it begins a unit, too."""
SEED = -1
"""Stands for a trial's number at a node that is as in the seed."""
SPELT = re.compile(r"[A-Z]{2}")
"""What is in the name of a layer that is written as it is, as in ReLU and RMSNorm; others are in words."""


@frozen
class Touch:
    """The last trial of a line that made or changed something."""

    trial: int = SEED
    """Number of the trial."""
    is_new: bool = False
    """Whether it made the node; else it changed it."""
    was: str = ""
    """Its main layer before that trial, in words; empty where it is new or did not change itself."""


@frozen
class LayerUnit:
    """A layer and what follows it on its own way."""

    name: str
    """Name of its first node."""
    text: str
    """Its main layer in a few words."""
    after: tuple[str, ...]
    """The kinds of the layers that follow."""
    reads: tuple[int | None, ...]
    """Units of the block by place; None for what enters the block."""
    shape: Shape
    touch: Touch


@frozen
class UnitBlock:
    """Units in order, between two tensors that everything passes through."""

    units: tuple[LayerUnit, ...]
    name: str
    """What the names of its nodes begin with."""
    shape: Shape
    """Shape of its output."""

    @property
    def form(self) -> tuple[object, ...]:
        """All that must be equal in two blocks that are drawn once."""
        return tuple((unit.text, unit.after, unit.reads, unit.shape, unit.touch) for unit in self.units)


@frozen
class Repeated:
    """Blocks in a row, and how many times the row is repeated."""

    blocks: tuple[UnitBlock, ...]
    times: int
    last: str
    """The name of the last block."""


@frozen
class Step:
    """What one trial of a line changed."""

    trial: int
    morphisms: tuple[str, ...]
    """Their kinds in words, in order."""
    new: tuple[str, ...]
    """Names of the nodes that it added."""
    changed: tuple[str, ...]
    """Nodes, each with what it was and what it is."""
    parameters: int
    """Number of parameters of the network after it."""


@frozen
class Architecture:
    """The last network of a line, and how it came to be."""

    parts: Sequence[Repeated]
    """The blocks, from the input to the output."""
    steps: Sequence[Step]
    """The trials of the line, the seed's first child first."""
    input: Shape
    """Shape of an example."""


def architecture(line: Sequence[tuple[Trial | None, Graph]]) -> Architecture:
    """`line`: as `line_of_graphs` gives it, from the seed on."""
    touched, steps = _followed(line)
    graph = line[-1][1]
    return Architecture(_repeated(_blocks(graph, touched)), steps, graph.input)


def _followed(line: Sequence[tuple[Trial | None, Graph]]) -> tuple[Mapping[str, Touch], list[Step]]:
    """The last trial that touched each node, and what each trial changed. Nodes keep their names from parent
    to child, so they are compared by name."""
    touched: dict[str, Touch] = {}
    steps = []
    for (_, before), (trial, graph) in pairwise(line):
        assert trial is not None, "only the seed belongs to no trial"
        new, changed = [], []
        for node in graph.nodes:
            old = before.node.get(node.name)
            if old is None:
                touched[node.name] = Touch(trial.number, is_new=True)
                new.append(node.name)
            elif old.layer != node.layer or len(old.inputs) != len(node.inputs):
                was, now = words(old.layer), words(node.layer)
                touched[node.name] = Touch(trial.number, was=was if was != now else "")
                changed.append(f"{node.name}: {was} → {now}" if was != now else node.name)
        kinds = tuple(spoken(type(morphism).__name__) for morphism in trial.morphisms)
        steps.append(Step(trial.number, kinds, tuple(new), tuple(changed), graph.num_parameters))
    return touched, steps


def _units(graph: Graph) -> list[list[Node]]:
    """The nodes as units: every node is in one, and a unit reads only what its first node reads."""
    unit_of: dict[str, list[Node]] = {}
    units: list[list[Node]] = []
    for node in graph.nodes:
        (read, *others) = node.inputs
        is_alone = not others and read in unit_of and len(graph.readers[read]) == 1
        if is_alone and not isinstance(node.layer, BEGIN):
            unit_of[read].append(node)
            unit_of[node.name] = unit_of[read]
        else:
            units.append([node])
            unit_of[node.name] = units[-1]
    return units


def _blocks(graph: Graph, touched: Mapping[str, Touch]) -> list[UnitBlock]:
    """The units in blocks: a block ends where nothing above it is read below it, its own output apart."""
    units = _units(graph)
    ends = {node.name: place for place, unit in enumerate(units) for node in unit}
    ends[INPUT] = -1
    # After a unit everything passes through its output where no later unit reads what stands above it.
    last_read = [-1] * (len(units) + 1)  # of the unit at place − 1 its last reader; of the input at 0
    for place, unit in enumerate(units):
        for name in unit[0].inputs:
            last_read[ends[name] + 1] = max(last_read[ends[name] + 1], place)
    blocks, begin, reach = [], 0, last_read[0]
    for place in range(len(units)):
        if reach <= place:  # nothing above is read below this unit, its own output apart
            blocks.append(_block(graph, units, range(begin, place + 1), ends, touched))
            begin = place + 1
        reach = max(reach, last_read[place + 1])
    return blocks


def _block(
    graph: Graph,
    units: Sequence[Sequence[Node]],
    places: range,
    ends: Mapping[str, int],
    touched: Mapping[str, Touch],
) -> UnitBlock:
    """The units at these places as one block. `ends` is the place of the unit to which each node belongs."""
    made = []
    for place in places:
        first, *others = units[place]
        reads = tuple(
            ends[name] - places.start if ends[name] >= places.start else None for name in first.inputs
        )
        latest = max(
            (touched.get(node.name, Touch()) for node in units[place]),
            key=lambda touch: (touch.trial, touch.is_new, touch.was),
        )
        after = tuple(kind_of(node.layer) for node in others)
        shape = graph.shapes[units[place][-1].name]
        made.append(LayerUnit(first.name, words(first.layer), after, reads, shape, latest))
    names = [node.name for place in places for node in units[place]]
    return UnitBlock(tuple(made), _beginning(names), made[-1].shape)


def _beginning(names: Sequence[str]) -> str:
    """The parts of their names that all begin with, or else those of the last."""
    parts = zip(*(name.split(".") for name in names))
    shared = [part[0] for part in takewhile(lambda part: len(set(part)) == 1, parts)]
    return ".".join(shared) or names[-1].rpartition(".")[0] or names[-1]


def _repeated(blocks: Sequence[UnitBlock]) -> list[Repeated]:
    """The blocks in order, with equal ones in a row drawn once. Of several periods the one that joins most
    blocks is taken."""
    forms = [block.form for block in blocks]
    found, place = [], 0
    while place < len(blocks):
        best = (1, 1)  # blocks of a period, and its times
        for period in range(1, LONGEST_PERIOD + 1):
            once, times = forms[place : place + period], 1
            while once == forms[place + times * period : place + (times + 1) * period]:
                times += 1
            if times > 1 and period * times > best[0] * best[1]:
                best = (period, times)
        period, times = best
        last = blocks[place + period * times - 1].name
        found.append(Repeated(tuple(blocks[place : place + period]), times, last))
        place += period * times
    return found


def words(layer: Layer) -> str:
    """A layer in a few words: its kind and what was chosen of it."""
    match layer:
        case RMSNorm() | LayerNorm():
            return kind_of(layer)
        case Conv2d():
            groups = f" in {layer.groups} groups" if layer.groups > 1 else ""
            kind = f"{_sides(layer.kernels)} conv {layer.channels}{groups}"
            return f"{kind}{_stride(layer.strides)}{_dilation(layer)}"
        case DepthwiseConv2d():
            return f"{_sides(layer.kernels)} depthwise{_stride(layer.strides)}{_dilation(layer)}"
        case MaxPool() | AveragePool():
            kind = "max pool" if isinstance(layer, MaxPool) else "average pool"
            return f"{_sides(layer.kernels)} {kind}{_stride(layer.strides)}"
        case AdaptiveAveragePool():
            return f"average pool to {_sides(both(layer.size))}"
        case Dense() | Linear():
            tied = ", tied" if isinstance(layer, Linear) and layer.tied else ""
            return f"{kind_of(layer)} {layer.features}{tied}"
        case Embedding():
            return f"embedding {layer.features}"
        case Attention():
            groups = f", {layer.groups} groups" if layer.groups < layer.heads else ""
            window = f", window {layer.window}" if layer.window else ""
            norm = ", head norm" if layer.head_norm else ""
            return f"attention {layer.heads} heads{groups}{window}{norm}"
        case Experts():
            return f"experts {layer.chosen} of {layer.experts}, {layer.hidden}"
    # Any other layer, also of another package: its numbers say what was chosen.
    chosen = [getattr(layer, each.name) for each in fields(layer)]
    return " ".join([kind_of(layer), *(f"{value:g}" for value in chosen if type(value) in (int, float))])


def kind_of(layer: Layer) -> str:
    """The kind of a layer in words; a name with capitals in a row stays as it is."""
    name = type(layer).__name__
    return name if SPELT.search(name) else spoken(name)


def _sides(sides: tuple[int, int]) -> str:
    """A height and a width: "3×3"."""
    return f"{sides[0]}×{sides[1]}"


def _dilation(layer: Conv2d | DepthwiseConv2d) -> str:
    """The dilation in words; empty if there is none."""
    if layer.dilations == (1, 1):
        return ""
    down, right = layer.dilations
    return f" dilated {down}" if down == right else f" dilated {_sides(layer.dilations)}"


def _stride(strides: tuple[int, int]) -> str:
    """The stride in short: "/2"; empty if it is 1."""
    if strides == (1, 1):
        return ""
    return f" /{strides[0]}" if strides[0] == strides[1] else f" /{_sides(strides)}"
