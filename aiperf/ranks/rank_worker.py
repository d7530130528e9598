"""The worker of a rank: a process that trains, or a thread that pretends to."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from aiperf.pretending.assumptions import Assumptions
from aiperf.pretending.rank_report import pretended_device
from aiperf.ranks.process import WorkerProcess, describe_device
from aiperf.wire.layout import Described, Place


class RankWorker(Protocol):
    """A worker as the rank that speaks for it sees it."""

    def send(self, data: bytes) -> None:
        """Sends a packed message; it is dropped if the worker has ended."""

    def fileno(self) -> int:
        """File descriptor on which its next message can be waited for together with others."""

    def receive(self, seconds: float) -> bytes | None:
        """The next message, or None if none arrives within `seconds`. Raises EOFError if the worker has
        ended."""

    def obituary(self) -> str:
        """How a worker ended, and its last error, in one line."""

    def end(self) -> None:
        """Waits for the end of a worker that was asked to quit, and kills it if it does not end."""

    def kill(self) -> None:
        """Ends the worker at once."""


def worker_at(place: Place, device: str, log: Path, pretend: Assumptions | None) -> RankWorker:
    """Starts a worker that trains on a device of this kind, or pretends. Raises OSError if it cannot be
    started."""
    if pretend is None:
        return WorkerProcess(place, device, log)
    from aiperf.ranks.pretender import Pretender  # safetensors, which looking at results does without

    return Pretender(place, pretend, log)


def device_at(place: Place, device: str, pretend: Assumptions | None) -> Described:
    """The device that such a worker would bind."""
    return pretended_device(place, pretend) if pretend else describe_device(place, device)
