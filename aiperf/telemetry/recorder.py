"""The process that records, as whoever started it holds it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Recorder"]

END_SECONDS = 2.0
LOWEST_PRIORITY = 19


class Recorder:
    """Records into a file until it is closed, or this process ends."""

    def __init__(self, file: Path, sensors: str, devices: Sequence[str]) -> None:
        """`sensors` as `Device.sensors` says, `devices` by identity.

        Raises OSError where no process can be started.
        """
        command = [sys.executable, "-m", "aiperf.telemetry", "--file", str(file), "--sensors", sensors]
        self._process = subprocess.Popen([*command, *devices], stdin=subprocess.PIPE)
        # From here, for its start takes more of a core than a minute of recording.
        os.setpriority(os.PRIO_PROCESS, self._process.pid, LOWEST_PRIORITY)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
