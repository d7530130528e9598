"""After a capture that failed, a device of NVIDIA works as before; none is made where replays keep memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from aiperf.device import bind, cuda
from aiperf.device.cuda import REPLAYS, WARM_UP, replay_fault
from aiperf.engines.graphed import Graphed
from tests.aiperf.device import vendors
from tests.aiperf.engines.recording import Again, recording

Pool = tuple[int, int]


@dataclass
class Generator:
    """at::CUDAGeneratorImpl, whose state a capture marks: ATen/cuda/CUDAGeneratorImpl.cpp."""

    state: dict[str, int] = field(default_factory=lambda: {"seed": 7, "capturing": False})

    def clone_state(self) -> Generator:
        return Generator({**self.state, "capturing": False})

    def graphsafe_set_state(self, other: Generator) -> None:
        self.state = other.state

    def number(self) -> int:
        if self.state["capturing"]:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
        return self.state["seed"]


@dataclass
class Allocator:
    """c10/cuda/CUDACachingAllocator.cpp, as far as captures are concerned."""

    underway: list[Pool] = field(default_factory=list)
    released: list[Pool] = field(default_factory=list)

    def empty_cache(self) -> None:
        if self.underway:
            raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")

    def end(self, device: int, pool: Pool) -> None:
        if pool not in self.underway:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.underway.remove(pool)

    def release(self, device: int, pool: Pool) -> None:
        self.released.append(pool)


@dataclass
class Graph:
    """at::cuda::CUDAGraph, in the order of its steps: ATen/cuda/CUDAGraph.cpp."""

    allocator: Allocator
    generator: Generator
    is_invalid: bool = False
    has_ended: bool = False

    def capture_begin(self, pool: Pool, **options: Any) -> None:
        self.pool = pool
        self.allocator.underway.append(pool)
        self.generator.state["capturing"] = True

    def capture_end(self) -> None:
        if self.is_invalid:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        self.allocator.end(0, self.pool)
        self.generator.state["capturing"] = False
        self.has_ended = True

    def reset(self) -> None:
        if self.has_ended:
            self.allocator.release(0, self.pool)


@pytest.mark.parametrize("torchs_name", ["_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"])
@pytest.mark.parametrize("invalidates", [True, False])
def test_a_failed_capture_leaves_memory_random_numbers_and_stream_as_they_were(
    invalidates: bool, torchs_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the contexts of torch itself, over fakes of what is in C++. Work that waits for the device
    invalidates a capture; a lack of memory in torch's allocator does not."""
    vendors.install_cuda(monkeypatch)
    allocator, generator, graphs = Allocator(), Generator(), list[Graph]()

    def graph() -> Graph:
        graphs.append(Graph(allocator, generator))
        return graphs[-1]

    monkeypatch.delattr(torch._C, "_cuda_endAllocateToPool", raising=False)
    monkeypatch.setattr(torch._C, torchs_name, allocator.end, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", allocator.release, raising=False)
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)
    for name, value in {
        "CUDAGraph": graph,
        "graph_pool_handle": lambda: (0, len(graphs)),
        "empty_cache": allocator.empty_cache,
        "default_generators": [Generator(), generator],
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    device, before = bind("cuda", 1), torch.cuda.current_stream()

    def failing() -> None:
        graphs[-1].is_invalid = invalidates
        raise torch.OutOfMemoryError("CUDA out of memory")

    wanted = "previous error during capture" if invalidates else "out of memory"
    with pytest.raises(RuntimeError, match=wanted):
        device.capture().record(failing)
    assert torch.cuda.current_stream() is before
    assert generator.number() == 7
    device.clean()
    assert allocator.released == [(0, 1)]
    worked = list[str]()
    device.capture().record(lambda: worked.append("again"))
    assert worked == ["again"]


MIB = 1 << 20


@dataclass
class Leaking(Again):
    """Takes memory at each replay, which nothing returns: ROCm/rocm-libraries, issue 9505."""

    leak: int = 0
    free: int = 100 << 30

    def replay(self) -> None:
        self.free -= self.leak
        super().replay()


@pytest.mark.parametrize(("leak", "said"), [(0, ""), (4096, ""), (8 * MIB, "each replay keeps 8 MB of ")])
def test_replays_that_keep_memory_are_found(leak: int, said: str) -> None:
    device, capture = recording(), Leaking(leak=leak)
    found = replay_fault(device, capture, lambda: capture.free, shape=(2, 4, 8))
    assert found == (said and said + device.name)
    assert capture.done == ["warm up"] * WARM_UP + ["record"] + ["replay"] * (WARM_UP + REPLAYS)


def test_what_a_capture_raises_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(self: Again, work: object) -> None:
        raise RuntimeError("HIP error: operation not permitted\nwhen capturing")

    monkeypatch.setattr(Again, "record", record)
    found = replay_fault(recording(), Again(), lambda: 0, shape=(2, 4, 8))
    assert found == "a matrix product cannot be captured: HIP error: operation not permitted"


@pytest.mark.parametrize("fault", ["", "each replay keeps 8 MB of it"])
def test_only_amd_is_asked_and_its_answer_decides(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_replay_fault", lambda device: fault)
    for name in cuda.SUGGEST_NHWC:
        monkeypatch.setenv(name, "1")
    vendors.install_cuda(monkeypatch)
    assert Graphed.why_not(bind("cuda", 1)) == ""
    vendors.install_rocm(monkeypatch)
    assert Graphed.why_not(bind("cuda", 1)) == fault
