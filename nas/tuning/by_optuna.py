"""The TPE sampler of Optuna (Akiba et al., "Optuna", KDD 2019), in this process."""

from __future__ import annotations

from typing import Any

from nas.tuning.space import Dimension, Space
from nas.tuning.tuner import Tuner, Values


class OptunaTuner(Tuner):
    """Running trials are counted among the bad ones: Optuna's constant liar."""

    library = "optuna"

    def __init__(self, random_seed: int, space: Space) -> None:
        super().__init__(random_seed, space)
        import optuna

        self._optuna: Any = optuna
        # The study is ours alone: it lives in memory, and its own log lines say what the journal says.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction="minimize")
        self._distributions = {name: _distribution(optuna, each) for name, each in space.items()}
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


def _distribution(optuna: Any, dimension: Dimension) -> Any:
    """A dimension as Optuna describes it."""
    if dimension.choices:
        return optuna.distributions.CategoricalDistribution(dimension.choices)
    return optuna.distributions.FloatDistribution(dimension.low, dimension.high, log=dimension.log)
