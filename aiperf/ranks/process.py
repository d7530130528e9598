"""Processes for what needs torch: the worker that trains, as a child of the process that speaks for it, so
that a crash ends only the child; the description of a device; and the number of visible devices."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from aiperf.errors import AiperfError, DataError, WorldError
from aiperf.host import variables
from aiperf.host.child_process import Child, NoReply
from aiperf.host.scheduler_warning import ALL, WARNINGS, held
from aiperf.pretending.assumptions import Assumptions
from aiperf.wire.layout import Described, Place
from nas.record import decode, encode

QUIT_SECONDS = 10.0
"""Time in seconds for a worker to leave by itself."""
DESCRIBE_SECONDS = 300.0
"""Time limit in seconds for a process that imports torch, which may come from a cold network file system."""
# A libgomp thread that waits for others spins 300,000 times before it sleeps. If another program uses one of
# the cores, it spins until the kernel gives the core back: on two cores a step of the digits' seed took
# 1,000 ms with two threads and 17 ms with one. With this few spins it took 48 ms there, and on idle cores a
# tenth longer than with many.
FEW_SPINS: Mapping[str, str] = {"GOMP_SPINCOUNT": "1000"}
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables by which a user chooses how threads wait; if one of them is set, FEW_SPINS is not."""
DEVICE_FILES = ("nvidia[0-9]*", "kfd", "davinci[0-9]*", "dri/renderD*")
"""Device files of the drivers of NVIDIA, AMD, Ascend and Intel, in /dev."""


class RankWorker(Protocol):
    """A worker as the rank that speaks for it sees it."""

    def send(self, data: bytes) -> None:
        """Sends a packed message; it is dropped if the worker has ended."""

    def fileno(self) -> int:
        """File descriptor on which its next message can be waited for together with others."""

    def receive(self, seconds: float) -> bytes | None:
        """The next message, or None if none arrives within `seconds`. Raises EOFError if the worker has
        ended."""

    def obituary(self) -> str:
        """How a worker ended, and its last error, in one line."""

    def end(self) -> None:
        """Waits for the end of a worker that was asked to quit, and kills it if it does not end."""

    def kill(self) -> None:
        """Ends the worker at once."""


class WorkerProcess:
    """A worker in a child process, joined by a socket pair; it ends when the pair is closed."""

    def __init__(self, place: Place, device: str, log: Path) -> None:
        """Starts it. `device` is the kind that it binds; its output goes to `log`. Raises OSError if the
        process or its log cannot be created."""
        self._log = log
        ours, theirs = socket.socketpair()
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "aiperf.training.worker_process", "--socket", str(theirs.fileno())]
        command += ["--device", device, "--place", json.dumps(encode(place))]
        with open(log, "ab") as file, held(*ALL):
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment(os.environ),
                start_new_session=True,  # signals of the terminal and of mpiexec are for the master
            )
        theirs.close()  # or the end of the process would not be noticed
        self._connection = Connection(ours.detach())

    def send(self, data: bytes) -> None:
        """Sends a packed message. To a process that has ended it does nothing; `receive` reports the end."""
        with contextlib.suppress(OSError):
            self._connection.send_bytes(data)

    def fileno(self) -> int:
        """File descriptor on which its next message can be waited for together with others."""
        return self._connection.fileno()

    def receive(self, seconds: float) -> bytes | None:
        """The next message, or None if none arrives within `seconds`. Raises EOFError if the process has
        ended."""
        try:
            return self._connection.recv_bytes() if self._connection.poll(seconds) else None
        except OSError:
            raise EOFError from None

    def obituary(self) -> str:
        """How the process ended, in one line with the last line of its log. It is called after `receive` has
        raised, so the process is about to end, and this waits for the exit code."""
        try:
            code = self._process.wait(QUIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"the worker (process {self._process.pid}) fell silent in its last moments"
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"the worker (process {self._process.pid}) {how}; {_last_words(self._log)}"

    def end(self) -> None:
        """Waits until the process, which was asked to quit, has exited; after QUIT_SECONDS it is killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(QUIT_SECONDS)
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()


def worker_at(place: Place, device: str, log: Path, pretend: Assumptions | None) -> RankWorker:
    """Starts a worker that trains on a device of this kind, or pretends. Raises OSError if it cannot be
    started."""
    if pretend is None:
        return WorkerProcess(place, device, log)
    from aiperf.ranks.pretender import Pretender  # safetensors, which looking at results does without

    return Pretender(place, pretend, log)


def device_at(place: Place, device: str, pretend: Assumptions | None) -> Described:
    """The device that such a worker would bind."""
    if pretend is None:
        return describe_device(place, device)
    from aiperf.pretending.rank_report import pretended_device

    return pretended_device(place, pretend)


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of a process that trains: this process's own, plus FEW_SPINS unless the user has
    chosen how threads wait."""
    return {**own, **({} if any(variables.raw(own, name) is not None for name in WAITING) else FEW_SPINS)}


def describe_device(place: Place, kind: str) -> Described:
    """The device that a worker at this place would bind. A separate process, which imports torch, binds it to
    find out."""
    try:
        with held(*WARNINGS):
            child = Child("aiperf.training.worker_process:describe", kind, json.dumps(encode(place)))
            return decode(Described, child.answer(DESCRIBE_SECONDS))
    except (AiperfError, NoReply) as error:
        return Described(place.rank, str(error))


def infer_data(folder: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Configuration keys, by dotted name, that follow from the images in a folder. A separate process finds
    them, because it imports torch. Raises DataError."""
    try:
        with held(*WARNINGS):
            found = Child("aiperf.data.own_images:infer", folder, json.dumps(settings)).answer()
    except AiperfError as error:
        raise DataError(str(error)) from None
    except NoReply as error:
        raise DataError(f"{folder} cannot be looked at: {error}") from None
    assert isinstance(found, dict), found
    return found


def _last_words(log: Path) -> str:
    """The last line of a log, which is the error of a Python process that died."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))  # a log may be long
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError as error:
        return f"its error is unknown, for {log} cannot be read ({error.strerror})"
    return f"error: {lines[-1]}" if lines else "it wrote no error"


def visible_devices(kind: str, folder: Path = Path("/dev")) -> int:
    """Number of devices of the kind that torch sees; devices that the launcher hides do not count. A CPU is
    one. A separate process counts them, and only if a driver's device files exist."""
    if kind == "cpu" or not any(any(folder.glob(pattern)) for pattern in DEVICE_FILES):
        return 1
    try:
        with held(*WARNINGS):
            found = Child("aiperf.device:count_visible", kind).answer(DESCRIBE_SECONDS)
    except AiperfError as error:
        raise WorldError(str(error)) from None
    except NoReply as error:
        raise WorldError(f"cannot count the devices: {error}; try --devices 1") from None
    assert isinstance(found, int), found
    return found
