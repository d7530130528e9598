"""Two workers as a group, told what to do by lists and heard by others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aiperf.journal.run_files import RunFiles
from aiperf.parallel.parallel import make_step
from aiperf.training import worker as worker_module
from aiperf.training.built_trial import InAdvance
from aiperf.wire.layout import Place
from aiperf.wire.messages import Assign, MeasureControl, Release, Steps, ToGroup, Validated
from aiperf.wire.reports import Control, Finished, Ready, Rung, Started
from aiperf.wire.trial import State, Trial
from tests.aiperf.training.test_worker import Told, child_of, own_log, trial, working

PAIR = Place(rank=1, group=(1, 2), device_index=0, ranks_on_host=2)


class Together:
    """The sums of a group whose ranks are threads. It averages no gradients after the first step."""

    ranks = 2

    def __init__(self, rank: int, table: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.table, self.barrier = rank, table, barrier

    def wrap(self, network: nn.Module, optimizer: Any) -> tuple[nn.Module, Any]:
        return network, optimizer

    def step(self, optimizer: Any, scaler: torch.amp.GradScaler, clip: float) -> None:
        make_step(optimizer, scaler, clip)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return self._put(values.detach().clone(), lambda table: torch.stack(table).sum(dim=0))

    def total(self, *numbers: int) -> tuple[int, ...]:
        return self._put(numbers, lambda table: tuple(a + b for a, b in zip(*table)))

    def _put(self, value: Any, combine: Callable[[list[Any]], Any]) -> Any:
        self.table[self.rank] = value
        self.barrier.wait(30)
        found = combine(self.table)
        self.barrier.wait(30)
        return found

    def is_of_another(self, error: Exception) -> bool:
        return isinstance(error, threading.BrokenBarrierError)

    def close(self) -> None:
        self.barrier.abort()


@contextmanager
def pair(directory: Path) -> Iterator[tuple[Told, Told]]:
    table: list[Any] = [None, None]
    barrier = threading.Barrier(2)
    places = PAIR, replace(PAIR, rank=2)
    first, second = (Together(rank, table, barrier) for rank in range(2))
    with working(directory, places[0], first) as leader, working(directory, places[1], second) as other:
        yield leader, other


def both(first: Told, second: Told, *messages: ToGroup) -> None:
    first.tell(*messages)
    second.tell(*messages)


def test_the_leader_speaks_for_its_group_and_each_rank_writes_down_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank speaks for its own device."""
    monkeypatch.setattr(worker_module, "measure_control", lambda *words: (Rung(8, 2, 3, 1.0),))
    with pair(tmp_path) as (leader, other):
        both(leader, other, MeasureControl(1.0), Release(None), Assign(trial(0), 1))
        assert leader.wait(Finished).state is State.COMPLETE
    assert [leader.wait(Control).rank, other.wait(Control).rank] == [1, 2]
    assert [type(message) for message in other.said] == [Ready, Control]
    assert leader.wait(Started).threads == (torch.get_num_threads(),) * 2
    examples = sum(message.block.examples for message in leader.said if isinstance(message, Steps))
    assert examples == 128
    logs = [own_log(tmp_path, rank) for rank in (1, 2)]
    assert [sum(line.get("examples", 0) for line in log) for log in logs] == [64, 64]
    for count in ("correct", "of"):
        closed = [getattr(m.segment.tally, count) for m in leader.said if isinstance(m, Validated)]
        shares = [[line[count] for line in log if count in line] for log in logs]
        assert [a + b for a, b in zip(*shares)] == closed


def test_all_ranks_keep_the_network_that_the_leader_keeps(tmp_path: Path) -> None:
    """Though on the other rank the deadline, which reached it sooner, is over at the validation."""
    with pair(tmp_path) as (leader, other):
        for channel, left in ((leader, None), (other, 0.0)):
            channel.tell(Release(left), Assign(trial(0), 1))
        assert leader.wait(Finished).kept in (0, 1)
        while other.worker.last is None:  # it hears a moment later that the trial is over
            time.sleep(0.01)
        RunFiles(tmp_path).weights(0).unlink()  # so a child's can only come from memory
        both(leader, other, Assign(child_of(1, parent=0), 1))
        assert leader.wait(Finished, 2).state is State.COMPLETE


@pytest.mark.parametrize("phase", ["building", "the first step"])
def test_what_fails_on_one_rank_ends_the_trial_on_all_and_the_group_goes_on(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = worker_module.build

    def build(rank: Any, what: Trial, *others: Any) -> Any:
        attempt = real(rank, what, *others)
        if what.number == 0 and rank.parallel.rank == 1:
            if phase == "building":
                raise torch.OutOfMemoryError("no memory left")
            attempt.batches = iter([])
        return attempt

    monkeypatch.setattr(worker_module, "build", build)
    with pair(tmp_path) as (leader, other):
        both(leader, other, Assign(trial(0), 1), Assign(trial(1), 1))
        told = other.wait(Finished)
        assert leader.wait(Finished).trial == 1
        assert leader.wait(Finished).state is State.COMPLETE
    assert (told.trial, told.state) == (0, State.FAILED)
    assert told.out_of_memory is (phase == "building")
    assert told.reason.startswith("rank 2 on ")


def test_what_fails_in_the_middle_of_a_step_is_told_and_breaks_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = worker_module.build

    def build(rank: Any, *others: Any) -> Any:
        attempt = real(rank, *others)
        if rank.parallel.rank == 1:
            stream = rank.data.train.stream(8, 1, rank.parallel.rank, rank.parallel.ranks)
            attempt.batches = InAdvance(islice(stream, 5), rank.device)
        return attempt

    monkeypatch.setattr(worker_module, "build", build)
    with pair(tmp_path) as (leader, other):
        both(leader, other, Assign(trial(0), 1))
        told = other.wait(Finished)
        assert (told.trial, told.state) == (0, State.FAILED)
        assert "StopIteration" in told.reason
    assert "trial 0 broke the group: StopIteration" in other.broken
    assert "trial 0 broke the group: BrokenBarrierError" in leader.broken
    assert not [message for message in leader.said if isinstance(message, Finished)]
