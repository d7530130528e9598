"""The process that records: one JSON object a second, until whoever started it lets go of its input."""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any

from aiperf.telemetry.host import open_host
from aiperf.telemetry.sensor import Reading, Sensor

PERIOD_SECONDS = 1.0
LOWEST_PRIORITY = 19
WAIT_SECONDS = 0.5  # for the sensors, together; one that needs longer is unknown in this second


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0, always: nothing that goes wrong here is a reason to end anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, required=True, help="It appends to this one.")
    parser.add_argument("--sensors", default="", help="Of the devices: a module of this package.")
    parser.add_argument("devices", nargs="*", help="Their identities.")
    options = parser.parse_args(words)
    host = Sensor("host", open_host)
    known = options.devices if options.sensors else ()
    devices = [Sensor(name, partial(_open_device, options.sensors, name)) for name in known]
    record = _Record(options.file)
    record.add(_line(host, devices))
    # Only now: on a busy machine a start at this priority would come after the clock's.
    _give_way()
    while _waits():
        record.add(_line(host, devices))
    record.add(_line(host, devices))  # the span may have ended within this second
    # A thread that hangs in a driver must not hold up the end.
    sys.stderr.flush()
    os._exit(0)


def _open_device(sensors: str, identity: str) -> Callable[[], Reading]:
    """Raises what the module of this name raises where it finds no such device."""
    read: Callable[[], Reading] = import_module(f"aiperf.telemetry.{sensors}").open_device(identity)
    return read


class _Record:
    """Appends to a file. A line that cannot be written, as on a full disk, is lost; the next one is tried."""

    def __init__(self, path: Path) -> None:
        self._path, self._told = path, False
        self._file: FileIO | None = None
        self._torn = False

    def add(self, line: str) -> None:
        try:
            file = self._opened()
            whole = b"\n" * self._torn + line.encode() + b"\n"
            self._torn = file.write(whole) < len(whole)  # a disk takes what it still has room for
        except OSError as error:
            if not self._told:
                told = f"telemetry: {self._path} cannot be written ({error.strerror})"
                print(told, file=sys.stderr, flush=True)
            self._told = True

    def _opened(self) -> FileIO:
        """A line before may have been cut off by a full disk, or by the death of another recorder."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = FileIO(self._path, "a+")
            if size := self._file.seek(0, os.SEEK_END):
                self._file.seek(size - 1)
                self._torn = self._file.read(1) != b"\n"
        return self._file


def _give_way() -> None:
    """The lowest priority for every thread: Linux has one for each."""
    threads = [thread.native_id for thread in threading.enumerate()] if sys.platform == "linux" else [0]
    for thread in threads:
        os.setpriority(os.PRIO_PROCESS, thread or 0, LOWEST_PRIORITY)


def _waits() -> bool:
    """Sleeps to the next whole second; False when nobody holds the other end of the input any more."""
    left = PERIOD_SECONDS - time.time() % PERIOD_SECONDS
    return not select.select([sys.stdin], [], [], left)[0]


def _line(host: Sensor, devices: Sequence[Sensor]) -> str:
    at, until = time.time(), time.monotonic() + WAIT_SECONDS
    for sensor in (host, *devices):
        sensor.ask()
    record: dict[str, Any] = {"wall_seconds": round(at, 6), "host": _answer(host, until)}
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
