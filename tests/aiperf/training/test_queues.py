"""On which device and queue each thread of a worker submits its work, and where DDP is made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aiperf.data import load
from aiperf.device.device import PREPARING, TRAINING, Aside
from aiperf.engines.graphed import WARM_UP_WRAPPED
from aiperf.parallel.parallel import Solo
from aiperf.training import built_trial
from aiperf.training import worker as worker_module
from aiperf.training.built_trial import BuiltTrial, Rank, build
from aiperf.training.kept_network import Kept
from aiperf.wire.messages import Assign, Release
from aiperf.wire.reports import NEAR, Fallback, Finished, Ready, Started
from nas.weights import initial
from tests.aiperf.engines.recording import Again, Recording, recording
from tests.aiperf.engines.test_graphed import Averaging
from tests.aiperf.training.test_worker import CONFIG, SEED, trial, working

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
