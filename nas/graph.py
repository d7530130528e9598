"""The immutable graph of an architecture: nodes in topological order, from one input to its head.

One file, because a graph is made of its parent's, and takes over what follows from each of its layers.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import InitVar, field, replace
from functools import cached_property, lru_cache, wraps
from itertools import chain, islice, takewhile
from math import prod
from operator import attrgetter, is_
from typing import TypeVar

from nas.frozen import frozen
from nas.head import Classes, Head
from nas.layers import Layer, Shape, ShapeError, is_size
from nas.layers.layer import LATER
from nas.layers.shapes import most_taps
from nas.ops import NUM_COUNTS, OPS, Charge, Cost, Counts, Ops, cost_of

T = TypeVar("T")

INPUT = "input"  # the name under which nodes read the example
LONGEST_NAME = 200  # characters; the seeds' own have at most 25
MOST_LAYERS, MOST_READS = 5_000, 50_000
"""Layers of an architecture, and inputs of all of them together. A ResNet of 1,001 layers with weights has
3,400 nodes. Some searches for a place look at pairs of layers, so the limit bounds the work on a network of
unknown origin."""


@frozen
class Node:
    """A layer with a name that survives morphisms, and the names of what it reads."""

    name: str
    layer: Layer
    inputs: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raises ShapeError for a name that cannot be a key, or is too long for a line."""
        # Names become keys of weight files and words of error lines.
        if not self.name.isprintable() or not 1 <= len(self.name) <= LONGEST_NAME:
            raise ShapeError(
                f"a node is named {self.name!r:.80}; a name needs printable characters only, "
                f"and at most {LONGEST_NAME}"
            )


@frozen
class Row:
    """One line of the table of operations: how many there are, and what they cost for one example."""

    num: int
    cost: Cost


