"""Candidates that grow into the operations of their round, and the network that is typical of a run."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from aiperf.config import BoundsConfig, load_preset
from aiperf.proposing.proposals import morphism_mix
from aiperf.run.checks import starting_graph
from nas.morphisms import Ungroup
from nas.search import SEARCHES, Observation, Search, typical
from nas.search.bounds import Size, in_round
from nas.search.growth import too_narrow
from nas.seeds import residual
from tests.tables import ComesTo

BOUNDS = BoundsConfig(
    min_operations=8.0,
    max_operations=10.0,
    max_parameters=64.0,
    min_activations=4.0,
    max_activations=6.0,
    min_layers=1.5,
    max_layers=3.0,
    growth_rounds=12,
)
SEED = residual()
GROUPS = 2
TRIALS = 30


def grown(kind: type[Search]) -> list[Size]:
    """The trials of two groups; errors are drawn."""
    search, rng = kind(SEED, 1, BOUNDS, population=4), random.Random(1)
    found = []
    for number in range(TRIALS):
        candidate = search.ask(number, 1 + number // GROUPS)
        found.append(Size(candidate.graph))
        search.tell(Observation(number, 100, ((100, rng.uniform(0.1, 0.9)),)))
    return found


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_every_candidate_has_the_size_of_its_round(name: str) -> None:
    seed = Size(SEED)
    sizes = grown(SEARCHES[name])
    assert sizes[0] == seed
    assert all(size.within(BOUNDS, seed, 1 + number // GROUPS) for number, size in enumerate(sizes))
    for size in sizes[GROUPS * BOUNDS.growth_rounds :]:
        assert 8.0 <= size.graph.operations / seed.graph.operations <= 10.0
        assert 4.0 <= size.graph.num_activations / seed.graph.num_activations <= 6.0


def sized(operations: int, parameters: int, activations: int, layers: int) -> Size:
    """The size of a graph with these figures."""
    figures = {"operations": operations, "num_parameters": parameters, "num_activations": activations}
    graph: Any = SimpleNamespace(**figures, nodes=range(layers))
    return Size(graph)


def placed(*figures: int) -> tuple[bool, bool]:
    """Whether a size is within the bounds, and whether it may still grow into them."""
    seed, size = sized(100, 10, 100, 10), sized(*figures)
    return size.within(BOUNDS, seed, 99), size.below(BOUNDS, seed, 99)


def bounds_in(round_: int, least: float, most: float, bounds: BoundsConfig = BOUNDS) -> tuple[float, ...]:
    return tuple(round(each, 4) for each in in_round(least, most, bounds, round_))


def test_a_size_may_be_smaller_on_its_way_but_never_larger(comes_to_what_was_read: ComesTo) -> None:
    """The path of its bounds is geometric, and ends in them, narrow at the end only. Without growth, and
    where nothing is the least, they hold from the first round."""
    comes_to_what_was_read("sizes.txt", globals())


def test_the_typical_network_has_the_grown_size_for_every_random_seed() -> None:
    graph = typical(SEED, BOUNDS)
    assert Size(graph).within(BOUNDS, Size(SEED), BOUNDS.growth_rounds + 1)
    assert graph.key == typical(SEED, BOUNDS).key
    assert typical(SEED, BoundsConfig()) is SEED, "nothing grows"
    assert typical(SEED, BOUNDS, {Ungroup: 1.0}) is SEED, "it has no group that could be merged"


@pytest.mark.parametrize("name", ["digits", "own", "text"])
def test_a_preset_that_grows_has_a_typical_network_of_its_bounds(name: str) -> None:
    """Most walks of `digits` end beside its narrow bounds: of the first five none is in them."""
    config = load_preset(name)
    seed, bounds = starting_graph(config), config.search.bounds
    size = Size(typical(seed, bounds, morphism_mix(config)))
    assert size.within(bounds, Size(seed), bounds.growth_rounds + 1)


def test_bounds_that_a_block_of_layers_oversteps_are_found_before_a_run() -> None:
    """No network has between 30.3 and 30.6 layers."""
    assert too_narrow(SEED, BOUNDS) is None
    assert too_narrow(SEED, BoundsConfig()) is None, "nothing grows"
    narrow = replace(BOUNDS, min_layers=1.01, max_layers=1.02, growth_rounds=1)
    assert too_narrow(SEED, narrow) == 2


def test_bounds_into_which_nothing_can_grow_are_refused(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("refused_bounds.txt", {"replace": replace, "BOUNDS": BOUNDS})
