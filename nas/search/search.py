"""The two calls of every search, and what they share: who is alive, what is known, what is legal."""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import ClassVar

from nas.graph import Graph
from nas.layers import ShapeError
from nas.morphisms import MIX, Morphism, MorphismError
from nas.search.bounds import Bounds, Size
from nas.search.growth import Growing, Grown, edited
from nas.search.trials import Candidate, Living, Observation, StoredTrial

# A parent has no more children when this number of draws in a row was out of bounds (every kind of morphism
# has had its turn then), or after this number of draws in all.
BARREN = 16
DRAWS_OF_A_PARENT = 256
# When this number of parents was passed over, the proposal turns to the seed.
PARENTS = 8
# Largest lengths of the walks from the seed, in turn: single steps, then, if those networks are all known,
# longer ones.
WALKS = (1,) * 4 + (32,) * 64


class Exhausted(RuntimeError):
    """There seems to be no architecture within the bounds that was not proposed before."""


class TooMuchWork(RuntimeError):
    """Proposals took more work than they may."""


class Search:
    """Asynchronous: any number of trials may be in flight, and none is waited for.

    Every candidate follows from the random seed, the trial's number and what was dispatched, told and
    dropped before, in that order. So a search is continued by the same calls, made from a record of
    them, with `dispatched` in the place of `ask`.

    A completed trial lives while it is among the `population` that completed last. At any time the
    memory holds the graphs of the living, the nodes of those in flight, and 16 bytes for each
    architecture ever dispatched.
    """

    version: ClassVar[int] = 1
    """Raised when this search, and not all of a task, would propose other trials than before. A search of
    another package has the version of its distribution."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Distributions whose versions its proposals follow from; the extra `run` installs them."""

    def __init__(
        self,
        seed: Graph,
        random_seed: int,
        bounds: Bounds,
        population: int,
        morphisms: int = 1,
        mix: Mapping[type[Morphism], float] = MIX,
    ) -> None:
        """`morphisms`: how many a child may get at the most. `mix`: how often each kind is drawn; one with
        the share 0 never is.

        Raises ModuleNotFoundError where a library is not installed.
        """
        if population < 2 or morphisms < 1:
            raise ValueError(f"a population of {population} with {morphisms} morphisms; needs 2 and 1")
        self.seed = seed
        self.random_seed = random_seed
        self.bounds = bounds
        self.population = population
        self.morphisms = morphisms
        mix = {kind: share for kind, share in mix.items() if share}
        self._kinds = tuple(mix)
        self._shares = tuple(mix.values())
        self._seed_size = Size(seed)
        self._growth = Growing(bounds, self._seed_size, mix)
        self._living: dict[int, Living] = {}  # in order of arrival
        self._in_flight: dict[int, StoredTrial] = {}
        self._known = {_digest(seed)}
        self.most_work = inf
        """Tensors that the networks may read, once for each edit of one that is tried for a proposal, before
        TooMuchWork is raised: a limit for whoever repeats the proposals of others."""
        self._work = 0

    @property
    def grows(self) -> bool:
        """Whether candidates grow into the bounds, round by round."""
        return self.bounds.growth_rounds > 0

    def choose(self, rng: random.Random, living: Sequence[Living]) -> Living:
        """A parent, out of one or more that live."""
        raise NotImplementedError

    def ask(self, number: int, round_: int) -> Candidate:
        """The candidate for the trial of that number and round, which counts as dispatched from now on.

        Trial 0 is the seed. Raises Exhausted.
        """
        # Seeded by text: hashed by SHA-512, so equal on every machine and far apart for neighbours.
        rng = random.Random(f"{self.random_seed} {number}")
        if number == 0:
            candidate = Candidate(None, (), self.seed)
        elif len(self._living) < 2:
            candidate = self._child_of_seed(rng, round_)
        else:
            candidate = self.child_of_living(rng, round_) or self._child_of_seed(rng, round_)
        self._register(number, candidate)
        return candidate

    def dispatched(self, number: int, parent: int | None, morphisms: tuple[Morphism, ...]) -> Candidate:
        """Notes a trial that an earlier process of the run has dispatched, and returns its candidate. Raises
        ValueError for a parent that is not alive."""
        if parent is not None and parent not in self._living:
            raise ValueError(f"trial {number}: its parent {parent} is not alive; the order is not as it was")
        graph = self.seed if parent is None else self._living[parent].trial.graph
        for morphism in morphisms:
            graph = morphism.apply(graph)
        candidate = Candidate(parent, morphisms, graph)
        self._register(number, candidate)
        return candidate

    def adopt(self, number: int, candidate: Candidate) -> None:
        """Notes a candidate that an equal search, of which as much is known, was asked for, as if this one
        had been."""
        self._register(number, candidate)

    def tell(self, observation: Observation) -> None:
        """A trial completed. It lives, and the oldest may die of it."""
        trial = self._take(observation.number)
        self._living[observation.number] = Living(
            trial, observation, self._children(observation.number, trial)
        )
        if len(self._living) > self.population:
            del self._living[next(iter(self._living))]

    def drop(self, number: int) -> None:
        """A trial ended otherwise: stopped, failed or lost. Its architecture is not proposed again."""
        self._take(number)

    @property
    def living(self) -> Container[int]:
        """The trials that can be parents."""
        return self._living.keys()

    def alive(self) -> frozenset[int]:
        """The trials whose weights are needed: all that live, and the parents of those in flight."""
        parents = {trial.parent for trial in self._in_flight.values() if trial.parent is not None}
        return frozenset(self._living.keys() | parents)

    def _register(self, number: int, candidate: Candidate) -> None:
        if number in self._in_flight or number in self._living:
            raise ValueError(f"trial {number} is dispatched for the second time")
        graph = candidate.graph
        self._in_flight[number] = StoredTrial(candidate.parent, graph.input, graph.nodes, graph.head)
        self._known.add(_digest(candidate.graph))

    def _take(self, number: int) -> StoredTrial:
        if number not in self._in_flight:
            raise ValueError(f"trial {number} ends, but it is not in flight")
        return self._in_flight.pop(number)

    def child_of_living(self, rng: random.Random, round_: int) -> Candidate | None:
        """A legal child that is not known; None where none was found."""
        remaining = list(self._living.values())
        for _ in range(min(PARENTS, len(remaining))):
            parent = self.choose(rng, remaining)
            for child in self.children_of(parent, rng, round_):
                if self._is_new(child.graph):
                    return child
            remaining.remove(parent)
        return None

    def children_of(self, parent: Living, rng: random.Random, round_: int) -> Iterator[Candidate]:
        """The children that were drawn once for all; if networks grow, children that have the size of the
        round."""
        return self._grown(parent, rng, round_) if self.grows else parent.children

    def _grown(self, parent: Living, rng: random.Random, round_: int) -> Iterator[Candidate]:
        """Children by walks, until one finds nothing. The random numbers are those of this call, because a
        network that is too large for a round may suit the next one."""
        while grown := self._growth.walk(parent.trial.graph, rng, round_, self._is_new, self._spend):
            yield Candidate(parent.observation.number, *grown)

    def _children(self, number: int, trial: StoredTrial) -> Iterator[Candidate]:
        """The legal ones among random children, which are always the same ones for the same trial.

        So none need be drawn a second time: what was known or out of bounds then is so for ever.
        """
        rng = random.Random(f"{self.random_seed} child of {number}")
        kinds: list[type[Morphism]] = []
        barren = 0
        for _ in range(DRAWS_OF_A_PARENT):
            kinds = kinds or self._shuffled_kinds(rng)
            more = rng.choices(self._kinds, self._shares, k=rng.randrange(self.morphisms))
            self._spend(trial.graph, 1 + len(more))
            morphisms, child = edited(trial.graph, rng, [kinds.pop(), *more])
            if morphisms and self._is_legal(child):
                kinds, barren = [], 0
                yield Candidate(number, morphisms, child)
            elif (barren := barren + 1) == BARREN:
                return

    def _shuffled_kinds(self, rng: random.Random) -> list[type[Morphism]]:
        """Kinds of morphisms, to be taken from the end: each is next with its share in the mix of those that
        are left. So if the likely kinds have no place or are too large, the others have their turn.

        Efraimidis and Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters
        97(5), 2006.
        """
        keys = {kind: rng.random() ** (1 / share) for kind, share in zip(self._kinds, self._shares)}
        return sorted(self._kinds, key=keys.__getitem__)

    def _child_of_seed(self, rng: random.Random, round_: int) -> Candidate:
        """A child of the seed by one step, or by more if all nearer ones are known already or have to
        grow."""
        for steps in WALKS:
            walked = (
                self._growth.walk(self.seed, rng, round_, self._is_new, self._spend)
                if self.grows
                else self._stepped(rng, steps)
            )
            if walked:
                return Candidate(0 if 0 in self._living else None, *walked)
        raise Exhausted("no new architecture found within the bounds; widen search.bounds")

    def _stepped(self, rng: random.Random, steps: int) -> Grown | None:
        """The first new network on a walk of this length from the seed."""
        graph, walked = self.seed, tuple[Morphism, ...]()
        for kind in rng.choices(self._kinds, self._shares, k=steps):
            self._spend(graph)
            step, found = edited(graph, rng, [kind])
            if self._is_legal(found):
                graph, walked = found, (*walked, *step)
                if self._is_new(graph):
                    return walked, graph
        return None

    def _spend(self, graph: Graph, edits: int = 1) -> None:
        """Counts edits that are tried. Raises TooMuchWork."""
        self._work += edits * graph.num_reads
        if self._work > self.most_work:
            raise TooMuchWork(f"more than {self.most_work:,} readings of a tensor")

    def _is_legal(self, graph: Graph) -> bool:
        return Size(graph).within(self.bounds, self._seed_size)

    def _is_new(self, graph: Graph) -> bool:
        """Whether no trial had this architecture."""
        return _digest(graph) not in self._known


def _digest(graph: Graph) -> bytes:
    """Half of the key, as bytes: 16 for each architecture that is known."""
    return bytes.fromhex(graph.key)[:16]


def why_it_cannot_grow(seed: Graph, kinds: Iterable[type[Morphism]]) -> str:
    """The first reason, where no morphism of these kinds has a place in the seed; empty where one has."""
    reasons = []
    for kind in kinds:
        try:
            kind.propose(seed, random.Random(0)).apply(seed)
            return ""
        except (MorphismError, ShapeError) as error:
            reasons.append(str(error))
    return reasons[0] if reasons else ""
