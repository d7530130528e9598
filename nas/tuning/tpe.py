"""The tree-structured Parzen estimator (TPE) of NNI and that of Optuna, both in this process.

TPE: Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011. NNI: Microsoft, version 3.0
of 2023, its last. Optuna: Akiba et al., "Optuna", KDD 2019.
"""

from __future__ import annotations

from math import fsum
from typing import Any

from nas.tuning.space import Dimension, Space
from nas.tuning.tuner import Tuner, Values

STARTUP = 10
"""Number of trials that end before proposals cease to be uniform. NNI's default is 20, which is more trials
than a short run has."""


class NniTuner(Tuner):
    """TPE of NNI. Running trials are taken to end with the mean of all losses: its constant liar "mean"
    (Ginsbourger et al., "Kriging is well-suited to parallelize optimization", 2010).

    NNI's `suggest` is called, and not the tuner around it: that one draws from a generator that cannot be set
    back, and tells nobody's trials but its own as running.
    """

    library = "nni"

    def __init__(self, random_seed: int, space: Space) -> None:
        super().__init__(random_seed, space)
        from nni.algorithms.hpo.tpe_tuner import Record, TpeArguments, suggest
        from nni.common.hpo_utils import deformat_parameters, format_parameters, format_search_space

        self._suggest, self._record = suggest, Record
        self._format, self._deformat = format_parameters, deformat_parameters
        self._arguments = TpeArguments(constant_liar_type="mean", n_startup_jobs=STARTUP)
        self._formatted: Any = format_search_space(
            {name: _nni_dimension(each) for name, each in space.items()}
        )
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


def _nni_dimension(dimension: Dimension) -> dict[str, Any]:
    """A dimension as NNI describes it."""
    if dimension.choices:
        return {"_type": "choice", "_value": list(dimension.choices)}
    kind = "loguniform" if dimension.log else "uniform"
    return {"_type": kind, "_value": [dimension.low, dimension.high]}


class OptunaTuner(Tuner):
    """TPE of Optuna. Running trials are counted among the bad ones: its constant liar."""

    library = "optuna"

    def __init__(self, random_seed: int, space: Space) -> None:
        super().__init__(random_seed, space)
        import optuna

        self._optuna: Any = optuna
        # The study is ours alone: it lives in memory, and its own log lines say what the journal says.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction="minimize")
        self._distributions = {name: _optuna_dimension(optuna, each) for name, each in space.items()}
        self._places: dict[int, int] = {}

    def _proposal(self, random_seed: int) -> Values:
        optuna = self._optuna
        sampler = optuna.samplers.TPESampler(seed=random_seed, constant_liar=True)
        trial = optuna.trial.create_trial(state=optuna.trial.TrialState.WAITING)
        return {
            name: sampler.sample_independent(self._study, trial, name, distribution)
            for name, distribution in self._distributions.items()
        }

    def _began(self, number: int, values: Values) -> None:
        self._places[number] = len(self._study.get_trials(deepcopy=False))
        self._study.add_trial(self._trial(values, self._optuna.trial.TrialState.RUNNING))

    def _ended(self, number: int, values: Values, loss: float) -> None:
        began = self._study.get_trials(deepcopy=False)[self._places[number]]
        if began.params == values:
            self._study.tell(self._places.pop(number), loss)
        else:  # changed since, and Optuna lets nobody change a trial's parameters
            self._forgotten(number)
            self._study.add_trial(self._trial(values, self._optuna.trial.TrialState.COMPLETE, loss))

    def _forgotten(self, number: int) -> None:
        self._study.tell(self._places.pop(number), state=self._optuna.trial.TrialState.FAIL)

    def _trial(self, values: Values, state: Any, loss: float | None = None) -> Any:
        return self._optuna.trial.create_trial(
            params=dict(values), distributions=self._distributions, state=state, value=loss
        )


def _optuna_dimension(optuna: Any, dimension: Dimension) -> Any:
    """A dimension as Optuna describes it."""
    if dimension.choices:
        return optuna.distributions.CategoricalDistribution(dimension.choices)
    return optuna.distributions.FloatDistribution(dimension.low, dimension.high, log=dimension.log)
