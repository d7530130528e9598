"""What is fused: the plan of a network is rewritten so that the layers between the convolutions share passes
over memory. A backend says how that is computed. A plan is a list of steps in an order in which each can be
computed; a place is an index into the tensors that they read and write, as in `nas.modules.network`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from aiperf.engines.fused.backend import Activation, Backend
from aiperf.engines.fused.image_steps import (
    Folded,
    Gated,
    Mean,
    Normalise,
    OfPixels,
    Pixels,
    Pointwise,
    is_worth_folding,
    is_worth_multiplying,
)
from aiperf.engines.fused.sequence_steps import Attend, GatedProduct, NormaliseRows
from nas.frozen import frozen
from nas.layers import (
    Add,
    BatchNorm,
    Conv2d,
    Gate,
    GlobalPool,
    Layer,
    Linear,
    Product,
    ReLU,
    ReLU6,
    SiLU,
)
from nas.modules import Network

ACTIVATIONS: dict[type[Layer], Activation] = {ReLU: Activation.RELU, ReLU6: Activation.RELU6}


@frozen
class _Step:
    """A step of a network's plan: what it runs, the places of the tensors that it reads, and the place of its
    result."""

    run: Callable[..., Any]
    reads: tuple[int, ...]
    """Places of the tensors that it takes, in their order."""
    place: int
    layer: Layer | None
    """The layer that the step computes; None if it computes several, or a part of one."""


@frozen
class _Pick:
    """Selects the tensor of one reader from a step that returns a tensor for each reader."""

    reader: int

    def __call__(self, tensors: tuple[Tensor, ...]) -> Tensor:
        return tensors[self.reader]


def fuse(network: Network, backend: Backend) -> None:
    """Makes the network take fewer passes over memory; its tensors stay as they are.

    Gradients are then summed in another order, and 16-bit numbers are rounded less often. No step falls back
    to torch's own modules later: it raises Unfit for images that its kernel does not support. Raises Unfit if
    the `forward` of a batch norm is replaced, as by `aiperf.parallel.batchnorm.synchronise`.
    """
    backend.begin()
    layers = [node.layer for node in network.graph.nodes]
    steps = [_Step(*step[:3], layer) for step, layer in zip(network.plan, layers)]
    columns = [shape[-1] for shape in network.graph.shapes.values()]
    if backend.helps_onednn:
        steps = [_multiplied(step, columns) for step in _with_pixels(steps)]
    steps = _joined(steps, backend)
    steps = list(_sequences(_gated(steps, backend), backend))
    steps = _with_readers(list(_single(steps, backend)))
    network.plan = tuple(_lasting(steps))


def _readers(steps: list[_Step]) -> dict[int, list[int]]:
    """Indices of the steps that read each place, by place. A step is listed once for each time that it reads
    it."""
    found: dict[int, list[int]] = {step.place: [] for step in steps}
    for index, step in enumerate(steps):
        for place in step.reads:
            found.setdefault(place, []).append(index)
    return found


def _with_pixels(steps: list[_Step]) -> list[_Step]:
    """Makes strided 1x1 convolutions read only the pixels that they need. These are extracted once for all
    convolutions of the same images."""
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
    """The steps that are merged into one: the merged step by the index of its last member, and the members
    that are gone."""

    steps: list[_Step]
    backend: Backend
    readers: dict[int, list[int]] = field(init=False)
    """Indices of the steps that read each place."""
    writers: dict[int, int] = field(init=False)
    """Index of the step that writes each place."""
    gone: set[int] = field(default_factory=set)
    """Indices of the steps that are a part of another one."""
    made: dict[int, _Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.readers = _readers(self.steps)
        self.writers = {step.place: index for index, step in enumerate(self.steps)}

    def only_reader(self, index: int) -> int | None:
        """Index of the only reader of a step's output; None if there are several, or if the reader is merged
        with another batch norm already."""
        found = self.readers[self.steps[index].place]
        return found[0] if len(found) == 1 and found[0] not in (*self.gone, *self.made) else None

    def merge(self, index: int) -> None:
        """Merges a batch norm with an addition and an activation that follow it, if no other step reads the
        intermediate results; and with the batch norm of what is added."""
        norm, members = self.steps[index], [index]
        activation, of_residual = Activation.NOTHING, None
        reads = norm.reads
        if self._follows(members, (Add,)):
            added = self.steps[members[-1]]
            if len(added.reads) == 2:
                (residual,) = (place for place in added.reads if place != norm.place)
                other = self.writers.get(residual)
                if other is not None and self._is_norm_of(other, members[-1]):
                    (residual,), of_residual = self.steps[other].reads, self.steps[other].run
                    self.gone.add(other)
                reads = (*reads, residual)
            else:
                members.pop()
        if self._follows(members, (ReLU, ReLU6)):
            activation = ACTIVATIONS[type(self.steps[members[-1]].layer)]  # type: ignore[index]
        *gone, last = members
        self.gone.update(gone)
        whole = Normalise(self.backend, norm.run, activation, of_residual=of_residual)  # type: ignore[arg-type]
        self.made[last] = _Step(whole, reads, self.steps[last].place, None)

    def _is_norm_of(self, index: int, reader: int) -> bool:
        """Whether a step is a batch norm that only this step reads."""
        step = self.steps[index]
        return type(step.layer) is BatchNorm and self.readers[step.place] == [reader]

    def _follows(self, members: list[int], kinds: tuple[type[Layer], ...]) -> bool:
        """Adds the only reader of the last member to the members if its layer is of one of these kinds; says
        whether it did."""
        following = self.only_reader(members[-1])
        if following is None or type(self.steps[following].layer) not in kinds:
            return False
        members.append(following)
        return True


def _joined(steps: list[_Step], backend: Backend) -> list[_Step]:
    """The steps with every batch norm merged with what follows it."""
    merges = _Merges(steps, backend)
    # From the last to the first: a batch norm takes what is added to it, which was computed before.
    for index in reversed(range(len(steps))):
        if type(steps[index].layer) is BatchNorm and index not in merges.gone:
            merges.merge(index)
    return [merges.made.get(index, step) for index, step in enumerate(steps) if index not in merges.gone]


def _multiplied(step: _Step, columns: list[int]) -> _Step:
    """The step, as a convolution of another form or as a matrix product where that pays. `columns` is the
    width of the images at each place."""
    if isinstance(step.run, nn.Conv2d):
        if is_worth_folding(step.run, columns[step.reads[0]]):
            return replace(step, run=Folded(step.run))
        if is_worth_multiplying(step.run):
            return replace(step, run=Pointwise(step.run))
    return step


def _gated(steps: list[_Step], backend: Backend) -> list[_Step]:
    """Merges each SiLU with the product that alone reads it."""
    readers, gone = _readers(steps), set[int]()
    found = list(steps)
    for index, step in enumerate(steps):
        if type(step.layer) is SiLU and len(readers[step.place]) == 1:
            (reader,) = readers[step.place]
            product = steps[reader]
            if type(product.layer) is Product:
                (other,) = (place for place in product.reads if place != step.place)
                found[reader] = _Step(GatedProduct(backend), (*step.reads, other), product.place, None)
                gone.add(index)
    return [step for index, step in enumerate(found) if index not in gone]


def _sequences(steps: list[_Step], backend: Backend) -> Iterator[_Step]:
    """Replaces RMS norms and attention."""
    readers = _readers(steps)
    for step in steps:
        if isinstance(step.run, nn.RMSNorm):
            only = all(type(steps[reader].layer) is Linear for reader in readers[step.place])
            yield replace(step, run=NormaliseRows(backend, step.run, products_only=only))
        elif Attend.can(step.run):
            yield replace(step, run=Attend(backend, step.run))  # type: ignore[arg-type]
        else:
            yield step


def _single(steps: list[_Step], backend: Backend) -> Iterator[_Step]:
    """Replaces single layers that have a faster implementation."""
    for step in steps:
        if type(step.layer) is Gate:
            yield replace(step, run=Gated(backend))
        elif type(step.layer) is GlobalPool:
            yield replace(step, run=Mean(backend))
        else:
            yield step


def _with_readers(steps: list[_Step]) -> list[_Step]:
    """Gives each reader of a step its own tensor, if the step can add up the gradients of several readers in
    its own pass."""
    many = Counter(place for step in steps for place in step.reads)
    free = max(place for step in steps for place in (*step.reads, step.place)) + 1
    own: dict[int, list[int]] = {}
    found: list[_Step] = []
    for step in steps:
        reads = tuple(own[place].pop(0) if place in own else place for place in step.reads)
        readers = many[step.place]
        if not isinstance(step.run, (Normalise, Gated, NormaliseRows)) or readers < 2:
            found.append(replace(step, reads=reads))
            continue
        found.append(replace(step, reads=reads, run=replace(step.run, readers=readers)))
        own[step.place] = list(range(free, free + readers))
        free += readers
        found += (_Step(_Pick(n), (step.place,), place, None) for n, place in enumerate(own[step.place]))
    return found


def _lasting(steps: list[_Step]) -> Iterator[tuple[Any, tuple[int, ...], int, tuple[int, ...]]]:
    """The steps as a network's plan, each with the places that no later step reads and that can be freed."""
    last = {place: index for index, step in enumerate(steps) for place in step.reads}
    for index, step in enumerate(steps):
        dead = tuple(place for place in dict.fromkeys(step.reads) if last[place] == index)
        yield step.run, step.reads, step.place, dead
