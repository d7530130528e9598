"""The passes of one training step in torch's order: which tensors of the network are there at its fullest.
`nas.layers` state what each layer keeps. Whoever asks adds examples, weights and the state of the
optimizer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import prod

from nas.frozen import frozen
from nas.graph import INPUT, Graph, Node
from nas.layers import Shape
from nas.layers.layer import WIDE, Footprint, Output, Read


@frozen
class StepMemory:
    """Bytes of the passes. Examples, weights and what the optimizer keeps are not in it."""

    kept: int
    """What the forward pass and the loss leave for the backward pass."""
    gradients: int
    """The gradients of all weights. Those of the step before are there until the backward pass begins."""
    highest: int
    """The most at any moment, gradients included."""
    highest_by_onednn: int
    """The same on a processor, where oneDNN lays out a convolution's weights anew while it computes."""


def step_memory(graph: Graph, narrow: int, examples: int, ranks: int = 1) -> StepMemory:
    """The memory of a step of one rank of `ranks`, on this number of examples. Its products have numbers of
    `narrow` bytes.

    Raises MissingReading where a layer does not state its memory: then the whole is unknown.
    """
    passes = _Passes(graph, narrow, examples, keeps_gradients=ranks > 1)
    passes.forward()
    passes.loss()
    kept = passes.live
    passes.backward()
    return StepMemory(kept, passes.all_gradients, passes.highest, passes.highest_by_onednn)


def forward_memory(graph: Graph, narrow: int, examples: int) -> int:
    """The most bytes at any moment of a forward pass that no backward pass follows, as in a validation.

    Raises MissingReading, as `step_memory`.
    """
    passes = _Passes(graph, narrow, examples, keeps_gradients=False, learns=False)
    passes.forward()
    return passes.highest - passes.all_gradients


