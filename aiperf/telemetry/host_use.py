"""How the processes of a run and others share the processors of a host, through psutil.

What others took is what the run could have used, but neither used nor left idle. It includes what the
hypervisor of a virtual machine took, and the kernel's own work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import psutil

FAULTS = (psutil.Error, OSError, RuntimeError, ValueError)
"""What psutil raises for a process that has ended, and where /proc is hidden or has an unknown form."""
QUICK_SECONDS = 0.02
"""Counters of processors and processes are read one after the other; a reading that took longer, because this
process was held up in between, is repeated, up to `TRIES` times, and the quickest one counts."""
TRIES = 5
"""Most readings until one was quick enough."""
SCHEDULED = Path("/proc/thread-self/schedstat")
"""Nanoseconds for which this thread ran, and waited for a processor (Linux, sched-stats)."""

WORKER = "worker_process"
"""End of the module in the command of a process that was started by the rank that speaks for it."""

Key = tuple[int, float]
"""Number and start time of a process: numbers are used again."""


class Used(NamedTuple):
    """An interval on a host, in seconds; all but the first and the last are CPU seconds."""

    seconds: float
    available: float
    """What the run could use: the processors of its affinity, within its control group's quota."""
    own: float
    """What the processes of the run used."""
    idle: float
    """How long these processors were idle."""
    stolen: float
    """What the hypervisor took from these processors."""
    stopped: float
    """How long a process of the run was stopped, as by SIGSTOP."""


@dataclass(frozen=True)
class Counters:
    """What was read at one time."""

    at: float
    processors: Mapping[int, tuple[float, float]]
    """Seconds idle and stolen, by processor."""
    own: float
    """CPU seconds of the run's processes, those that have ended included."""


def used(before: Counters, after: Counters, cores: float, stopped: float) -> Used:
    """The interval between two readings. `cores` is the quota."""
    seconds = after.at - before.at
    common = before.processors.keys() & after.processors.keys()
    idle, stolen = (
        sum(after.processors[each][n] - before.processors[each][n] for each in common) for n in (0, 1)
    )
    available = seconds * min(len(common), cores)
    return Used(
        seconds, available, max(0.0, after.own - before.own), max(0.0, idle), max(0.0, stolen), stopped
    )


@dataclass
class OwnProcesses:
    """The processes of a run on this host: those given, and all that they start."""

    roots: Collection[int]
    """Numbers of the given processes."""
    known: dict[Key, psutil.Process] = field(default_factory=dict)
    seconds: dict[Key, float] = field(default_factory=dict)
    """CPU seconds of each, and of its children that have ended, as last read."""
    parents: dict[Key, int] = field(default_factory=dict)
    """Number of the parent, which gets the time of a process that has ended."""
    ended: float = 0.0
    """CPU seconds of processes that ended and whose parent is not one of them."""

    def total(self) -> float:
        """CPU seconds of all of them. Raises psutil.Error if the system shows none."""
        self._find()
        for key, process in list(self.known.items()):
            try:
                self.seconds[key] = sum(process.cpu_times()[:4])  # user and system, and the same of children
            except FAULTS:
                self._forget(key)
        if not self.known:
            raise psutil.NoSuchProcess(min(self.roots, default=0))
        return self.ended + sum(self.seconds.values())

    def stopped(self) -> bool:
        """Whether one of them is stopped."""
        found = False
        for process in self.known.values():
            with contextlib.suppress(*FAULTS):
                found = found or process.status() == psutil.STATUS_STOPPED
        return found

    def processors(self) -> set[int]:
        """The processors that they may use."""
        found = set[int]()
        for process in self.known.values():
            with contextlib.suppress(*FAULTS, AttributeError):  # psutil on macOS knows no affinity
                found.update(process.cpu_affinity())
        return found

    def _find(self) -> None:
        """Adds what was started since. One that outlives its parent stays one of them."""
        starters = {number for number, _ in self.known} | {*self.roots}
        for process in (*_processes(self.roots), *_started_by(starters)):
            with contextlib.suppress(*FAULTS):
                key = process.pid, process.create_time()
                if key not in self.known:
                    self.known[key], self.parents[key] = process, process.ppid()

    def _forget(self, key: Key) -> None:
        """Removes a process that has ended. Its time is now its parent's, which has waited for it."""
        del self.known[key]
        seconds, parent = self.seconds.pop(key, 0.0), self.parents.pop(key)
        if all(parent != number for number, _ in self.known):
            self.ended += seconds


