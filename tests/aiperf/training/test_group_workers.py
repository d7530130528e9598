"""Workers of groups, told what to do by lists and heard by others: two that are threads; and on which device
and queue each thread submits its work, and where DDP is made."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aiperf.config import TrainingConfig
from aiperf.data import load
from aiperf.device.device import PREPARING, TRAINING, Aside
from aiperf.engines.agreement import ELSEWHERE
from aiperf.engines.graphed import WARM_UP_WRAPPED
from aiperf.journal.run_files import RunFiles
from aiperf.parallel.parallel import Solo, make_step
from aiperf.training import built_trial
from aiperf.training import worker as worker_module
from aiperf.training.built_trial import BuiltTrial, InAdvance, Rank, build
from aiperf.training.kept_network import Kept
from aiperf.wire.layout import Place
from aiperf.wire.messages import Assign, MeasureControl, Release, Steps, ToGroup, Validated
from aiperf.wire.reports import NEAR, Control, Fallback, Finished, Ready, Rung, Started
from aiperf.wire.trial import State, Trial
from nas.weights import initial
from tests.aiperf.engines.recording import Again, Averaging, Recording, recording
from tests.aiperf.training.test_worker import CONFIG, SEED, Told, child_of, own_log, trial, working

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


def test_an_engine_that_one_rank_cannot_use_is_used_by_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pair(tmp_path) as (leader, other):
        refused = {id(other.worker.device): "no compiler"}
        monkeypatch.setattr(worker_module, "why_not", lambda *of: refused.get(id(of[2]), ""))
        both(leader, other, Assign(trial(0), 1))
        assert leader.wait(Finished).state is State.COMPLETE
    assert (leader.wait(Started).engine, leader.wait(Started).chosen) == ("eager", ELSEWHERE)


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


@pytest.mark.parametrize("step", ["a first", "a later"])
def test_what_fails_in_the_middle_of_a_step_is_told_and_breaks_the_group(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first step has collectives in its synchronised batch norms, in which the other rank waits."""
    real = worker_module.build
    monkeypatch.setattr(TrainingConfig, "normalises_over", lambda self, ranks: step == "a first")

    def build(rank: Any, *others: Any) -> Any:
        attempt = real(rank, *others)
        if rank.parallel.rank == 1:
            stream = rank.data.train.stream(8, 1, rank.parallel.rank, rank.parallel.ranks)
            attempt.batches = InAdvance(islice(stream, 1 if step == "a first" else 5), rank.device)
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


# Devices and queues

DEFAULT = "default"


class Here(threading.local):
    """What torch keeps for each thread: a new one begins with device 0 and the default stream."""

    device = 0
    queue = DEFAULT


here = Here()


@dataclass
class Named(Aside):
    """A stream with the name of its purpose."""

    name: str
    done: list[str]
    joined: list[int]

    @contextmanager
    def begin(self) -> Iterator[None]:  # type: ignore[override]
        before, here.queue = here.queue, self.name
        try:
            yield
        finally:
            here.queue = before

    def join(self, *results: torch.Tensor) -> None:
        self.joined.append(len(results))

    def finish(self) -> None:
        self.done.append(here.queue)


@dataclass
class OnStream(Again):
    """A capture that fails as pytorch/pytorch#180090 says: the nodes that DDP keeps belong to the stream on
    which it was made, and the default stream cannot become part of a capture."""

    made_on: list[str] = field(default_factory=list)

    def record(self, work: Callable[[], None]) -> None:
        if any(queue != TRAINING for queue in self.made_on):
            raise RuntimeError("a node holds a stale reference to a stream that is not captured")
        super().record(work)


@dataclass(frozen=True)
class Streams(Recording):
    """The second device of a host, with streams."""

    made_on: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    joined: list[int] = field(default_factory=list)

    def enter_thread(self) -> None:
        here.device = self.index

    def aside(self, purpose: str) -> Named:
        return Named(purpose, self.finished, self.joined if purpose == PREPARING else [])

    def capture(self) -> OnStream:
        self.captured.append(OnStream(made_on=self.made_on))
        return self.captured[-1]  # type: ignore[return-value]


