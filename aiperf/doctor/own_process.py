"""A separate process for each examination that may hang or die: of a device, or of a data set."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Generic, TypeVar

from aiperf.config import DataConfig
from aiperf.doctor.reports import DataSeen, DeviceSeen, Meet
from aiperf.wire.layout import Place
from aiperf.wire.messages import FromGroup
from nas.record import RecordError, decode, encode

PROGRAM = "from aiperf.doctor.device_report import main; main()"
Seen = TypeVar("Seen", bound=FromGroup)


class OwnProcess(Generic[Seen]):
    """A child process that is started at once, and asked for its answer later."""

    def __init__(
        self, words: list[str], kind: type[Seen], fault: Callable[[str], Seen], keep: int = -1
    ) -> None:
        """Starts the child. `fault` makes the answer for a child that died; `keep` is an open file descriptor
        that is passed on to it."""
        self._kind, self._fault = kind, fault
        # The output goes to a file: a pipe that is not read would block a child that writes a lot.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            pass_fds=(keep,) if keep >= 0 else (),
        )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def answer(self, seconds: float) -> Seen | None:
        """Waits at most `seconds` for the answer; without one, the child is killed, and the result is
        None."""
        try:
            code = self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines() or ["no word of it"]
        self._output.close()
        if code == 0:
            try:
                return decode(self._kind, json.loads(lines[-1]))
            except (ValueError, RecordError):
                return self._fault(f"its process answered {lines[-1]:.200}")
        how = f"was killed by signal {-code}" if code < 0 else "failed"
        return self._fault(f"its process {how}: {lines[-1]:.200}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()


def device_process(
    kind: str, format: str, place: Place, host: str, meet: Meet | None
) -> OwnProcess[DeviceSeen]:
    told = [json.dumps(encode(value)) for value in (place, meet)]
    return OwnProcess(
        ["device", kind, format, told[0], host, told[1]],
        DeviceSeen,
        lambda reason: DeviceSeen(place.rank, host, fault=reason),
        -1 if meet is None else meet.listening,
    )


def data_process(config: DataConfig) -> OwnProcess[DataSeen]:
    return OwnProcess(["data", json.dumps(encode(config))], DataSeen, DataSeen)