@frozen
class Graph:
    """An architecture. Construction infers every shape and refuses what does not fit.

    `input` is (channels, height, width) of an image or (positions,) of symbols; the last node is the output,
    and has the shape that the `head` asks for. Raises ShapeError for layers that do not fit, unknown or
    repeated names, and nodes nobody reads. What `nodes` share with those of a `parent` is not inferred a
    second time.
    """

    input: Shape
    nodes: tuple[Node, ...]
    shapes: Mapping[str, Shape] = field(init=False, repr=False, compare=False, hash=False)
    _facts: tuple[_Facts, ...] = field(init=False, repr=False, compare=False, hash=False)
    parent: InitVar[Graph | None] = None
    head: Head = field(default=Classes(), kw_only=True, metadata=LATER)

    def __post_init__(self, parent: Graph | None) -> None:
        if not self.nodes:
            raise ShapeError("a graph needs at least one node")
        if len(self.nodes) > MOST_LAYERS or self.num_reads > MOST_READS:
            raise ShapeError(
                f"a graph of {len(self.nodes):,} layers that read {self.num_reads:,} tensors; the limits are "
                f"{MOST_LAYERS:,} and {MOST_READS:,}"
            )
        if not self.input or not all(is_size(side) for side in self.input):
            raise ShapeError(
                f"the input is {self.input!r:.80}; it must be (channels, height, width) or (positions,), "
                "each a whole number from 1 to 2^31 − 1"
            )
        names = [node.name for node in self.nodes]
        if len({INPUT, *names}) <= len(names):
            twice = next(name for name, times in Counter([INPUT, *names]).items() if times > 1)
            raise ShapeError(f"two nodes are named {twice!r}")
        self._infer(parent if parent and parent.input == self.input else None)
        self.head.check(self.input, self.shapes[self.output])
        if self.head.input_type != "float32":
            self._check_symbols()
        if any(map(_TABLE, self._facts)):
            for node, found in zip(self.nodes, self._facts):
                if found.table:
                    self._check_tied(node, found.table)

    def _infer(self, parent: Graph | None) -> None:
        """Finds the shapes and facts of all nodes. A morphism changes few of hundreds of nodes, so those that
        a parent has too, in their order from its beginning or from its end, are taken over as a whole, except
        where they read what differs."""
        nodes, old = self.nodes, parent.nodes if parent else ()
        old_facts = parent._facts if parent else ()
        old_shapes = parent.shapes if parent else {INPUT: self.input}
        shift = len(nodes) - len(old)
        first = _num_same(nodes, old)
        end = len(nodes) - _num_same(reversed(nodes[first:]), reversed(old[first:]))
        before = dict(zip(map(_NAME, old[first : end - shift]), range(first, end - shift)))
        differs = set(before)  # by now: names of the parent's with another shape, or not met yet
        shapes, facts = dict(islice(old_shapes.items(), first + 1)), [*old_facts[:first]]
        place = first
        while place < end or differs:
            if place == end and parent:
                end = max([end, *[parent._last_reader.get(name, -1) + shift + 1 for name in differs]])
                before.update(zip(map(_NAME, nodes[place:end]), range(place - shift, end - shift)))
                if place == end:
                    break
            node = nodes[place]
            was = before.get(node.name)
            if was is not None and old[was] is node and differs.isdisjoint(node.inputs):
                found = old_facts[was]
            else:
                found = _facts_of(node, shapes)
            if was is not None and old_facts[was].shape == found.shape:
                differs.discard(node.name)
            elif was is not None:
                differs.add(node.name)
            shapes[node.name] = found.shape
            facts.append(found)
            place += 1
        shapes.update(islice(old_shapes.items(), end - shift + 1, None))
        object.__setattr__(self, "shapes", shapes)
        object.__setattr__(self, "_facts", (*facts, *old_facts[end - shift :]))
        gone, new = slice(first, end - shift), slice(first, end)
        if parent is None or end == len(nodes) or not self._reads_as(parent, gone, new):
            self._check_all_read()
        if parent:
            self._take_over(parent, gone, new)

    def _reads_as(self, parent: Graph, gone: slice, new: slice) -> bool:
        """Whether each tensor that nodes of the parent read which are gone, and each new one, is read by the
        nodes that are new. All others are read as in the parent."""
        names = set(map(_NAME, self.nodes[new])) - parent.shapes.keys()
        return (names | _read_by(parent.nodes[gone])) <= _read_by(self.nodes[new])

    def _check_all_read(self) -> None:
        """Raises ShapeError if a node other than the output is read by none."""
        unread = self.shapes.keys() - self._last_reader.keys()
        if unread != {self.output}:
            raise ShapeError(f"no node reads {', '.join(sorted(unread - {self.output}))}")

    def _take_over(self, parent: Graph, gone: slice, new: slice) -> None:
        """Keeps what is known of all nodes of the parent together: sums, less the nodes that are gone, with
        those that are new; and what has no weights above it."""
        own, known = self.__dict__, parent.__dict__
        for name, of in SUMS.items():
            if name in known:
                own[name] = known[name] - sum(map(of, parent._facts[gone])) + sum(map(of, self._facts[new]))
        untrained, num = parent._untrained
        if num <= gone.start and untrained.isdisjoint(_read_by(self.nodes[new])):
            own["_untrained"] = parent._untrained

    def _check_symbols(self) -> None:
        """What most layers made of symbols would mean nothing, and one that mixes them would show what
        follows."""
        for node in self.nodes:
            if INPUT in node.inputs and not node.layer.reads_symbols:
                kind = type(node.layer).__name__
                raise ShapeError(f"{node.name}: {kind}: reads numbers; embed the symbols of 'input'")

    def _check_tied(self, node: Node, table: Shape) -> None:
        """A tied layer is the output, and exactly one embedding has its shape: else it would be unclear whose
        weight it computes with, and which other layers see a change of it."""
        if node.name != self.output:
            raise ShapeError(f"{node.name}: it is tied to an embedding; only the output can be")
        if (num := len(self._embeddings(table))) != 1:
            symbols, features = table
            raise ShapeError(
                f"{node.name}: it is tied to the embedding of {symbols} symbols and {features} features; the "
                f"graph has {num} of these, and needs one"
            )

    def _embeddings(self, table: Shape) -> list[str]:
        """The nodes that embed symbols with a weight of this shape."""
        return [
            node.name
            for node, facts in zip(self.nodes, self._facts)
            if node.layer.reads_symbols and facts.weights.get("weight") == table
        ]

    @cached_property
    def tables(self) -> Mapping[str, str]:
        """For each node that computes with the weight of an embedding, the node that has it."""
        return {
            node.name: self._embeddings(facts.table)[0]
            for node, facts in zip(self.nodes, self._facts)
            if facts.table
        }

    @cached_property
    def num_reads(self) -> int:
        """Inputs of all layers, which is in proportion to the work that an edit of the graph takes."""
        return sum(map(len, map(_INPUTS, self.nodes)))

    @property
    def output(self) -> str:
        """The name of the last node."""
        return self.nodes[-1].name

    @property
    def classes(self) -> int:
        """What the head tells apart: classes of an image, symbols of a text."""
        return self.shapes[self.output][-1]

    @cached_property
    def _last_reader(self) -> Mapping[str, int]:
        """The place of the last node that reads a tensor, for each that is read."""
        return {name: place for place, node in enumerate(self.nodes) for name in node.inputs}

    @cached_property
    def node(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def readers(self) -> Mapping[str, tuple[Node, ...]]:
        """For each tensor, the nodes that read it, in order; a node reading it twice appears twice."""
        found: dict[str, list[Node]] = {name: [] for name in self.shapes}
        for node in self.nodes:
            for name in node.inputs:
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def may_overwrite(self, name: str) -> bool:
        """Whether a tensor's only reader may write its result in its place, which saves memory and time."""
        if name == INPUT or len(self.readers[name]) > 1:
            return False
        return self.node[name].layer.frees_output

    @cached_property
    def trained(self) -> frozenset[str]:
        """The tensors with weights at or above them: those that a gradient must reach."""
        return frozenset(self.shapes) - self._untrained[0]

    @cached_property
    def _untrained(self) -> tuple[set[str], int]:
        """The input and what is computed of it without weights, and the number of nodes up to the last that
        reads any of these."""
        found, num = {INPUT}, 1 + self._last_reader[INPUT]
        for place, (node, facts) in enumerate(zip(self.nodes, self._facts)):
            if place < num and not facts.num_parameters and found.issuperset(node.inputs):
                found.add(node.name)
                num = max(num, 1 + self._last_reader.get(node.name, 0))
        return found, num

    def reads(self, node: Node) -> tuple[Shape, ...]:
        """The shapes of a node's inputs."""
        return tuple(self.shapes[name] for name in node.inputs)

    @cached_property
    def weights(self) -> Mapping[str, Shape]:
        """Every trained tensor, as "node.tensor". The shapes are those of torch: (channels out, channels in /
        groups, height, width) of a convolution, (out, in) of a product."""
        return {
            f"{node.name}.{name}": shape
            for node, facts in zip(self.nodes, self._facts)
            for name, shape in facts.weights.items()
        }

    @cached_property
    def statistics(self) -> Mapping[str, Shape]:
        """Every tensor that is kept but not trained, as "node.tensor"."""
        return {
            f"{node.name}.{name}": shape
            for node, facts in zip(self.nodes, self._facts)
            for name, shape in facts.statistics.items()
        }

    @cached_property
    def num_parameters(self) -> int:
        """Numbers in all trained tensors."""
        return sum(map(SUMS["num_parameters"], self._facts))

    @cached_property
    def num_activations(self) -> int:
        """Elements that all layers put out, for one example. Times the format's width: activation bytes."""
        return sum(map(SUMS["num_activations"], self._facts))

    @cached_property
    def rows(self) -> Mapping[str, Row]:
        """The table of operations for one example, by kind of layer, the loss and forks included. The order
        is that in which the kinds of layers first appear."""
        counts: dict[str, list[Counts]] = {}
        for charge in self._charges:
            for name, count in charge.counts:
                counts.setdefault(name, []).append(count)
        return {name: Row(len(found), cost_of(map(sum, zip(*found)))) for name, found in counts.items()}

    @property
    def prices(self) -> Iterator[tuple[str, int, int]]:
        """Parts of the lines of `rows`, with their prices in OPS for a training and a validation example."""
        return (price for charge in self._charges for price in charge.prices)

    @cached_property
    def cost(self) -> Cost:
        """All operations for one example: the sum of `rows`."""
        total = [0] * NUM_COUNTS
        for charge, times in Counter(self._charges).items():
            for place, count in charge.places:
                total[place] += times * count
        return cost_of(total)

    @cached_property
    def operations(self) -> int:
        """OPS of one training example: the price of `cost.train`, from what was priced for other graphs."""
        (untrained, num), output = self._untrained, self.shapes[self.output]
        total = self.price_with_forks + _loss(self.head, output).train_price
        for node, facts in islice(zip(self.nodes, self._facts), num):
            if untrained.issuperset(node.inputs):
                total += facts.charge.train_price - facts.charge_with_input_grad.train_price
            read = sum([prod(self.shapes[name]) for name in node.inputs if name in untrained])
            total += OPS.add * (prod(facts.shape) * (node.name in untrained) - read)
        return total + OPS.add * prod(output) * (self.output not in untrained)

    @cached_property
    def price_with_forks(self) -> int:
        """OPS of all layers in training, as if a gradient had to reach every tensor, the input and the output
        too, whose sums of gradients are those of n readers less one: −1 for the output, which has none."""
        return sum(map(SUMS["price_with_forks"], self._facts))

    @cached_property
    def key(self) -> str:
        """A hash of the architecture that does not depend on names. It is SHA-256 as hexadecimal text. Two
        graphs whose nodes are in another order have other keys."""
        index = {name: str(place) for place, name in enumerate(self.shapes)}
        lines = [repr(self.input)]
        lines += [
            f"{facts.text} {' '.join([index[name] for name in node.inputs])}"
            for node, facts in zip(self.nodes, self._facts)
        ]
        if self.head != Classes():  # keys of images are older than heads
            lines.append(repr(self.head))
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @cached_property
    def counted_in_vain(self) -> str:
        """The first layer of whose counted operations nobody computes most, as a clause; empty if there is
        none. Nothing would bound the count of such a layer.

        It is a convolution whose taps mostly see padding, which no library computes (a pool of that kind
        cannot be built at all), or experts of which more are chosen than they have features: the counted
        comparisons are fewer than the router's products only for a few.
        """
        found = ((node.name, facts.in_vain) for node, facts in zip(self.nodes, self._facts))
        return next((text.format(name) for name, text in found if text), "")

    def charged(self, node: Node) -> tuple[Cost, ...]:
        """A node's part of `rows`, for one example."""
        return tuple(cost for _, cost in self._node_charges[node.name].rows)

    @cached_property
    def _node_charges(self) -> Mapping[str, Charge]:
        """What each node costs, by name. The gradient of an input is left out where no weights stand above
        it, because nothing would use it."""
        charges = dict(zip(map(_NAME, self.nodes), map(_CHARGE, self._facts)))
        untrained, num = self._untrained
        for node, facts in islice(zip(self.nodes, self._facts), num):
            if untrained.issuperset(node.inputs):
                charges[node.name] = facts.charge
        return charges

    @cached_property
    def _charges(self) -> list[Charge]:
        """All that is counted, once: the nodes, the forks and the loss."""
        readers = Counter(chain.from_iterable(map(_INPUTS, self.nodes)))
        forks = [(name, times) for name, times in readers.items() if times > 1]
        summed = [
            _fork(times - 1, self.shapes[name]) for name, times in forks if name not in self._untrained[0]
        ]
        return [*self._node_charges.values(), *summed, _loss(self.head, self.shapes[self.output])]


def _facts_of(node: Node, shapes: Mapping[str, Shape]) -> _Facts:
    """Raises ShapeError, with the name of the node."""
    try:
        return _facts(node.layer, *[shapes[name] for name in node.inputs])
    except KeyError as error:
        raise ShapeError(f"{node.name} reads {error}, which does not come before it") from None
    except ShapeError as error:
        raise ShapeError(f"{node.name}: {error}") from None


def _read_by(nodes: Iterable[Node]) -> set[str]:
    """The tensors that any of these nodes reads."""
    return set(chain.from_iterable(map(_INPUTS, nodes)))


def _num_same(some: Iterable[Node], others: Iterable[Node]) -> int:
    """How many of the first nodes are the same objects."""
    return sum(takewhile(bool, map(is_, some, others)))


def once(function: Callable[[Graph], T]) -> Callable[[Graph], T]:
    """Works it out once for each graph and keeps it with the graph: a search asks the same parents often."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def kept(graph: Graph) -> T:
        found: dict[str, T] = graph.__dict__
        if name not in found:
            found[name] = function(graph)
        return found[name]

    return kept


@frozen(eq=False)
class _Facts:
    """All that follows from a layer and the shapes it reads."""

    layer: Layer
    inputs: tuple[Shape, ...]
    shape: Shape

    @cached_property
    def text(self) -> str:
        """The layer as text, of which `Graph.key` is a hash."""
        return repr(self.layer)

    @cached_property
    def weights(self) -> Mapping[str, Shape]:
        """Shapes of the trained tensors by name."""
        return self.layer.weights(*self.inputs)

    @cached_property
    def statistics(self) -> Mapping[str, Shape]:
        """Shapes of the tensors that are kept but not trained, by name."""
        return self.layer.statistics(*self.inputs)

    @cached_property
    def table(self) -> Shape | None:
        """Shape (symbols, features) of the embedding whose weight the layer computes with; None if it has its
        own."""
        return self.layer.table(*self.inputs)

    @cached_property
    def num_parameters(self) -> int:
        """Numbers in the trained tensors; statistics are not among them."""
        return sum(map(prod, self.weights.values()))

    @cached_property
    def num_activations(self) -> int:
        """Elements that the layer puts out for one example."""
        return self.layer.num_activations(*self.inputs)

    @cached_property
    def price_with_forks(self) -> int:
        """OPS in training and of sums of gradients: one for each reading, less one for the tensor itself,
        whose first gradient is added to none."""
        forks = sum(map(prod, self.inputs)) - prod(self.shape)
        return self.charge_with_input_grad.train_price + OPS.add * forks

    @cached_property
    def in_vain(self) -> str:
        """What `Graph.counted_in_vain` says of it, with a place for its name. A dilated kernel has one tap
        every this many pixels."""
        if text := self.layer.counted_in_vain(*self.inputs):
            return text
        convolution = self.layer.convolution(*self.inputs)
        for along in convolution.windows(self.inputs[0][1:]) if convolution else ():
            if along.kernel > most_taps(-(-along.side // along.dilation)):
                pixels = f"{along.side} pixel{'s' * (along.side > 1)}"
                return f"the kernel of {{}} has {along.kernel} taps along {pixels}"
        return ""

    @cached_property
    def charge_with_input_grad(self) -> Charge:
        """What the layer costs for one example, with the gradient of its input."""
        return Charge(tuple(self.layer.costs(*self.inputs).items()))

    @cached_property
    def charge(self) -> Charge:
        """The same where no weights stand above it, so that nobody computes the gradient of its input."""
        rows = self.charge_with_input_grad.rows
        return Charge(tuple((name, replace(cost, input_grad=Ops())) for name, cost in rows))


# By `map` with these, a pass over all nodes takes a third of the time of one by a list comprehension.
_NAME, _INPUTS = attrgetter("name"), attrgetter("inputs")
_TABLE, _CHARGE = attrgetter("table"), attrgetter("charge_with_input_grad")
SUMS = {name: attrgetter(name) for name in ("num_parameters", "num_activations", "price_with_forks")}
"""Readings of a graph that are sums over its nodes."""


# Children share nearly all their layers with their parents. An entry is about 2 KB.
@lru_cache(maxsize=1 << 14)
def _facts(layer: Layer, *inputs: Shape) -> _Facts:
    """Kept for all graphs of a process, since layers and shapes are frozen."""
    return _Facts(layer, inputs, layer.shape(*inputs))


@lru_cache(maxsize=1 << 10)
def _fork(sums: int, shape: Shape) -> Charge:
    """A tensor with `sums` + 1 readers gathers as many gradients."""
    return Charge((("grad_accum", Cost(input_grad=Ops(add=sums * prod(shape)))),))


@lru_cache(maxsize=1 << 4)
def _loss(head: Head, output: Shape) -> Charge:
    """What the loss costs for one example; the same for all graphs with this head and output."""
    return Charge((("softmax_xent", head.loss(output)),))
