"""Bayesian search: of the children that could be, the one of greatest expected improvement."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import log
from typing import Any

import numpy as np

from nas.frozen import frozen
from nas.graph import INPUT, Graph
from nas.layers import Add, BatchNorm, Concat, Conv2d, Dense, DepthwiseConv2d, Dropout, Gate, MaxPool, ReLU
from nas.morphisms import MIX, Morphism
from nas.ops import OPS
from nas.search.bounds import Bounds
from nas.search.search import Search
from nas.search.trials import Candidate, Living, Observation

COUNTED = (Conv2d, BatchNorm, ReLU, Add, Concat, Gate, Dense, Dropout, MaxPool)
NUM_FEATURES = 13 + len(COUNTED)
RIVALS = 25  # most parents that are considered for one proposal
CHILDREN = 2  # of each
LINEAGE = 4  # features beside those of the graph
UNTRAINED = 1.0  # the error of what a trial without a parent starts from
TREES = 16
LEAST_IN_LEAF = 3
GROWTH = 0.1  # of the observations: so much it may grow before the last tree is regrown


@frozen
class _Seen:
    """A child that was drawn and not proposed yet."""

    candidate: Candidate
    features: np.ndarray


class Bayesian(Search):
    """A forest learns the errors of completed trials from features of their architecture, of their
    lineage and of their length; the acquisition is the expected improvement on the best error (Jones et
    al., "Efficient global optimization of expensive black-box functions", 1998).

    A child carries its parent's weights, so that what its lineage was trained for says most of its error.
    """

    libraries = ("scikit-learn",)

    def __init__(
        self,
        seed: Graph,
        random_seed: int,
        bounds: Bounds,
        population: int,
        morphisms: int = 1,
        mix: Mapping[type[Morphism], float] = MIX,
    ) -> None:
        super().__init__(seed, random_seed, bounds, population, morphisms, mix)
        self.forest = Forest(NUM_FEATURES + LINEAGE, random_seed)
        self._features: dict[int, np.ndarray] = {}  # of those in flight
        self._trained: dict[int, float] = {}  # examples, of the whole lineage, by living trial
        self._drawn: dict[int, list[_Seen]] = {}
        self._schedule, self._best = 0, math.inf

    def child_of_living(self, rng: random.Random, round_: int) -> Candidate | None:
        """The one of all children that are ready with the greatest expected improvement."""
        living = list(self._living.values())
        rivals = rng.sample(living, min(RIVALS, len(living)))
        seen = [child for rival in rivals for child in self._seen_of(rival, rng, round_)]
        if not seen:
            return super().child_of_living(rng, round_)
        rows = np.stack([child.features for child in seen])
        rows[:, -1] = math.log1p(self._schedule)
        improvement = expected_improvement(*self.forest.predict(rows), self._best)
        return seen[int(np.argmax(improvement))].candidate

    def choose(self, rng: random.Random, living: Sequence[Living]) -> Living:
        """Any parent, for the case that none had a child ready."""
        return rng.choice(living)

    def tell(self, observation: Observation) -> None:
        super().tell(observation)
        row = self._features.pop(observation.number)
        row[-1] = math.log1p(observation.schedule)
        error = min(error for _, error in observation.errors)
        self.forest.tell(row, error)
        self._schedule, self._best = observation.schedule, min(self._best, error)
        # The row holds what the parent's lineage was trained for.
        self._trained[observation.number] = math.expm1(row[-2]) + observation.errors[-1][0]
        for table in (self._trained, self._drawn):
            for dead in table.keys() - self._living.keys():
                del table[dead]

    def drop(self, number: int) -> None:
        super().drop(number)
        self._features.pop(number, None)

    def _register(self, number: int, candidate: Candidate) -> None:
        super()._register(number, candidate)
        self._features[number] = self._row(candidate)

    def _row(self, candidate: Candidate) -> np.ndarray:
        """Features of the graph; the parent's error; morphisms; examples of the lineage; of the trial."""
        if candidate.parent is None:
            lineage = (UNTRAINED, len(candidate.morphisms), 0.0, 0.0)
        else:
            parent = self._living[candidate.parent].observation
            error = min(error for _, error in parent.errors)
            trained = math.log1p(self._trained[candidate.parent])
            lineage = (error, len(candidate.morphisms), trained, 0.0)
        return np.concatenate([features(candidate.graph), np.array(lineage, np.float32)])

    def _seen_of(self, parent: Living, rng: random.Random, round_: int) -> Iterator[_Seen]:
        """The first of its children that are not known. What is drawn waits until it is proposed, but for one
        that grew for this round."""
        if self.grows:
            grown = islice(self.children_of(parent, rng, round_), CHILDREN)
            yield from (_Seen(child, self._row(child)) for child in grown)
            return
        number = parent.observation.number
        drawn = [child for child in self._drawn.get(number, []) if self._is_new(child.candidate.graph)]
        while len(drawn) < CHILDREN and (child := next(parent.children, None)) is not None:
            if self._is_new(child.graph):
                drawn.append(_Seen(child, self._row(child)))
        self._drawn[number] = drawn
        yield from drawn


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """Expected improvement on the error `best` by errors that are normally distributed; each array is
    (number,)."""
    deviation = np.maximum(deviation, 1e-9)
    z = (best - mean) / deviation
    below = np.array([0.5 * math.erfc(-each / math.sqrt(2)) for each in z])
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return np.asarray(deviation * (z * below + density))


