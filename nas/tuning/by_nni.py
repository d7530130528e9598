"""The TPE tuner of NNI, in this process.

NNI: Microsoft, version 3.0 of 2023, its last. TPE: Bergstra et al., "Algorithms for Hyper-Parameter
Optimization", NeurIPS 2011. Its `suggest` is called, and not the tuner around it: that one draws from a
generator that cannot be set back, and tells nobody's trials but its own as running.
"""

from __future__ import annotations

from math import fsum
from typing import Any

from nas.tuning.space import Dimension, Space
from nas.tuning.tuner import Tuner, Values

STARTUP = 10
"""Trials that end before proposals cease to be uniform; NNI's default of 20 exceeds a short run's trials."""


class NniTuner(Tuner):
    """Running trials are taken to end with the mean of all losses: the constant liar "mean" of NNI
    (Ginsbourger et al., "Kriging is well-suited to parallelize optimization", 2010)."""

    library = "nni"

    def __init__(self, random_seed: int, space: Space) -> None:
        super().__init__(random_seed, space)
        from nni.algorithms.hpo.tpe_tuner import Record, TpeArguments, suggest
        from nni.common.hpo_utils import deformat_parameters, format_parameters, format_search_space

        self._suggest, self._record = suggest, Record
        self._format, self._deformat = format_parameters, deformat_parameters
        self._arguments = TpeArguments(constant_liar_type="mean", n_startup_jobs=STARTUP)
        self._formatted: Any = format_search_space({name: _spec(each) for name, each in space.items()})
        self._told: dict[tuple[str, ...], list[Any]] = {key: [] for key in self._formatted}
        self._losses: list[float] = []
        self._unfinished: dict[int, dict[tuple[str, ...], float]] = {}

    def _proposal(self, random_seed: int) -> Values:
        import numpy as np

        lie = fsum(self._losses) / len(self._losses) if self._losses else 0.0
        history = {
            key: records + [self._record(values[key], lie) for values in self._unfinished.values()]
            for key, records in self._told.items()
        }
        found = self._suggest(self._arguments, np.random.default_rng(random_seed), self._formatted, history)
        proposed: Values = self._deformat(found, self._formatted)
        return proposed

    def _began(self, number: int, values: Values) -> None:
        self._unfinished[number] = self._format(dict(values), self._formatted)

    def _ended(self, number: int, values: Values, loss: float) -> None:
        del self._unfinished[number]
        self._losses.append(loss)
        for key, value in self._format(dict(values), self._formatted).items():
            self._told[key].append(self._record(value, loss))

    def _forgotten(self, number: int) -> None:
        del self._unfinished[number]


def _spec(dimension: Dimension) -> dict[str, Any]:
    """A dimension as NNI describes it."""
    if dimension.choices:
        return {"_type": "choice", "_value": list(dimension.choices)}
    kind = "loguniform" if dimension.log else "uniform"
    return {"_type": kind, "_value": [dimension.low, dimension.high]}
