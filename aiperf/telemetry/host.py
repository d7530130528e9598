"""The host: its processor, memory, disks and network, by psutil."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import psutil

from aiperf.telemetry.sensor import Reading

__all__ = ["open_host"]

LEAST_SECONDS = 0.1  # of which a rate tells anything


def open_host() -> Callable[[], Reading]:
    return _Host().read


class _Host:
    """Rates are over the time since the reading before."""

    def __init__(self) -> None:
        self._before = self._counters()

    def read(self) -> Reading:
        before, now = self._before, self._counters()
        self._before = now
        seconds = now["seconds"] - before["seconds"]
        if seconds < LEAST_SECONDS:
            return {"memory_bytes": psutil.virtual_memory().used}
        total = max(now["cpu"] - before["cpu"], 1e-9)
        rates = {
            f"{name}_bytes_per_second": (now[name] - before[name]) / seconds
            for name in ("read", "written", "received", "sent")
            if name in now and name in before
        }
        return {
            "utilisation": min(1.0, max(0.0, 1 - (now["idle"] - before["idle"]) / total)),
            "stolen": min(1.0, max(0.0, (now["stolen"] - before["stolen"]) / total)),
            "memory_bytes": psutil.virtual_memory().used,
            **rates,
        }

    def _counters(self) -> dict[str, float]:
        """Seconds of all processors, and bytes of all disks and links, since the host began."""
        times = psutil.cpu_times()
        found = {
            "seconds": monotonic(),
            # Guests are counted in user and nice, too.
            "cpu": sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0),
            "idle": times.idle + getattr(times, "iowait", 0.0),
            "stolen": getattr(times, "steal", 0.0),
        }
        disks, links = psutil.disk_io_counters(), psutil.net_io_counters()
        if disks is not None:  # none in some containers
            found |= {"read": disks.read_bytes, "written": disks.write_bytes}
        if links is not None:
            found |= {"received": links.bytes_recv, "sent": links.bytes_sent}
        return found