def features(graph: Graph) -> np.ndarray:
    """An architecture as float32 of (NUM_FEATURES,): sizes, depth, widths and kernels of the convolutions,
    layers by kind."""
    convolutions = [
        found for node in graph.nodes if (found := node.layer.convolution(*graph.reads(node))) is not None
    ]
    widths = [log(layer.channels) for layer in convolutions] or [0.0]
    kernels = [max(layer.kernels) for layer in convolutions] or [0]
    grouped = sum(layer.groups > 1 for layer in convolutions)
    strides = sum(max(layer.strides) > 1 for layer in convolutions)
    third = max(1, len(widths) // 3)
    kinds = Counter(type(node.layer) for node in graph.nodes)
    return np.array(
        [
            log(graph.cost.train.price(OPS)),
            log(graph.cost.evaluate.price(OPS)),
            log(max(1, graph.num_parameters)),
            log(graph.num_activations),
            _depth(graph),
            len(graph.nodes),
            _mean(widths[:third]),
            _mean(widths[third:-third] or widths),
            _mean(widths[-third:]),
            max(widths),
            _mean(kernels),
            grouped,
            strides,
            *(kinds[kind] for kind in COUNTED),
        ],
        dtype=np.float32,
    )


def _depth(graph: Graph) -> int:
    """Convolutions and dense layers on the longest way from the image to the logits."""
    depth = {INPUT: 0}
    for node in graph.nodes:
        weighted = isinstance(node.layer, (Conv2d, DepthwiseConv2d, Dense))
        depth[node.name] = max(depth[name] for name in node.inputs) + weighted
    return depth[graph.nodes[-1].name]


def _mean(values: list[float] | list[int]) -> float:
    return sum(values) / len(values)


class Forest:
    """A forest of random regression trees that learns one observation after the other, and forgets none. It
    follows from the order of its observations, and from its random seed.

    The trees are scikit-learn's (Geurts et al., "Extremely randomized trees", Machine Learning 63, 2006). A
    tree is regrown now and then, on all observations; in between, a new one is added to the leaf it falls
    into. So every observation counts in every tree at once, and no proposal waits for a whole forest.
    """

    def __init__(self, num_features: int, random_seed: int) -> None:
        """Raises ModuleNotFoundError where scikit-learn is not installed."""
        from sklearn.tree import ExtraTreeRegressor

        self._new_tree: Any = ExtraTreeRegressor
        self._random_seed = random_seed
        self._features = np.empty((16, num_features), np.float32)
        self._values = np.empty(16)
        self.num_told = 0
        self._trees: list[_Tree] = []
        self._num_grown = 0
        self._next_growth = 2 * LEAST_IN_LEAF

    def tell(self, features: np.ndarray, value: float) -> None:
        """Adds an observation. Raises ValueError for one that is not a number: no tree can hold it, and it
        must not be dropped."""
        if not (np.isfinite(features).all() and np.isfinite(value)):
            raise ValueError(f"an observation that is not a number: {value} at {features}")
        if self.num_told == len(self._values):
            self._features = np.concatenate([self._features, np.empty_like(self._features)])
            self._values = np.concatenate([self._values, np.empty_like(self._values)])
        self._features[self.num_told], self._values[self.num_told] = features, value
        self.num_told += 1
        for tree in self._trees:
            tree.add(features[None].astype(np.float32), np.array([value]))
        while self.num_told >= self._next_growth:
            self._grow()

    def predict(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the values at (number, features), each (number,).

        The variance is that between the trees and that within their leaves (Hutter et al., "Sequential
        model-based optimization for general algorithm configuration", LION 2011). Before there is a
        tree, those of all observations.
        """
        if not self._trees:
            told = self._values[: self.num_told] if self.num_told else np.zeros(1)
            return np.full(len(features), told.mean()), np.full(len(features), told.std() + 1.0)
        seen = [tree.predict(features.astype(np.float32)) for tree in self._trees]
        means = np.stack([mean for mean, _ in seen])
        within = np.mean([variance for _, variance in seen], axis=0)
        return means.mean(axis=0), np.sqrt(means.var(axis=0) + within)

    def _grow(self) -> None:
        """The oldest tree anew, or one more."""
        seed = (self._random_seed + self._num_grown) % (1 << 32)
        fresh = self._new_tree(min_samples_leaf=LEAST_IN_LEAF, random_state=seed)
        told = slice(self.num_told)
        tree = _Tree(fresh.fit(self._features[told], self._values[told]))
        tree.add(self._features[told], self._values[told])
        if len(self._trees) == TREES:
            self._trees.pop(0)
        self._trees.append(tree)
        self._num_grown += 1
        # A whole forest's worth of trees while the observations grow by GROWTH.
        pause = int(GROWTH * self.num_told / TREES) if len(self._trees) == TREES else 0
        self._next_growth += max(1, pause) if self._num_grown >= TREES else 0


class _Tree:
    """A tree's way to its leaves, and what lies in them."""

    def __init__(self, grown: Any) -> None:
        self._grown = grown
        nodes = grown.tree_.node_count
        self.count, self._sum, self._squares = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)

    def add(self, features: np.ndarray, values: np.ndarray) -> None:
        leaves = self._grown.apply(features, check_input=False)
        np.add.at(self.count, leaves, 1)
        np.add.at(self._sum, leaves, values)
        np.add.at(self._squares, leaves, values**2)

    def predict(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        leaves = self._grown.apply(features, check_input=False)
        mean = self._sum[leaves] / self.count[leaves]
        return mean, np.maximum(0.0, self._squares[leaves] / self.count[leaves] - mean**2)
