"""Trials that were dispatched and have not ended, and which group has them."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from aiperf.journal.events import Dispatched
from aiperf.trial import Trial
from nas.graph import Graph


@dataclass(frozen=True)
class OpenTrial:
    """A trial that was dispatched and has not ended."""

    job: Dispatched
    graph: Graph

    @classmethod
    def first(cls, trial: Trial, graph: Graph, group: int) -> OpenTrial:
        """The first attempt, by that group."""
        job = Dispatched(
            trial=trial,
            attempt=1,
            group=group,
            graph_key=graph.key,
            forward=astuple(graph.cost.forward),
            backward=astuple(graph.cost.backward),
            evaluate=astuple(graph.cost.evaluate),
            parameters=graph.num_parameters,
        )
        return cls(job, graph)


class InFlight:
    """By number and by group, each in the order of dispatch."""

    def __init__(self) -> None:
        self._each: dict[int, OpenTrial] = {}
        self._of_group: dict[int, dict[int, None]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._each

    def numbers(self, group: int | None = None) -> list[int]:
        """Of a group, or of all."""
        return list(self._each if group is None else self._of_group.get(group, ()))

    def put(self, trial: OpenTrial) -> None:
        number = trial.job.trial.number
        self._each[number] = trial
        self._of_group.setdefault(trial.job.group, {})[number] = None

    def take(self, number: int) -> OpenTrial:
        taken = self._each.pop(number)
        del self._of_group[taken.job.group][number]
        return taken