def _processes(numbers: Iterable[int]) -> list[psutil.Process]:
    """Those of the processes that still exist and may be seen."""
    found = []
    for number in numbers:
        with contextlib.suppress(*FAULTS):
            found.append(psutil.Process(number))
    return found


def _started_by(numbers: Iterable[int]) -> list[psutil.Process]:
    """What processes have started, and these again. One look at the table of processes for all."""
    by_parent: dict[int, list[psutil.Process]] = {}
    for each in psutil.process_iter():
        with contextlib.suppress(*FAULTS):
            by_parent.setdefault(each.ppid(), []).append(each)
    found, waiting = list[psutil.Process](), [*numbers]
    while waiting:
        young = by_parent.pop(waiting.pop(), [])
        found += young
        waiting += [process.pid for process in young]
    return found


class Meter:
    """Intervals on this host, one after the other."""

    def __init__(self, roots: Collection[int], cores: float) -> None:
        """`roots`: the workers of the run here, and its master. `cores`: their quota, which may be infinite.
        Raises what `FAULTS` names if the system shows none of the processes."""
        self._cores = cores
        self._own = OwnProcesses({_speaker(number) for number in roots})
        self._before = self._read()
        self._stopped = 0.0
        self._looked, self._scheduled = monotonic(), _scheduled_seconds()

    def look(self, slept: float) -> None:
        """Sees whether a process of the run is stopped; to be called every `slept` seconds. If this process
        was stopped as well, it notices that it neither slept, nor ran, nor waited for a processor."""
        now, scheduled = monotonic(), _scheduled_seconds()
        passed, unknown = now - self._looked, 0.0
        if scheduled is not None and self._scheduled is not None:
            unknown = passed - slept - (scheduled - self._scheduled)
        self._looked, self._scheduled = now, scheduled
        if self._own.stopped():
            self._stopped += passed
        elif unknown > slept:
            self._stopped += unknown

    def use(self) -> Used:
        """The interval since the last one. Raises as the constructor does."""
        before, self._before = self._before, self._read()
        stopped, self._stopped = self._stopped, 0.0
        return used(before, self._before, self._cores, stopped)

    def _read(self) -> Counters:
        """Counters of the processors that the run may use, and of its processes. Repeated until both were
        read in QUICK_SECONDS."""
        found = None
        for _ in range(TRIES):
            began = monotonic()
            processors, own = _processors(), self._own.total()
            now = monotonic()
            if found is None or now - began < found[0]:
                found = now - began, Counters(now, processors, own)
            if now - began < QUICK_SECONDS:
                break
        assert found is not None
        mask = self._own.processors()
        kept = {each: times for each, times in found[1].processors.items() if not mask or each in mask}
        return replace(found[1], processors=kept)


def _speaker(number: int) -> int:
    """The process that started a worker and speaks for it, where there is one; else the process itself."""
    with contextlib.suppress(*FAULTS):
        process = psutil.Process(number)
        if any(word.endswith(WORKER) for word in process.cmdline()):
            return int(process.ppid())
    return number


def _processors() -> dict[int, tuple[float, float]]:
    return {
        number: (times.idle + getattr(times, "iowait", 0.0), getattr(times, "steal", 0.0))
        for number, times in enumerate(psutil.cpu_times(percpu=True))
    }


def _scheduled_seconds() -> float | None:
    """How long this thread ran or waited for a processor; None where the system does not say."""
    try:
        ran, waited, *_ = SCHEDULED.read_text().split()
    except (OSError, ValueError):
        return None
    return (int(ran) + int(waited)) / 1e9
