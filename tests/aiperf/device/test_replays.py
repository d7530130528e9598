"""No work is captured on a device whose replays keep memory."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aiperf.device import bind, cuda
from aiperf.device.cuda import REPLAYS, WARM_UP, replay_fault
from aiperf.engines.graphed import Graphed
from tests.aiperf.device import vendors
from tests.aiperf.engines.recording import Again, recording

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
