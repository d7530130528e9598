"""The TPE sampler of Optuna (Akiba et al., "Optuna", KDD 2019), in this process."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from nas.tuning.space import SPACE, Dimension, Point
from nas.tuning.tuner import Tuner


class OptunaTuner(Tuner):
    """Running trials are counted among the bad ones: Optuna's constant liar."""

    library = "optuna"

    def __init__(self, random_seed: int) -> None:
        super().__init__(random_seed)
        import optuna

        self._optuna: Any = optuna
        # The study is ours alone: it lives in memory, and its own log lines say what the journal says.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction="minimize")
        self._space = {name: _distribution(optuna, each) for name, each in SPACE.items()}
        self._places: dict[int, int] = {}

    def _proposal(self, random_seed: int) -> Point:
        optuna = self._optuna
        sampler = optuna.samplers.TPESampler(seed=random_seed, constant_liar=True)
        trial = optuna.trial.create_trial(state=optuna.trial.TrialState.WAITING)
        return Point(
            **{
                name: sampler.sample_independent(self._study, trial, name, distribution)
                for name, distribution in self._space.items()
            }
        )

    def _began(self, number: int, point: Point) -> None:
        self._places[number] = len(self._study.get_trials(deepcopy=False))
        self._study.add_trial(self._trial(point, self._optuna.trial.TrialState.RUNNING))

    def _ended(self, number: int, point: Point, loss: float) -> None:
        began = self._study.get_trials(deepcopy=False)[self._places[number]]
        if began.params == asdict(point):
            self._study.tell(self._places.pop(number), loss)
        else:  # changed since, and Optuna lets nobody change a trial's parameters
            self._forgotten(number)
            self._study.add_trial(self._trial(point, self._optuna.trial.TrialState.COMPLETE, loss))

    def _forgotten(self, number: int) -> None:
        self._study.tell(self._places.pop(number), state=self._optuna.trial.TrialState.FAIL)

    def _trial(self, point: Point, state: Any, loss: float | None = None) -> Any:
        return self._optuna.trial.create_trial(
            params=asdict(point), distributions=self._space, state=state, value=loss
        )


def _distribution(optuna: Any, dimension: Dimension) -> Any:
    if dimension.choices:
        return optuna.distributions.CategoricalDistribution(dimension.choices)
    return optuna.distributions.FloatDistribution(dimension.low, dimension.high, log=dimension.log)
