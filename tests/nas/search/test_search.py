"""Evolution and the random baseline: what they choose, what they refuse, and that they can be replayed."""

from __future__ import annotations

import random
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from aiperf.config import BoundsConfig
from nas.graph import Graph
from nas.layers import Conv2d
from nas.morphisms import MorphismError
from nas.ops import OPS
from nas.search import SEARCHES, Evolution, Final, Observation, RandomSearch, Search
from nas.seeds import residual
from tests.tables import ComesTo

BOUNDS = BoundsConfig()
INNER = tuple(f"stage{stage}.block1.1.conv" for stage in (1, 2, 3))


@dataclass(frozen=True)
class Widen:
    """Stands for a morphism: the inner convolution of a basic block gets more channels."""

    node: str
    by: int

    def apply(self, graph: Graph) -> Graph:
        node = graph.node[self.node]
        assert isinstance(node.layer, Conv2d)
        wide = replace(node, layer=replace(node.layer, channels=node.layer.channels + self.by))
        return Graph(graph.input, tuple(wide if other is node else other for other in graph.nodes))

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> Widen:
        return cls(rng.choice(INNER), rng.randint(1, 8))


class OneStep(Widen):
    """Three children of the seed, three of each of those, and so on."""

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> Widen:
        return cls(rng.choice(INNER), 1)


class OnlyFirstStage(Widen):
    """There is no place for it once the first stage is wider than 6."""

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> Widen:
        if graph.shapes[INNER[0]][0] > 6:
            raise MorphismError("no place")
        return cls(INNER[0], rng.randint(1, 8))


def make(kind: type[Search] = Evolution, morph: Any = Widen, asked: int = 0, **options: Any) -> Search:
    """A search that was asked for the first trials."""
    settings: dict[str, Any] = {"random_seed": 1, "bounds": BOUNDS, "population": 10, "mix": {morph: 1.0}}
    search = kind(residual(), **{**settings, **options})
    for number in range(asked):
        search.ask(number, 1)
    return search


def observed(number: int, error: float = 0.5, schedule: int = 1000) -> Observation:
    return Observation(number, schedule, ((schedule, error),))


def run(search: Search, trials: int, errors: Mapping[int, float] | None = None) -> list[str]:
    """One trial after the other; the keys of the candidates."""
    keys = []
    for number in range(trials):
        keys.append(search.ask(number, 1).graph.key)
        search.tell(observed(number, (errors or {}).get(number, 0.5)))
    return keys


def dispatched(search: Search, number: int, *morphisms: Widen) -> Graph:
    """A trial whose candidate is a child of the seed that nobody proposed."""
    return search.dispatched(number, None, morphisms).graph  # type: ignore[arg-type]


def parents(kind: type[Search], errors: Mapping[int, float], times: int) -> Counter[int | None]:
    """Parents of the next candidate, counted over `times` random seeds."""
    num = max(errors) + 1
    searches = (told(make(kind, asked=num, random_seed=seed), errors) for seed in range(times))
    return Counter(search.ask(num, 1).parent for search in searches)


def told(search: Search, errors: Mapping[int, float]) -> Search:
    """The search after these trials were reported with these errors."""
    for number, error in errors.items():
        search.tell(observed(number, error))
    return search


@pytest.mark.parametrize("kind", SEARCHES.values())
def test_trial_0_is_the_seed_and_the_next_are_its_children(kind: type[Search]) -> None:
    search = make(kind, morphisms=3)
    first = search.ask(0, 1)
    assert (first.parent, first.morphisms, first.graph) == (None, (), residual())
    for number in (1, 2, 3):
        child = search.ask(number, 1)
        assert child.parent is None, "the seed is not trained yet"
        (morphism,) = child.morphisms
        assert morphism.apply(residual()) == child.graph
    search.tell(observed(0))
    child = search.ask(4, 1)
    assert child.parent == 0
    assert len(child.morphisms) == 1


def test_selection_starts_with_the_second_completed_trial() -> None:
    search = make(asked=4)
    search.tell(observed(2, 0.1))
    assert search.ask(4, 1).parent is None
    search.tell(observed(1, 0.9))
    assert search.ask(5, 1).parent == 2


def test_the_worst_never_win_a_tournament_of_two_and_random_search_does_not_look_at_errors() -> None:
    won = parents(Evolution, {0: 0.4, 1: 0.2, 2: 0.3}, 150)
    assert set(won) == {1, 2}
    assert 75 < won[1] < 125  # two tournaments of three
    drawn = parents(RandomSearch, {0: 0.9, 1: 0.1, 2: 0.5}, 150)
    assert set(drawn) == {0, 1, 2}
    assert min(drawn.values()) > 35


def chosen(kind: type[Search], *trials: tuple[int, tuple[tuple[int, float], ...]]) -> int | None:
    """The parent after trials 1 and 2, each with its schedule and its errors."""
    search = make(kind, asked=3)
    for number, (schedule, errors) in enumerate(trials, start=1):
        search.tell(Observation(number, schedule, errors))
    return search.ask(3, 1).parent


def test_errors_are_compared_at_the_shortest_schedule_and_by_final_as_the_trials_ended(
    comes_to_what_was_read: ComesTo,
) -> None:
    """Among as many as are a fifth of the population."""
    comes_to_what_was_read("chosen.txt", globals() | {"Final": Final})


