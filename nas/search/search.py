"""The two calls of every search, and what they share: who is alive, what is known, what is legal."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice

from nas.graph import Graph, Node
from nas.layers import Shape, ShapeError
from nas.morphisms import MIX, Morphism, MorphismError
from nas.search.bounds import Bounds, Size

__all__ = ["Candidate", "Exhausted", "Living", "Observation", "Search"]

# A parent is passed over when so many draws found no legal child: every kind of morphism has had its
# turn then.
DRAWS_OF_A_PARENT = 16
# A draw takes about a microsecond for each node. When those who were passed over have so many together,
# the proposal turns to the seed: it stays a matter of milliseconds when all is out of bounds.
NODES = 8_000
# From the seed: so many single steps; then, where those are all known, walks of up to so many steps.
WALKS = (1,) * 4 + (32,) * 64


class Exhausted(RuntimeError):
    """There seems to be no architecture within the bounds that was not proposed before."""


@dataclass(frozen=True)
class Candidate:
    """An architecture to train: the parent's, edited by the morphisms in their order.

    It starts from the parent's weights, carried. Without a parent it starts from the untrained seed.
    """

    parent: int | None
    morphisms: tuple[Morphism, ...]
    graph: Graph


@dataclass(frozen=True)
class Observation:
    """What became of a completed trial."""

    number: int
    schedule: int
    """Training images the trial was planned for; early stopping does not change it."""
    errors: tuple[tuple[int, float], ...]
    """The validation curve: training images since the trial began, validation error (0 to 1)."""

    def __post_init__(self) -> None:
        if not self.errors:
            raise ValueError(f"trial {self.number} has no validation; it is no observation")
        if not all(math.isfinite(error) for _, error in self.errors):
            raise ValueError(f"trial {self.number} has an error that is no number: {self.errors}")

    def error_within(self, images: int) -> float:
        """The best error by then; the first one where there was none as early."""
        return min((error for at, error in self.errors if at <= images), default=self.errors[0][1])


@dataclass(frozen=True, eq=False)
class Dispatched:
    """A dispatched trial that has not ended. Its nodes are mostly its parent's own, so this is small."""

    parent: int | None
    input: Shape
    nodes: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Living:
    """A completed trial that can be a parent."""

    trial: Dispatched
    observation: Observation

    @cached_property
    def graph(self) -> Graph:
        """Most are never chosen."""
        return Graph(self.trial.input, self.trial.nodes)


