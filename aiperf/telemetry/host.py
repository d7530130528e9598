"""Sensors of the host, through psutil: CPU, memory, disks and network."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import psutil

from aiperf.telemetry.sensor import Reading, each

LEAST_SECONDS = 0.1  # minimum time over which a rate is meaningful
# Exceptions of psutil if /proc is hidden, or has a form that psutil does not know.
FAULTS = (OSError, RuntimeError, ValueError)
RATES = ("read", "written", "received", "sent")
"""Counters that become bytes per second."""


def open_host() -> Callable[[], Reading]:
    return _Host().read


class _Host:
    """The host. Its rates are averages since the last reading."""

    def __init__(self) -> None:
        self._before = _seen()

    def read(self) -> Reading:
        """The values of the host. Raises what psutil raises if it can read none."""
        before, now = self._before, _seen()
        self._before = now
        found = {name: now[name] for name in ("memory_bytes",) if name in now}
        seconds = now["seconds"] - before["seconds"]
        if seconds < LEAST_SECONDS:
            return found
        risen = {name: now[name] - before[name] for name in now.keys() & before.keys()}
        if "cpu" in risen:
            total = max(risen["cpu"], 1e-9)
            found["utilisation"] = min(1.0, max(0.0, 1 - risen["idle"] / total))
            found["stolen"] = min(1.0, max(0.0, risen["stolen"] / total))
        rates = {f"{name}_bytes_per_second": risen[name] / seconds for name in RATES if name in risen}
        return found | rates


def _seen() -> dict[str, float]:
    """Memory in use in bytes; and, since the host was started, seconds of all processors and bytes of all
    disks and network links. Values that a container hides are left out."""
    asked = {
        "memory": psutil.virtual_memory,
        "times": psutil.cpu_times,
        "disks": psutil.disk_io_counters,
        "links": psutil.net_io_counters,
    }
    told = each(asked, FAULTS)
    memory, times, disks, links = (told[name] for name in asked)
    seen = {"seconds": monotonic()}
    if memory is not None:
        seen["memory_bytes"] = memory.used
    if times is not None:
        # Guests are counted in user and nice, too.
        seen["cpu"] = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        seen["idle"] = times.idle + getattr(times, "iowait", 0.0)
        seen["stolen"] = getattr(times, "steal", 0.0)
    if disks is not None:
        seen |= {"read": disks.read_bytes, "written": disks.write_bytes}
    if links is not None:
        seen |= {"received": links.bytes_recv, "sent": links.bytes_sent}
    return seen