@pytest.mark.parametrize("kind", SEARCHES.values())
def test_nothing_is_proposed_twice_or_out_of_bounds(kind: type[Search]) -> None:
    bounds = replace(BOUNDS, max_operations=3.0, max_parameters=2.5, max_activations=2.0)
    search = make(kind, bounds=bounds, morphisms=2)
    seed, keys = residual(), set()
    for number in range(150):
        graph = search.ask(number, 1).graph
        keys.add(graph.key)
        if number % 3 == 2:
            search.drop(number)
        else:
            search.tell(observed(number, 1 / (1 + graph.operations)))  # growth pays, up to the bounds
        assert graph.cost.train.price(OPS) <= 3.0 * seed.operations
        assert graph.num_parameters <= 2.5 * seed.num_parameters
        assert graph.num_activations <= 2.0 * seed.num_activations
    assert len(keys) == 150


@pytest.mark.parametrize("kind", SEARCHES.values())
def test_a_kind_without_a_share_changes_no_proposal(kind: type[Search]) -> None:
    """So a new morphism can be tried by hand before a search proposes it."""
    assert run(make(kind, mix={OneStep: 0.0, Widen: 1.0, OnlyFirstStage: 0.0}), 12) == run(make(kind), 12)


def test_a_parent_without_a_legal_neighbour_is_passed_over() -> None:
    search = make(morph=OnlyFirstStage)
    search.ask(0, 1)
    dispatched(search, 1, Widen(INNER[0], 20))
    dispatched(search, 2, Widen(INNER[1], 1))
    assert told(search, {1: 0.1, 2: 0.9}).ask(3, 1).parent == 2


class Huge(Widen):
    """Never within the bounds."""

    @classmethod
    def propose(cls, graph: Graph, rng: random.Random) -> Widen:
        return cls(INNER[0], 10_000)


def test_where_the_likely_kinds_are_too_large_the_others_have_their_turn() -> None:
    search = told(make(mix={Huge: 0.999, Widen: 0.001}, asked=2), {0: 0.1, 1: 0.9})
    for number in range(2, 10):
        child = search.ask(number, 1)
        assert child.parent == 0
        assert not isinstance(child.morphisms[0], Huge)


def test_when_no_parent_has_one_the_seed_has_a_child() -> None:
    search = make(morph=OnlyFirstStage)
    search.ask(0, 1)
    for number in (1, 2):
        dispatched(search, number, Widen(INNER[0], 10 + number))
        search.tell(observed(number))
    child = search.ask(3, 1)
    assert child.parent is None
    assert len(child.morphisms) == 1


def test_when_the_seed_has_no_new_child_it_has_grandchildren() -> None:
    search = make(morph=OneStep)
    lengths = [len(search.ask(number, 1).morphisms) for number in range(20)]
    assert lengths[:4] == [0, 1, 1, 1]
    assert min(lengths[4:]) == 2


def test_the_oldest_completed_trial_dies() -> None:
    search = told(make(population=3, asked=6), {2: 0.5, 0: 0.5, 1: 0.5})
    assert search.alive() == {0, 1, 2}
    search.tell(observed(4))
    assert search.alive() == {0, 1, 4}, "age counts from completion"
    search.drop(3)
    search.tell(observed(5))
    assert search.alive() == {1, 4, 5}


def test_weights_of_a_dead_parent_are_needed_until_its_child_ends() -> None:
    search = make(population=2)
    run(search, 3)
    child = search.ask(3, 1)
    assert child.parent in (1, 2)
    for number in (4, 5):
        search.ask(number, 1)
    told(search, {4: 0.5, 5: 0.5})
    assert {child.parent, 4, 5} <= search.alive()
    search.tell(observed(3))
    assert search.alive() == {5, 3}


def test_a_child_that_arrives_after_its_parents_death_becomes_a_parent() -> None:
    search = make(population=2)
    run(search, 2)
    late = search.ask(2, 1)
    for number in (3, 4, 5):
        search.ask(number, 1)
        search.tell(observed(number))
    search.tell(observed(2, 0.0))
    child = search.ask(6, 1)
    assert child.parent == 2
    (morphism,) = child.morphisms
    assert morphism.apply(late.graph) == child.graph


def test_graphs_of_the_dead_are_let_go() -> None:
    search = make(population=2)
    own = []
    for number in range(6):
        own.append(weakref.ref(dispatched(search, number, Widen(INNER[0], number + 1)).node[INNER[0]]))
        search.tell(observed(number))
    assert [node() is None for node in own] == [True] * 4 + [False] * 2


@pytest.mark.parametrize("kind", SEARCHES.values())
def test_a_search_is_continued_from_the_record_of_its_calls(kind: type[Search]) -> None:
    search, rng = make(kind, morphisms=2), random.Random(5)
    record: list[tuple[str, tuple[Any, ...]]] = []
    flying: list[int] = []
    for number in range(60):
        candidate = search.ask(number, 1)
        record.append(("dispatched", (number, candidate.parent, candidate.morphisms)))
        flying.append(number)
        while len(flying) > 7:
            ended = flying.pop(rng.randrange(len(flying)))
            record.append(
                ("drop", (ended,)) if ended % 5 == 4 else ("tell", (observed(ended, rng.random()),))
            )
            name, arguments = record[-1]
            getattr(search, name)(*arguments)
    again = make(kind, morphisms=2)
    for name, arguments in record:
        getattr(again, name)(*arguments)
    assert again.alive() == search.alive()
    for number in range(60, 80):
        search.tell(observed(flying[0], 0.1))
        again.tell(observed(flying.pop(0), 0.1))
        flying.append(number)
        assert again.ask(number, 1) == search.ask(number, 1)


def test_calls_out_of_order_and_what_is_no_number_are_refused(comes_to_what_was_read: ComesTo) -> None:
    search = make(population=2)
    run(search, 5)
    search.ask(5, 1)
    comes_to_what_was_read("refused_calls.txt", {**globals(), "search": search})
