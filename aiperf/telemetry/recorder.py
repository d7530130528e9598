"""The handle of the process that records."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

END_SECONDS = 2.0
"""Time for the process to write its last line, before it is killed."""
# DCMI does not work with this variable set: CANN, environment variables, ASCEND_RT_VISIBLE_DEVICES.
NOT_HANDED_ON = ("ASCEND_RT_VISIBLE_DEVICES",)


@dataclass(frozen=True)
class Watched:
    """Processes whose share of the host's processors is reported."""

    processes: Collection[int]
    cores: float
    """Number of processors that they may use at once; infinite without a quota."""
    every_seconds: float
    report: Callable[[Mapping[str, float]], object]
    """Called in a thread with the fields of `aiperf.telemetry.host_use.Used`."""


class Recorder:
    """Records into a file until it is closed, or this process ends."""

    def __init__(
        self, file: Path, sensors: str, devices: Mapping[str, str], watched: Watched | None = None
    ) -> None:
        """Starts the process. `sensors` is `Device.sensors`; `devices` are the names in the record, by
        `Device.identity`.

        Raises OSError if the process cannot be started.
        """
        words = ["--file", str(file), "--sensors", sensors]
        if watched is not None:
            words += ["--every", str(watched.every_seconds), "--cores", str(watched.cores)]
            words += ["--processes", *map(str, watched.processes)]
        named = [f"{name}={identity}" for identity, name in devices.items()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "aiperf.telemetry", *words, "--", *named],
            stdin=subprocess.PIPE,
            stdout=None if watched is None else subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name not in NOT_HANDED_ON},
        )
        self._hearing: threading.Thread | None = None
        if watched is not None:
            report = (watched.report,)
            self._hearing = threading.Thread(target=self._hear, args=report, name="host use", daemon=True)
            self._hearing.start()

    def _hear(self, report: Callable[[Mapping[str, float]], object]) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError), self._process.stdout as lines:  # nobody listens any more
            for line in lines:
                report(json.loads(line))

    def close(self) -> None:
        """Ends the process by closing its input, and kills it if it does not end in END_SECONDS."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._hearing is not None:
            self._hearing.join(END_SECONDS)
