"""A sensor that may vanish, hang or talk nonsense, and never holds anybody up."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, time
from typing import Any

Reading = Mapping[str, float | int | Sequence[str] | None]
"""Values by name, each with its unit in the name; None, or no entry, where one is not known."""

REOPEN_SECONDS = 10.0  # between two attempts to find a sensor that is not there
# What no device can have: beyond is nonsense, which is as good as no value.
RANGES: Mapping[str, tuple[float, float]] = {
    "utilisation": (0.0, 1.0),
    "stolen": (0.0, 1.0),
    "memory_bytes": (0.0, 2.0**50),
    "power_watts": (0.0, 20e3),
    "energy_joules": (0.0, 1e15),
    "temperature_celsius": (-60.0, 250.0),
    "clock_hertz": (0.0, 2e10),
    "memory_clock_hertz": (0.0, 2e10),
}
MOST_BYTES_PER_SECOND = 1e15


class Sensor:
    """Reads in a thread of its own, one reading at a time, so that nobody waits for a device that hangs."""

    def __init__(self, name: str, open_it: Callable[[], Callable[[], Reading]]) -> None:
        """`open_it` finds the sensor and gives what reads it; both may raise, or never come back."""
        self.name = name
        self._open = open_it
        self._asked, self._answered = threading.Event(), threading.Event()
        self._answer: tuple[Reading, str] = ({}, "")
        self._busy = self._late = False
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def ask(self) -> None:
        """Begins a reading, unless the one before has not come back."""
        self._late = self._busy
        if not self._late:
            self._busy = True
            self._answered.clear()
            self._asked.set()

    def answer(self, until: float) -> tuple[Reading, str]:
        """The plausible values with their time of day, and why there are none.

        Waits up to `until`, on the monotonic clock. What comes after that, or was asked for before, belongs
        to another time and is dropped.
        """
        if self._late or not self._answered.wait(max(0.0, until - monotonic())):
            return {}, "does not answer"
        reading, fault = self._answer
        return plausible(reading), fault

    def _serve(self) -> None:
        read: Callable[[], Reading] | None = None
        retry, fault = -math.inf, ""
        while self._asked.wait():
            self._asked.clear()
            try:
                if read is None and monotonic() >= retry:
                    retry = monotonic() + REOPEN_SECONDS
                    read = self._open()
                # Its own time: on a busy machine it may come long after it was asked for.
                self._answer = ({}, fault) if read is None else ({**read(), "wall_seconds": time()}, "")
            except Exception as error:  # a vendor's library is foreign code: what it raises is recorded
                read, fault = None, f"{type(error).__name__}: {error}"
                self._answer = {}, fault
            self._busy = False
            self._answered.set()


def each(
    reads: Mapping[str, Callable[[], Any]], faults: type[Exception] | tuple[type[Exception], ...]
) -> dict[str, Any]:
    """What each of these reads; None where it raises one of the faults, for a value that is not known hides
    no other. Raises the last fault where every one did."""
    found: dict[str, Any] = {}
    last: Exception | None = None
    for name, read in reads.items():
        try:
            found[name] = read()
        except faults as fault:
            last = fault
    if last is not None and not found:
        raise last
    return {name: found.get(name) for name in reads}


def plausible(reading: Reading) -> dict[str, Any]:
    """Without what no device can have."""
    return {name: value for name, value in reading.items() if _is_plausible(name, value)}


def _is_plausible(name: str, value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(word, str) for word in value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return False
    low, high = RANGES.get(name, (0.0, MOST_BYTES_PER_SECOND))
    return low <= value <= high