@dataclass
class _Passes:
    """Tensors by the number of their memory, which some share."""

    graph: Graph
    narrow: int
    examples: int
    keeps_gradients: bool
    """Whether gradients stay from step to step: those of a group are parts of DDP's buckets."""
    learns: bool = True
    """Whether a backward pass follows, for which tensors are kept."""
    live: int = 0
    gradients: int = 0
    """Bytes of the gradients of weights that are there now."""
    highest: int = 0
    highest_by_onednn: int = 0
    _sizes: list[int] = field(default_factory=lambda: [0])
    _holders: Counter[int] = field(default_factory=Counter)
    _lies: dict[str, int] = field(default_factory=lambda: {INPUT: 0})
    """The memory of each tensor; that of the examples is not counted here."""
    _widths: dict[str, int] = field(default_factory=lambda: {INPUT: WIDE})
    _kept: dict[str, tuple[Footprint, int, list[int]]] = field(default_factory=dict)
    """What the backward pass of each node gives back: bytes of its own, and tensors."""
    _weights: Counter[str] = field(default_factory=Counter)
    """Numbers in the weights of each node."""

    _summed: set[str] = field(default_factory=set)
    """Embeddings whose weight another node computes with, too: their gradient is added to that of this node,
    which comes first."""

    def __post_init__(self) -> None:
        """Counts the numbers of each node's weights once; a tied layer has those of its embedding."""
        for name, shape in self.graph.weights.items():
            self._weights[name.rsplit(".", 1)[0]] += prod(shape)
        for name, embedding in self.graph.tables.items():
            self._weights[name] += prod(self.graph.weights[f"{embedding}.weight"])
        self._summed.update(self.graph.tables.values())

    @property
    def all_gradients(self) -> int:
        """Bytes of the gradients of all weights, which are in fp32 whatever the format of training."""
        return WIDE * self.graph.num_parameters

    def forward(self) -> None:
        """The forward pass in the order of the graph: a tensor is given back after its last reader, unless
        the backward pass holds it."""
        # Those of the step before are still there.
        self.gradients = self.all_gradients
        left = Counter(name for node in self.graph.nodes for name in set(node.inputs))
        self._hold(0)
        for node in self.graph.nodes:
            self._compute(node)
            for name in set(node.inputs):
                left[name] -= 1
                if not left[name]:
                    self._give_back(self._lies[name])

    def _compute(self, node: Node) -> None:
        """The forward pass of a node: makes its output, and holds what its backward pass will need."""
        graph, reads = self.graph, self._reads(node)
        own = node.layer.footprint(self.narrow, *reads)
        first = node.inputs[0]
        shares = own.output is Output.VIEW or (own.output is Output.OVER_FIRST and graph.may_overwrite(first))
        self._widths[node.name] = own.width
        place = self._lies[first] if shares else self._new(graph.shapes[node.name], own.width)
        self._lies[node.name] = place
        self._hold(place)
        inside = own.inside * self.examples + own.once + self._copied_weights(node, own.narrow_weights)
        self._look(inside + own.forward * self.examples, self._copied_weights(node, own.blocked_weights))
        if self.learns and node.name in graph.trained:
            tensors = [self._lies[node.inputs[index]] for index in own.keeps]
            tensors += [place] if own.keeps_output else []
            for tensor in tensors:
                self._hold(tensor)
            self.live += inside
            self._kept[node.name] = own, inside, tensors

    def loss(self) -> None:
        """The logarithms of the softmax, in fp32, are kept."""
        output = self.graph.output
        wide = WIDE * prod(self.graph.shapes[output]) * self.examples
        self._look(wide + (wide if self._widths[output] < WIDE else 0))
        self.live += wide
        self._give_back(self._lies[output])

    def backward(self) -> None:
        """From the gradient of the loss to those of all weights, in the order of autograd: the last node
        first."""
        if not self.keeps_gradients:
            self.gradients = 0
        graph, output = self.graph, self.graph.output
        wide = WIDE * prod(graph.shapes[output]) * self.examples
        self._look(2 * wide)
        self.live -= wide
        towards = {output: self._new(graph.shapes[output], self._widths[output])}
        self._hold(towards[output])
        self._look(wide if self._widths[output] < WIDE else 0)
        for node in reversed(graph.nodes):
            if node.name in graph.trained:
                self._return(node, towards)

    def _return(self, node: Node, towards: dict[str, int]) -> None:
        """The backward pass of a node: from the gradient of its output to those of its inputs and weights."""
        own, inside, tensors = self._kept[node.name]
        gradient, weights = towards.pop(node.name), WIDE * self._weights[node.name]
        found = []
        for name, read in zip(node.inputs, self._reads(node)):
            if name in self.graph.trained:
                same = own.passes_on and read.width == own.width
                found.append((name, gradient if same else self._new(read.shape, read.width)))
                self._hold(found[-1][1])
        narrow = self._copied_weights(node, own.narrow_weights)
        besides = own.backward * self.examples + (narrow or weights)
        # The gradient as oneDNN lays it out, then as torch does, then with the channels last.
        self._look(besides, 2 * self._copied_weights(node, own.blocked_weights))
        self._give_back(gradient)
        self.live -= inside
        for tensor in tensors:
            self._give_back(tensor)
        self._look(narrow + weights)  # the narrow gradient becomes that in fp32
        if not self.keeps_gradients and node.name not in self._summed:
            self.gradients += weights
        for name, place in found:
            towards[name] = self._sum(towards[name], place) if name in towards else place

    def _sum(self, first: int, second: int) -> int:
        """Adds up two gradients of one tensor, in the memory of the first unless that is another's, too."""
        if self._holders[first] > 1:
            total = len(self._sizes)
            self._sizes.append(self._sizes[first])
            self._hold(total)
            self._look(0)
            self._give_back(first)
            first = total
        self._give_back(second)
        return first

    def _reads(self, node: Node) -> list[Read]:
        """What a node reads: the shapes, and the bytes of one number of each."""
        return [Read(self.graph.shapes[name], self._widths[name]) for name in node.inputs]

    def _copied_weights(self, node: Node, are_copied: bool) -> int:
        """Bytes of a node's weights in the format of training, if they are copied."""
        return self.narrow * self._weights[node.name] if are_copied else 0

    def _new(self, shape: Shape, width: int) -> int:
        """A memory for a tensor, which nobody holds yet."""
        self._sizes.append(prod(shape) * width * self.examples)
        return len(self._sizes) - 1

    def _hold(self, place: int) -> None:
        """One more holder; the first one makes the memory count."""
        self._holders[place] += 1
        if self._holders[place] == 1:
            self.live += self._sizes[place]

    def _give_back(self, place: int) -> None:
        """One holder less; with the last one the memory is free."""
        self._holders[place] -= 1
        if not self._holders[place]:
            self.live -= self._sizes[place]

    def _look(self, besides: int, by_onednn: int = 0) -> None:
        """Notes the most that was there at once; `besides` and `by_onednn` are there for a moment only."""
        seen = self.live + besides + self.gradients
        self.highest = max(self.highest, seen)
        self.highest_by_onednn = max(self.highest_by_onednn, seen + by_onednn)
