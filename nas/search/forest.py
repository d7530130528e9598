"""A forest of random regression trees that learns one observation after the other, and forgets none.

The trees are scikit-learn's (Geurts et al., "Extremely randomized trees", Machine Learning 63, 2006). A
tree is regrown now and then, on all observations; in between, a new one is added to the leaf it falls
into. So every observation counts in every tree at once, and no proposal waits for a whole forest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TREES = 16
LEAST_IN_LEAF = 3
GROWTH = 0.1  # of the observations: so much it may grow before the last tree is regrown


class Forest:
    """Follows from the order of its observations, and from its random seed."""

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
        tree, those of all that was told.
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
        # A whole forest's worth of trees while what was told grows by GROWTH.
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
