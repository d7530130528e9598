"""On which device and queue each thread of a worker submits its work, and where DDP is made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aiperf.device.device import PREPARING, TRAINING, Aside
from aiperf.parallel.parallel import Solo
from aiperf.training import worker as worker_module
from aiperf.training.built_trial import BuiltTrial, build
from aiperf.wire.messages import Assign, Fallback, Finished, Release, Started
from tests.aiperf.engines.recording import Again, Recording, recording
from tests.aiperf.training.test_worker import SEED, trial, working

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


class Wrapper(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, examples: torch.Tensor) -> Any:
        return self.network(examples)


@dataclass
class Wrapping(Solo):
    """A group whose backward pass averages gradients, as with DDP."""

    made_on: list[str]
    wraps_network = True

    def wrap(
        self, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        self.made_on.append(here.queue)
        return Wrapper(network), optimizer


def test_ddp_is_made_where_it_is_captured_and_the_next_trial_is_prepared_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = list[tuple[int, str]]()

    def watched(*what: Any) -> BuiltTrial:
        prepared.append((here.device, here.queue))
        return build(*what)

    monkeypatch.setattr(worker_module, "build", watched)
    cpu = recording()
    device = Streams(1, cpu.name, cpu.memory_bytes)
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
    # Destroying the group would hang while a graph is alive, whoever refers to it: pytorch/pytorch#115388.
    assert [capture.done[-1] for capture in device.captured] == ["free"]