class Search:
    """Asynchronous: any number of trials may be in flight, and none is waited for.

    Every candidate follows from the random seed, the trial's number and what was dispatched, told and
    dropped before, in that order. So a search is continued by the same calls, made from a record of
    them, with `dispatched` in the place of `ask`.

    A completed trial lives while it is among the `population` that completed last. At any time the
    memory holds the graphs of the living, the nodes of those in flight, and 16 bytes for each
    architecture ever dispatched.
    """

    def __init__(
        self,
        seed: Graph,
        random_seed: int,
        bounds: Bounds,
        population: int,
        morphisms: int = 1,
        mix: Mapping[type[Morphism], float] = MIX,
    ) -> None:
        """`morphisms`: how many a child may get at the most. `mix`: how often each kind is drawn."""
        if population < 2 or morphisms < 1:
            raise ValueError(f"a population of {population} with {morphisms} morphisms; needs 2 and 1")
        self.seed = seed
        self.random_seed = random_seed
        self.bounds = bounds
        self.population = population
        self.morphisms = morphisms
        self._kinds = tuple(mix)
        self._shares = tuple(mix.values())
        self._seed_size = Size.of(seed)
        self._living: dict[int, Living] = {}  # in order of arrival
        self._in_flight: dict[int, Dispatched] = {}
        self._known = {_digest(seed)}

    def choose(self, rng: random.Random, living: Sequence[Living]) -> Living:
        """A parent, out of one or more that live."""
        raise NotImplementedError

    def ask(self, number: int) -> Candidate:
        """The candidate for the trial of that number, which counts as dispatched from now on.

        Trial 0 is the seed. Raises Exhausted.
        """
        # Seeded by text: hashed by SHA-512, so equal on every machine and far apart for neighbours.
        rng = random.Random(f"{self.random_seed} {number}")
        if number == 0:
            candidate = Candidate(None, (), self.seed)
        elif len(self._living) < 2:
            candidate = self._child_of_seed(rng)
        else:
            candidate = self._child_of_living(rng) or self._child_of_seed(rng)
        self._register(number, candidate)
        return candidate

    def dispatched(self, number: int, parent: int | None, morphisms: tuple[Morphism, ...]) -> Candidate:
        """Notes what an earlier process asked for. Raises ValueError for a parent that is not alive."""
        if parent is not None and parent not in self._living:
            raise ValueError(f"trial {number}: its parent {parent} is not alive; the order is not as it was")
        graph = self.seed if parent is None else self._living[parent].graph
        for morphism in morphisms:
            graph = morphism.apply(graph)
        candidate = Candidate(parent, morphisms, graph)
        self._register(number, candidate)
        return candidate

    def tell(self, observation: Observation) -> None:
        """A trial completed. It lives, and the oldest may die of it."""
        trial = self._take(observation.number)
        self._living[observation.number] = Living(trial, observation)
        if len(self._living) > self.population:
            del self._living[next(iter(self._living))]

    def drop(self, number: int) -> None:
        """A trial ended otherwise: stopped, failed or lost. Its architecture is not proposed again."""
        self._take(number)

    def alive(self) -> frozenset[int]:
        """The trials whose weights are needed: all that live, and the parents of those in flight."""
        parents = {trial.parent for trial in self._in_flight.values() if trial.parent is not None}
        return frozenset(self._living.keys() | parents)

    def _register(self, number: int, candidate: Candidate) -> None:
        if number in self._in_flight or number in self._living:
            raise ValueError(f"trial {number} is dispatched for the second time")
        self._in_flight[number] = Dispatched(candidate.parent, candidate.graph.input, candidate.graph.nodes)
        self._known.add(_digest(candidate.graph))

    def _take(self, number: int) -> Dispatched:
        if number not in self._in_flight:
            raise ValueError(f"trial {number} ends, but it is not in flight")
        return self._in_flight.pop(number)

    def _child_of_living(self, rng: random.Random) -> Candidate | None:
        remaining = list(self._living.values())
        nodes = 0
        while remaining and nodes < NODES:
            parent = self.choose(rng, remaining)
            for kind in self._kinds_in_turn(rng, DRAWS_OF_A_PARENT):
                more = rng.choices(self._kinds, self._shares, k=rng.randrange(self.morphisms))
                morphisms, graph = self._edited(parent.graph, rng, [kind, *more])
                if self._is_legal(graph) and not self._is_known(graph):
                    return Candidate(parent.observation.number, morphisms, graph)
            remaining.remove(parent)
            nodes += DRAWS_OF_A_PARENT * len(parent.graph.nodes)
        return None

    def _child_of_seed(self, rng: random.Random) -> Candidate:
        """One step from the seed; more where all that is met on the way is known already."""
        parent = 0 if 0 in self._living else None
        for steps in WALKS:
            graph, walked = self.seed, tuple[Morphism, ...]()
            for kind in rng.choices(self._kinds, self._shares, k=steps):
                step, found = self._edited(graph, rng, [kind])
                if self._is_legal(found):
                    graph, walked = found, (*walked, *step)
                    if not self._is_known(graph):
                        return Candidate(parent, walked, graph)
        raise Exhausted("no new architecture within the bounds was found; remedy: widen search.bounds")

    def _kinds_in_turn(self, rng: random.Random, draws: int) -> Iterator[type[Morphism]]:
        """In a random order that the mix weighs, over and over: where the likely ones are too large for
        the bounds, the others come next. (Efraimidis and Spirakis, "Weighted random sampling with a
        reservoir", Information Processing Letters 97(5), 2006.)"""
        keys = {kind: rng.random() ** (1 / share) for kind, share in zip(self._kinds, self._shares)}
        return islice(cycle(sorted(self._kinds, key=keys.__getitem__, reverse=True)), draws)

    def _edited(
        self, graph: Graph, rng: random.Random, kinds: Sequence[type[Morphism]]
    ) -> tuple[tuple[Morphism, ...], Graph]:
        """By one morphism of each kind that there is a place for."""
        morphisms: tuple[Morphism, ...] = ()
        for kind in kinds:
            try:
                morphism = kind.propose(graph, rng)
                graph = morphism.apply(graph)
            except (MorphismError, ShapeError):  # no such neighbour
                continue
            morphisms = (*morphisms, morphism)
        return morphisms, graph

    def _is_legal(self, graph: Graph) -> bool:
        return Size.of(graph).within(self.bounds, self._seed_size)

    def _is_known(self, graph: Graph) -> bool:
        return _digest(graph) in self._known


def _digest(graph: Graph) -> bytes:
    return bytes.fromhex(graph.key)[:16]
