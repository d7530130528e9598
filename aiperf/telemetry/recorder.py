"""The handle of the process that records."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

END_SECONDS = 2.0
# DCMI does not work with this variable set: CANN, environment variables, ASCEND_RT_VISIBLE_DEVICES.
NOT_HANDED_ON = ("ASCEND_RT_VISIBLE_DEVICES",)


class Recorder:
    """Records into a file until it is closed, or this process ends."""

    def __init__(self, file: Path, sensors: str, devices: Mapping[str, str]) -> None:
        """Starts the process. `sensors` is `Device.sensors`; `devices` are the names in the record, by
        `Device.identity`.

        Raises OSError if the process cannot be started.
        """
        command = [sys.executable, "-m", "aiperf.telemetry", "--file", str(file), "--sensors", sensors]
        environment = {name: value for name, value in os.environ.items() if name not in NOT_HANDED_ON}
        named = [f"{name}={identity}" for identity, name in devices.items()]
        self._process = subprocess.Popen([*command, *named], stdin=subprocess.PIPE, env=environment)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
