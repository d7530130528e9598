"""The file system of the run directory, as a model: all transfers share its bandwidth evenly."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container, Generator
from dataclasses import dataclass

import simpy

from aiperf.config import TrainingConfig
from aiperf.files import RunFiles
from aiperf.pretending.assumptions import Storage
from aiperf.pretending.group_model import ELEMENT_BYTES, Learnt


class SharedStorage:
    """Processor sharing: of n transfers each has min(client bandwidth, total bandwidth / n).

    All have the same rate at any moment. So one running sum of what each has been served is enough, and a
    transfer ends when the sum has grown by its size: O(log n) for each, however many there are.
    """

    def __init__(self, env: simpy.Environment, assumed: Storage, clients_a_node: int = 1) -> None:
        """`clients_a_node` share the bandwidth of their node."""
        self._env, self._assumed = env, assumed
        self._client = assumed.client_bytes_per_second / clients_a_node
        self._ends: list[tuple[float, int, simpy.Event]] = []
        self._numbers = itertools.count()
        self._served = self._since = 0.0
        self._plan = 0
        self.kept: dict[int, Learnt] = {}
        """What the weights of a trial are, by its number."""
        self.bytes_written = self.bytes_read = 0

    def write(
        self, trial: int, learnt: Learnt, training: TrainingConfig
    ) -> Generator[simpy.Event, object, None]:
        content = kept_bytes(learnt.graph.num_parameters, training)
        self.bytes_written += content
        yield self._env.timeout(self._assumed.open_seconds)
        yield self.transfer(content)
        self.kept[trial] = learnt

    def read(self, trial: int, training: TrainingConfig) -> Generator[simpy.Event, object, Learnt | None]:
        """None where nothing is kept of that trial. Ranks of one node read once: the node keeps the pages."""
        learnt = self.kept.get(trial)
        yield self._env.timeout(self._assumed.open_seconds)
        if learnt is not None:
            content = kept_bytes(learnt.graph.num_parameters, training)
            self.bytes_read += content
            yield self.transfer(content)
        return learnt

    def transfer(self, content: float) -> simpy.Event:
        """Over when so many bytes are through."""
        self._serve()
        done = self._env.event()
        heapq.heappush(self._ends, (self._served + content, next(self._numbers), done))
        self._await_next()
        return done

    def _rate(self) -> float:
        """Bandwidth of each transfer, in bytes per second."""
        return min(self._client, self._assumed.bytes_per_second / len(self._ends))

    def _serve(self) -> None:
        if self._ends:
            self._served += self._rate() * (self._env.now - self._since)
        self._since = self._env.now

    def _await_next(self) -> None:
        self._plan += 1
        if self._ends:
            seconds = max(0.0, self._ends[0][0] - self._served) / self._rate()
            event = self._env.timeout(seconds, self._plan)
            assert event.callbacks is not None
            event.callbacks.append(self._end)

    def _end(self, event: simpy.Event) -> None:
        if event.value != self._plan:  # another transfer began or ended meanwhile
            return
        self._since, self._served = self._env.now, self._ends[0][0]
        while self._ends and self._ends[0][0] <= self._served:
            heapq.heappop(self._ends)[2].succeed()
        self._await_next()


@dataclass(frozen=True)
class SimulatedFiles(RunFiles):
    """A run directory whose weights lie in the model; the journal in it is a real file."""

    storage: SharedStorage

    def drop_weights_but(self, needed: Container[int]) -> None:
        for trial in [trial for trial in self.storage.kept if trial not in needed]:
            del self.storage.kept[trial]


def kept_bytes(parameters: int, training: TrainingConfig) -> int:
    return training.numbers_a_weight * ELEMENT_BYTES * parameters
