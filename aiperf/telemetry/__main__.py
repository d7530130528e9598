"""The process that records: one JSON object per second, until its input is closed."""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any

from aiperf.telemetry.host import open_host
from aiperf.telemetry.host_use import FAULTS, Meter
from aiperf.telemetry.node import has_sensors, open_node
from aiperf.telemetry.sensor import Reading, Sensor

PERIOD_SECONDS = 1.0
"""Time between two records; the meter of processors looks as often."""
LOWEST_PRIORITY = 19
"""The highest nice value: what records must not take a core from what is measured."""
METER = "meter"
"""Name of the thread that measures how processors are used."""
SENSORS: Mapping[str, tuple[Callable[[], bool], Callable[[], Callable[[], Reading]]]] = {
    "host": (lambda: True, open_host),
    "node": (has_sensors, open_node),
}
"""Sensors of the host by their name in the record: whether this host has it, and what opens it. Each has a
thread of its own, because a meter behind a board's controller takes longer than all else of the host."""
WAIT_SECONDS = 0.5  # for all sensors together; the value of a slower one is unknown in this second


def main(words: Sequence[str] | None = None) -> int:
    """Records until the input is closed. The exit code is always 0, because no fault here may end a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, required=True, help="It appends to this one.")
    parser.add_argument("--sensors", default="", help="Of the devices: a module of this package.")
    parser.add_argument("--every", type=float, default=0.0, help="Seconds between two reports.")
    parser.add_argument("--cores", type=float, default=float("inf"), help="Quota of processors.")
    parser.add_argument("--processes", nargs="*", type=int, default=(), help="The processes of the run here.")
    parser.add_argument("devices", nargs="*", help="Each as NAME=IDENTITY; the name is recorded.")
    options = parser.parse_args(words)
    sensors = [Sensor(name, open_it) for name, (is_there, open_it) in SENSORS.items() if is_there()]
    known = [device.partition("=") for device in options.devices] if options.sensors else ()
    devices = [Sensor(name, partial(_open_device, options.sensors, identity)) for name, _, identity in known]
    if options.processes:
        words = options.processes, options.cores, options.every
        threading.Thread(target=_report, args=words, name=METER, daemon=True).start()
    record = _Record(options.file)
    record.add(_line(sensors, devices))
    # Only now, because on a busy machine a process that starts at this priority would begin to record after
    # the clock has started.
    _give_way()
    while _waits():
        record.add(_line(sensors, devices))
    record.add(_line(sensors, devices))  # the span may have ended within this second
    # A thread that hangs in a driver must not hold up the end.
    sys.stderr.flush()
    os._exit(0)


def _open_device(sensors: str, identity: str) -> Callable[[], Reading]:
    """Opens a device with the module of this name. Raises what the module raises if it finds no such
    device."""
    read: Callable[[], Reading] = import_module(f"aiperf.telemetry.{sensors}").open_device(identity)
    return read


def _report(processes: Sequence[int], cores: float, every_seconds: float) -> None:
    """Prints how the processors were used, a JSON object in each interval. In a thread of its own, which
    waits for no file system: what it does not sleep or work, it was stopped."""
    try:
        meter, due = Meter(processes, cores), time.monotonic() + every_seconds
        while True:
            time.sleep(PERIOD_SECONDS)
            meter.look(PERIOD_SECONDS)
            if time.monotonic() >= due:
                print(json.dumps(meter.use()._asdict()), flush=True)
                due = time.monotonic() + every_seconds
    except FAULTS as error:
        print(f"telemetry: the use of processors is unknown: {error}", file=sys.stderr, flush=True)


class _Record:
    """Appends to a file. A line that cannot be written, as on a full disk, is lost; the next one is tried."""

    def __init__(self, path: Path) -> None:
        self._path, self._told = path, False
        self._file: FileIO | None = None
        self._torn = False

    def add(self, line: str) -> None:
        """Appends a line, after a line break if the last one was cut off. The first failure is reported,
        later ones are not: a full disk fails each second."""
        try:
            file = self._opened()
            whole = b"\n" * self._torn + line.encode() + b"\n"
            self._torn = file.write(whole) < len(whole)  # a full disk may take a part of the line
        except OSError as error:
            if not self._told:
                told = f"telemetry: {self._path} cannot be written ({error.strerror})"
                print(told, file=sys.stderr, flush=True)
            self._told = True

    def _opened(self) -> FileIO:
        """Opens the file, and checks whether its last line is complete: a full disk, or the death of an
        earlier recorder, may have cut it off."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = FileIO(self._path, "a+")
            if size := self._file.seek(0, os.SEEK_END):
                self._file.seek(size - 1)
                self._torn = self._file.read(1) != b"\n"
        return self._file


def _give_way() -> None:
    """Sets the lowest priority, for every thread, because Linux has one per thread. The meter keeps its own:
    it takes a thousandth of a second, and must measure what keeps others from their work."""
    threads: list[int | None] = [0]
    if sys.platform == "linux":
        threads = [thread.native_id for thread in threading.enumerate() if thread.name != METER]
    for thread in threads:
        os.setpriority(os.PRIO_PROCESS, thread or 0, LOWEST_PRIORITY)


def _waits() -> bool:
    """Sleeps until the next whole second; returns False if the other end of the input is closed."""
    left = PERIOD_SECONDS - time.time() % PERIOD_SECONDS
    return not select.select([sys.stdin], [], [], left)[0]


def _line(sensors: Sequence[Sensor], devices: Sequence[Sensor]) -> str:
    """One record. All sensors are asked before the first answer is awaited, so that their values are of the
    same moment."""
    at, until = time.time(), time.monotonic() + WAIT_SECONDS
    for sensor in (*sensors, *devices):
        sensor.ask()
    record: dict[str, Any] = {"wall_seconds": round(at, 6)}
    record |= {sensor.name: _answer(sensor, until) for sensor in sensors}
    if devices:
        record["devices"] = [{"id": device.name, **_answer(device, until)} for device in devices]
    return json.dumps(record, separators=(",", ":"))


def _answer(sensor: Sensor, until: float) -> dict[str, Any]:
    reading, fault = sensor.answer(until)
    return {
        name: round(value, 6) if isinstance(value, float) else value for name, value in reading.items()
    } | ({"unknown": fault} if fault else {})


if __name__ == "__main__":
    main()