@dataclass
class Wrapping(Solo):
    """A group whose backward pass averages gradients, as with DDP."""

    made_on: list[str]
    wraps_network = True

    def wrap(
        self, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        self.made_on.append(here.queue)
        return Averaging(network), optimizer


@dataclass
class Breaking(Wrapping):
    """A group of two that breaks after its steps were captured."""

    captured: list[Again]
    ranks = 2
    steps = 0
    when_left: list[str] = field(default_factory=list)
    """What was done last with each capture when the group was left."""

    def step(self, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, clip: float) -> None:
        self.steps += 1
        if self.steps > WARM_UP_WRAPPED + 2:
            raise RuntimeError("NCCL error: remote process exited")
        super().step(optimizer, scaler, clip)

    def close(self) -> None:
        self.when_left += [capture.done[-1] for capture in self.captured]


def test_a_group_that_breaks_is_left_without_a_graph_and_a_rank_stays_near_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving the group would hang while a graph is alive, whoever refers to it: pytorch/pytorch#115388."""
    monkeypatch.setattr(worker_module, "stay_near", {"0000:c1:00.0": "0-7"}.get)
    monkeypatch.setattr(Recording, "pci_address", "0000:c1:00.0")
    device = recording()
    group = Breaking([], device.captured)
    with working(tmp_path, parallel=group, device=device, step="graphed") as channel:
        channel.tell(Release(None), Assign(trial(0), 1))
        channel.wait(Finished)
    assert "broke the group" in channel.broken
    assert group.when_left == ["free"]
    ready = channel.said[0]
    assert isinstance(ready, Ready)
    assert ready.settings[NEAR] == "0-7"


@pytest.mark.parametrize(("wraps", "called"), [(True, "natively"), (False, "by sums")])
def test_batch_norm_over_a_group_is_torchs_own_on_cuda_under_ddp(
    monkeypatch: pytest.MonkeyPatch, wraps: bool, called: str
) -> None:
    """Here of a processor that says it is CUDA."""
    seen = list[str]()
    monkeypatch.setattr(Recording, "kind", "cuda")
    monkeypatch.setattr(Recording, "torch", torch.device("cpu"))
    monkeypatch.setattr(built_trial, "synchronise_natively", lambda network: seen.append("natively"))
    monkeypatch.setattr(built_trial, "synchronise", lambda network, total: seen.append("by sums"))
    group = Wrapping([])
    group.wraps_network, group.ranks = wraps, 2
    training = replace(CONFIG.training, batch_norm="synchronised")
    data = load(CONFIG.data, torch.device("cpu"), 0)
    rank = Rank(recording(), data, training, group)
    built_trial.build(rank, trial(0), 1, Kept(SEED, initial(SEED, 0), {}))
    assert seen == [called]


def test_ddp_is_made_where_it_is_captured_and_the_next_trial_is_prepared_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = list[tuple[int, str]]()

    def watched(*what: Any) -> BuiltTrial:
        prepared.append((here.device, here.queue))
        return build(*what)

    monkeypatch.setattr(worker_module, "build", watched)
    device = replace(Streams.bind(0), index=1)
    with working(tmp_path, parallel=Wrapping(device.made_on), device=device, step="graphed") as channel:
        channel.tell(Release(None), Assign(trial(0), 1))
        started, _ = channel.wait(Started), channel.wait(Finished)
    assert started.engine == "graphed"
    assert [each.reason for each in channel.said if isinstance(each, Fallback)] == []
    assert device.made_on == [TRAINING]
    assert device.captured[0].done.count("replay") > 1
    assert prepared == [(1, PREPARING)]
    assert device.finished == [DEFAULT]  # in the thread that prepares, outside its queue
    assert device.joined == [len(SEED.weights) + len(SEED.statistics)]
    assert [capture.done[-1] for capture in device.captured] == ["free"]
