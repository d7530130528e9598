"""A sensor that may disappear, hang or report nonsense, without delaying the recorder."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, time
from typing import Any

Reading = Mapping[str, float | int | Sequence[str] | None]
"""Values by name, each with its unit in the name; an unknown value is None, or has no entry."""

REOPEN_SECONDS = 10.0  # between two attempts to find a missing sensor
# Possible values by the end of a name, so that `memory_clock_hertz` needs no line of its own; a value outside
# its range is nonsense and counts as unknown.
RANGES: Mapping[str, tuple[float, float]] = {
    "utilisation": (0.0, 1.0),
    "stolen": (0.0, 1.0),
    "memory_bytes": (0.0, 2.0**50),
    "power_watts": (0.0, 20e3),
    "energy_joules": (0.0, 1e15),
    "temperature_celsius": (-60.0, 250.0),
    "clock_hertz": (0.0, 2e10),
}
MOST_BYTES_PER_SECOND = 1e15
"""Upper bound of values without a range, which are rates: from 0 up."""


class Sensor:
    """Reads in a separate thread, one reading at a time, so that a device that hangs delays no other."""

    def __init__(self, name: str, open_it: Callable[[], Callable[[], Reading]]) -> None:
        """`open_it` finds the sensor and returns a function that reads it; both may raise, or never
        return."""
        self.name = name
        self._open = open_it
        self._asked, self._answered = threading.Event(), threading.Event()
        self._answer: tuple[Reading, str] = ({}, "")
        self._busy = self._late = False
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def ask(self) -> None:
        """Starts a reading, unless the last one has not returned yet."""
        self._late = self._busy
        if not self._late:
            self._busy = True
            self._answered.clear()
            self._asked.set()

    def answer(self, until: float) -> tuple[Reading, str]:
        """The plausible values with their time of day, and the reason if there are none.

        It waits until `until`, on the monotonic clock. A reading that returns later, or was started earlier,
        belongs to another time and is dropped.
        """
        if self._late or not self._answered.wait(max(0.0, until - monotonic())):
            return {}, "does not answer"
        reading, fault = self._answer
        return plausible(reading), fault

    def _serve(self) -> None:
        """Reads whenever it is asked, and opens the sensor again after it failed, at most once in
        REOPEN_SECONDS."""
        read: Callable[[], Reading] | None = None
        retry, fault = -math.inf, ""
        while self._asked.wait():
            self._asked.clear()
            try:
                if read is None and monotonic() >= retry:
                    retry = monotonic() + REOPEN_SECONDS
                    read = self._open()
                # With its own time, because on a busy machine a reading may be made long after the request.
                self._answer = ({}, fault) if read is None else ({**read(), "wall_seconds": time()}, "")
            except Exception as error:  # a vendor's library is foreign code: what it raises is recorded
                read, fault = None, f"{type(error).__name__}: {error}"
                self._answer = {}, fault
            self._busy = False
            self._answered.set()


def each(
    reads: Mapping[str, Callable[[], Any]], faults: type[Exception] | tuple[type[Exception], ...]
) -> dict[str, Any]:
    """The result of each of these functions; None if it raises one of `faults`, so that an unknown value does
    not hide the others. Raises the last fault if all of them raised."""
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
    """The reading without impossible values."""
    return {name: value for name, value in reading.items() if _is_plausible(name, value)}


def _is_plausible(name: str, value: object) -> bool:
    """Whether a value can be true: a number within its range, or a list of words."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(word, str) for word in value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return False
    ranges = (each for end, each in RANGES.items() if f"_{name}".endswith(f"_{end}"))
    low, high = next(ranges, (0.0, MOST_BYTES_PER_SECOND))
    return low <= value <= high
