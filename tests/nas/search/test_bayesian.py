"""The Bayesian search: what its forest counts, what it learns, how it goes on, how long a proposal takes."""

from __future__ import annotations

import math
import random
from statistics import median
from time import process_time

import numpy as np
import pytest

from aiperf.config import BoundsConfig
from nas.graph import Graph
from nas.search import Bayesian, Observation
from nas.search.bayesian import GROWTH, NUM_FEATURES, TREES, Forest, expected_improvement, features
from nas.seeds import residual, resnet50

SEED = residual()
BOUNDS = BoundsConfig(max_operations=64.0, max_parameters=64.0, max_activations=64.0)


def observation(number: int, graph: Graph) -> Observation:
    error = 0.30 - 0.04 * math.log(graph.operations / SEED.operations)
    return Observation(number, 1000, ((500, 0.5), (1000, min(max(error, 0.0), 1.0))))


def grown(search: Bayesian, num: int) -> None:
    """One in five is dropped; three are in flight."""
    flying: list[tuple[int, Graph]] = []
    for number in range(num):
        flying.append((number, search.ask(number, 1).graph))
        if len(flying) > 3:
            ended, graph = flying.pop(0)
            if ended % 5 == 4:
                search.drop(ended)
            else:
                search.tell(observation(ended, graph))
    for ended, graph in flying:
        search.tell(observation(ended, graph))


def counted(forest: Forest) -> list[int]:
    """Number of observations in the leaves of each tree."""
    return [int(tree.count.sum()) for tree in forest._trees]


def test_no_tree_is_older_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 100 observations all of four trees are younger than a growth by GROWTH and the pauses between."""
    monkeypatch.setattr("nas.search.bayesian.TREES", 4)
    forest, rng = Forest(2, 1), np.random.default_rng(1)
    grown = []  # the trees themselves: the number of one that is gone may be another's
    for _ in range(100):
        forest.tell(rng.normal(size=2), float(rng.normal()))
        grown.append(list(forest._trees))
    before = grown[-int(100 * GROWTH * 1.5)]
    assert not any(tree is old for tree in grown[-1] for old in before)


def test_the_forest_learns() -> None:
    rng = np.random.default_rng(1)
    forest = Forest(4, 1)
    for row in rng.uniform(size=(300, 4)):
        forest.tell(row, float(row[0] + 0.1 * rng.normal()))
    asked = rng.uniform(size=(200, 4))
    mean, deviation = forest.predict(asked)
    assert np.abs(mean - asked[:, 0]).mean() < 0.07
    assert (deviation > 0).all()


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_number_is_refused_and_not_counted(wrong: float) -> None:
    forest = Forest(2, 1)
    with pytest.raises(ValueError, match="not a number"):
        forest.tell(np.zeros(2), wrong)
    with pytest.raises(ValueError, match="not a number"):
        forest.tell(np.array([0.0, wrong]), 1.0)
    assert forest.num_told == 0


def test_equal_observations_only() -> None:
    forest = Forest(3, 1)
    for _ in range(100):
        forest.tell(np.ones(3), 0.5)
    mean, deviation = forest.predict(np.ones((2, 3)))
    assert mean == pytest.approx(0.5)
    assert deviation == pytest.approx(0.0, abs=1e-6)
    assert counted(forest) == [100] * TREES


def test_a_history_of_failures_only() -> None:
    search = Bayesian(SEED, 1, BOUNDS, population=10)
    keys = set()
    for number in range(60):
        keys.add(search.ask(number, 1).graph.key)
        search.drop(number)
    assert len(keys) == 60
    assert search.forest.num_told == 0


def test_it_finds_what_grows_where_growth_pays_and_drops_no_observation() -> None:
    search = Bayesian(SEED, 1, BOUNDS, population=10)
    grown(search, 80)
    told = 80 - len(range(4, 77, 5))
    assert search.forest.num_told == told
    assert counted(search.forest) == [told] * TREES
    sizes = [living.trial.graph.operations / SEED.operations for living in search._living.values()]
    assert median(sizes) > 8


def test_expected_improvement() -> None:
    sure = expected_improvement(np.array([0.2, 0.4]), np.zeros(2), 0.3)
    assert sure == pytest.approx([0.1, 0.0])
    # Of a normal distribution about the best: its deviation over the root of 2π.
    assert expected_improvement(np.array([0.3]), np.array([0.1]), 0.3) == pytest.approx(0.1 / math.tau**0.5)


def test_features_are_numbers_that_tell_architectures_apart() -> None:
    rows = [features(graph) for graph in (SEED, resnet50())]
    assert all(row.shape == (NUM_FEATURES,) and np.isfinite(row).all() for row in rows)
    assert (rows[0] != rows[1]).sum() > 10


@pytest.mark.slow
def test_a_proposal_at_ten_thousand_trials_takes_50_ms_at_the_most() -> None:
    """CPU time of `ask` and `tell`, for children of ResNet-50; the median, and 95 in 100."""
    seed = resnet50()
    search = Bayesian(seed, 1, BoundsConfig(), population=100)
    rng = random.Random(1)
    row = features(seed)
    for _ in range(10_000):
        told = np.concatenate([row * rng.uniform(0.9, 1.1), [rng.random(), 1, rng.random(), 0]])
        search.forest.tell(told.astype(np.float32), rng.random())
    seconds = []
    for number in range(300):
        began = process_time()
        graph = search.ask(number, 1).graph
        error = 0.3 - 0.05 * math.log(graph.operations / seed.operations) + rng.gauss(0, 0.01)
        search.tell(Observation(number, 1000, ((1000, error),)))
        seconds.append(process_time() - began)
    assert counted(search.forest) == [10_300] * TREES
    late = sorted(seconds[100:])
    assert median(late) <= 0.050
    assert late[int(0.95 * len(late))] <= 0.100, late[-10:]
