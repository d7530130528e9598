"""What works for a rank: a process that trains, or a thread that pretends to."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from aiperf.pretending.assumptions import Assumptions
from aiperf.pretending.rank import pretended_device
from aiperf.ranks.process import WorkerProcess, describe_device
from aiperf.wire.layout import Described, Place


class RankWorker(Protocol):
    def send(self, data: bytes) -> None:
        """A packed message; one to a worker that is gone is dropped."""

    def fileno(self) -> int:
        """To wait for its next message beside others'."""

    def receive(self, seconds: float) -> bytes | None:
        """The next message, None when none comes in so many seconds. Raises EOFError: it is gone."""

    def obituary(self) -> str:
        """Of one that is gone."""

    def end(self) -> None:
        """Once it was asked to quit; in the end, by force."""

    def kill(self) -> None: ...


def worker_at(place: Place, device: str, log: Path, pretend: Assumptions | None) -> RankWorker:
    """One that trains on a device of this kind, or pretends. Raises OSError where it cannot be started."""
    if pretend is None:
        return WorkerProcess(place, device, log)
    from aiperf.ranks.pretender import Pretender  # safetensors, which looking at results does without

    return Pretender(place, pretend, log)


def device_at(place: Place, device: str, pretend: Assumptions | None) -> Described:
    """What such a worker would have."""
    return pretended_device(place, pretend) if pretend else describe_device(place, device)
