"""Rewrites the plan of a network so that what can be one pass over memory is one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from aiperf.engines.fused.batchnorm import Activation, Normalise
from aiperf.engines.fused.folded import Folded, is_worth_folding
from aiperf.engines.fused.images import Gated, Mean, OfPixels, Pixels
from aiperf.engines.fused.library import hold_memory
from nas.layers import Add, BatchNorm, Conv2d, Gate, GlobalPool, Layer, ReLU, ReLU6
from nas.modules import Network

ACTIVATIONS: dict[type[Layer], Activation] = {ReLU: Activation.RELU, ReLU6: Activation.RELU6}


@dataclass(frozen=True)
class _Step:
    run: Callable[..., Any]
    reads: tuple[int, ...]
    place: int
    layer: Layer | None
    """What it computes, as long as it is one layer."""


@dataclass(frozen=True)
class _Pick:
    """One reader's tensor of a step that has a tensor for each."""

    reader: int

    def __call__(self, tensors: tuple[Tensor, ...]) -> Tensor:
        return tensors[self.reader]


def fuse(network: Network) -> None:
    """Makes the network take fewer passes over memory on a processor; its tensors stay as they are.

    Its gradients are then found in another order of sums, and bf16 is rounded less often. Nothing of it goes
    back to torch's own modules later: a step raises Unfit for images that its kernel does not take. The
    process keeps the memory that it once had: `hold_memory`. Raises Unfit where a batch norm's `forward` is
    replaced, as by `aiperf.parallel.batchnorm.synchronise`.
    """
    hold_memory()
    layers = [node.layer for node in network.graph.nodes]
    steps = [_Step(*step[:3], layer) for step, layer in zip(network.plan, layers)]
    columns = [shape[-1] for shape in network.graph.shapes.values()]
    steps = _with_readers(list(_single(_joined(_with_pixels(steps)), columns)))
    network.plan = tuple(_lasting(steps))


def _readers(steps: list[_Step]) -> dict[int, list[int]]:
    """Indices of the steps that read a place, a step once for each time that it reads it."""
    found: dict[int, list[int]] = {step.place: [] for step in steps}
    for index, step in enumerate(steps):
        for place in step.reads:
            found.setdefault(place, []).append(index)
    return found


def _with_pixels(steps: list[_Step]) -> list[_Step]:
    """Strided 1x1 convolutions read the pixels that they need, taken once for all of the same images."""
    taken: dict[tuple[int, tuple[int, int]], int] = {}
    free = max(place for step in steps for place in (*step.reads, step.place)) + 1
    found: list[_Step] = []
    for step in steps:
        conv = step.run
        if not (isinstance(step.layer, Conv2d) and isinstance(conv, nn.Conv2d) and _skips_pixels(conv)):
            found.append(step)
            continue
        stride = (conv.stride[0], conv.stride[1])
        key = (step.reads[0], stride)
        if key not in taken:
            taken[key] = free
            found.append(_Step(Pixels(stride), step.reads, free, None))
            free += 1
        found.append(_Step(OfPixels(conv), (taken[key],), step.place, None))
    return found


def _skips_pixels(conv: nn.Conv2d) -> bool:
    plain = conv.kernel_size == (1, 1) and conv.padding == (0, 0) and conv.groups == 1
    return plain and conv.stride != (1, 1) and not getattr(conv, "margin", None)


@dataclass
class _Merges:
    """Which steps become one: by the index of the last."""

    steps: list[_Step]
    readers: dict[int, list[int]] = field(init=False)
    gone: set[int] = field(default_factory=set)
    made: dict[int, _Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.readers = _readers(self.steps)

    def only_reader(self, index: int) -> int | None:
        """Of a step's output, unless another batch norm has it already."""
        found = self.readers[self.steps[index].place]
        return found[0] if len(found) == 1 and found[0] not in (*self.gone, *self.made) else None

    def merge(self, index: int) -> None:
        """A batch norm with an addition and an activation behind it, as far as nobody else reads between."""
        norm, members = self.steps[index], [index]
        activation = Activation.NOTHING
        reads = norm.reads
        if self._follows(members, (Add,)):
            added = self.steps[members[-1]]
            if len(added.reads) == 2:
                reads = (*reads, *(place for place in added.reads if place != norm.place))
            else:
                members.pop()
        if self._follows(members, (ReLU, ReLU6)):
            activation = ACTIVATIONS[type(self.steps[members[-1]].layer)]  # type: ignore[index]
        *gone, last = members
        self.gone.update(gone)
        whole = Normalise(norm.run, activation)  # type: ignore[arg-type]
        self.made[last] = _Step(whole, reads, self.steps[last].place, None)

    def _follows(self, members: list[int], kinds: tuple[type[Layer], ...]) -> bool:
        following = self.only_reader(members[-1])
        if following is None or type(self.steps[following].layer) not in kinds:
            return False
        members.append(following)
        return True


def _joined(steps: list[_Step]) -> list[_Step]:
    merges = _Merges(steps)
    # The last first: where two batch norms meet in an addition, the earlier one's output is there in time.
    for index in reversed(range(len(steps))):
        if type(steps[index].layer) is BatchNorm:
            merges.merge(index)
    return [merges.made.get(index, step) for index, step in enumerate(steps) if index not in merges.gone]


def _single(steps: list[_Step], columns: list[int]) -> Iterator[_Step]:
    """Layers that are computed in another way, each by itself. `columns`: of the images at each place."""
    for step in steps:
        if type(step.layer) is Gate:
            yield replace(step, run=Gated())
        elif type(step.layer) is GlobalPool:
            yield replace(step, run=Mean())
        elif isinstance(step.run, nn.Conv2d) and is_worth_folding(step.run, columns[step.reads[0]]):
            yield replace(step, run=Folded(step.run))
        else:
            yield step


def _with_readers(steps: list[_Step]) -> list[_Step]:
    """Steps that can take the gradients of several readers at once give each its own tensor."""
    many = Counter(place for step in steps for place in step.reads)
    free = max(place for step in steps for place in (*step.reads, step.place)) + 1
    own: dict[int, list[int]] = {}
    found: list[_Step] = []
    for step in steps:
        reads = tuple(own[place].pop(0) if place in own else place for place in step.reads)
        readers = many[step.place]
        if not isinstance(step.run, (Normalise, Gated)) or readers < 2:
            found.append(replace(step, reads=reads))
            continue
        found.append(replace(step, reads=reads, run=replace(step.run, readers=readers)))
        own[step.place] = list(range(free, free + readers))
        free += readers
        found += (_Step(_Pick(n), (step.place,), place, None) for n, place in enumerate(own[step.place]))
    return found


def _lasting(steps: list[_Step]) -> Iterator[tuple[Any, tuple[int, ...], int, tuple[int, ...]]]:
    """With the places that nobody reads after a step."""
    last = {place: index for index, step in enumerate(steps) for place in step.reads}
    for index, step in enumerate(steps):
        dead = tuple(place for place in dict.fromkeys(step.reads) if last[place] == index)
        yield step.run, step.reads, step.place, dead
