"""Power and clock of the device while work is timed, for the rows of the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from statistics import fmean
from time import monotonic

from aiperf.device import Device
from aiperf.telemetry.sensor import Reading, Sensor
from benchmarks.on_device.rows import Use

ANSWER_SECONDS = 2.0
"""Time for a sensor to answer; one that takes longer is unknown."""


class Meter:
    """Reads the device's own counter of energy at both ends of a piece of work, and its clock at the end,
    when it is still the clock of the work. Without a counter it takes the power at the end."""

    def __init__(self, device: Device) -> None:
        self._sensor: Sensor | None = None
        if device.sensors:
            module = import_module(f"aiperf.telemetry.{device.sensors}")
            self._sensor = Sensor("meter", partial(module.open_device, device.identity))
        self._pieces = defaultdict[str, list[tuple[float, Reading, Reading]]](list)

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """A context for a piece of the work of that name, which has synchronised the device when it ends."""
        before, began = self._read(), monotonic()
        yield
        seconds = monotonic() - began
        self._pieces[name].append((seconds, before, self._read()))

    def use(self, name: str) -> Use:
        """Mean power and mean clock of all pieces of that work; unknown if the sensor does not report
        them."""
        pieces = self._pieces[name]
        joules = [_risen(before, after) for _, before, after in pieces]
        if pieces and all(joules):
            watts: float | None = sum(filter(None, joules)) / sum(seconds for seconds, *_ in pieces)
        else:
            watts = _mean(after.get("power_watts") for *_, after in pieces)
        return Use(watts, _mean(after.get("clock_hertz") for *_, after in pieces))

    def _read(self) -> Reading:
        if self._sensor is None:
            return {}
        self._sensor.ask()
        return self._sensor.answer(monotonic() + ANSWER_SECONDS)[0]


def _risen(before: Reading, after: Reading) -> float | None:
    """Joules between two readings; None if the counter is unknown or did not rise."""
    first, last = before.get("energy_joules"), after.get("energy_joules")
    if isinstance(first, int | float) and isinstance(last, int | float) and last > first:
        return float(last - first)
    return None


def _mean(values: Iterator[object]) -> float | None:
    known = [float(value) for value in values if isinstance(value, int | float)]
    return fmean(known) if known else None
