"""Processes of this program that answer one question, and then end.

A question that needs torch, or whose answer may hang or kill the process, is asked in a process of its own.
The answer goes over a file descriptor of its own, never over standard output, where a site's hooks, modules
and libraries print whenever they like: also after the answer, when Python ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import BinaryIO

from aiperf.errors import AiperfError, ForeignLibrary
from aiperf.host.package_clash import foreign_fault, foreign_library, refuse_old_library
from aiperf.host.programs import SHOWN


class NoReply(Exception):
    """A process ended without an answer. The message is the reason in one line."""


class BrokenImport(NoReply):
    """A process could not import a library."""


class Killed(NoReply):
    """A process was killed by a signal."""

    def __init__(self, reason: str, signal: int) -> None:
        super().__init__(reason)
        self.signal = signal


class NotInTime(NoReply, TimeoutError):
    """A process took too long, and was killed."""


class Child:
    """A process that calls one function, is started at once, and is asked for its answer later."""

    def __init__(
        self,
        function: str,
        *words: str,
        keep: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        errors: int | None = subprocess.STDOUT,
    ) -> None:
        """Starts it. `function` is a module's function, `module:name`, that is called with the words and
        returns what JSON can hold. `keep` are open file descriptors that it may use; `errors` says where its
        standard error goes, None to that of this process."""
        # Files, because a pipe that is not read would block a child that writes a lot.
        self._answer = answer_file()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        number = self._answer.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(number), function, *words],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=errors,
            pass_fds=(number, *keep),
            env=environment,
        )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def answer(self, seconds: float | None = None) -> object:
        """The answer, after at most `seconds`; a process that takes longer is killed. It can be asked for
        once.

        Raises NoReply, and AiperfError if the function raised one. A child whose exit hooks fail has
        answered; one that a signal killed has not, because its driver may be broken.
        """
        try:
            code = self._process.wait(None if seconds is None else max(0.0, seconds))
            told, printed = written(self._answer), written(self._output)
        except subprocess.TimeoutExpired:
            raise NotInTime(f"no answer in {seconds:.0f} s") from None
        finally:
            self.kill()
        try:
            kind, answer = json.loads(told)
        except ValueError:
            kind, answer = "", None
        last = (printed.strip().splitlines() or ["no reason given"])[-1][:SHOWN]
        if code < 0:
            reason = f"its process was killed by signal {-code}: {last}"
            if kind == "foreign":
                raise ForeignLibrary(f"{answer[0]}; {reason}", answer[1])
            raise Killed(reason, -code)
        if kind == "foreign":
            raise ForeignLibrary(*answer)
        if kind == "refused":
            raise AiperfError(str(answer))
        if kind == "import":
            raise BrokenImport(f"its process failed: {answer}")
        if kind != "answer":
            raise NoReply(f"its process failed: {answer or last}")
        return answer

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._answer.close()
        self._output.close()


def answer_file() -> BinaryIO:
    """A file in memory for the answer of a process, so that no full disk can lose it."""
    with contextlib.suppress(AttributeError, OSError):  # a Python for an older C library, or kernel, has none
        return os.fdopen(os.memfd_create("answer"), "w+b")
    return tempfile.TemporaryFile()


def written(file: BinaryIO) -> str:
    """What a process has written so far. The position, which both share, stays."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")


def die_with_parent() -> None:
    """However the parent ends, and whatever a library of ours is waiting for: prctl(2), PR_SET_PDEATHSIG."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main() -> None:
    """Entry point of the child: the descriptor of the answer, the function, its words."""
    number, function, *words = sys.argv[1:]
    module, _, name = function.partition(":")
    try:
        refuse_old_library("numpy", "torch")
        if foreign := foreign_library("numpy", "torch"):  # it may kill this process
            put(number, ["foreign", (foreign.seen, foreign.remedy)])
        answer = ["answer", getattr(import_module(module), name)(*words)]
    except ForeignLibrary as error:
        answer = ["foreign", (error.seen, error.remedy)]
    except AiperfError as error:
        answer = ["refused", str(error)]
    except Exception as error:
        fault = foreign_fault(error)
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:SHOWN]}"
        kind = "import" if isinstance(error, ImportError) else "failed"
        put(number, ["foreign", (fault.seen, fault.remedy)] if fault else [kind, reason])
        raise
    put(number, answer)


def put(number: str, answer: object) -> None:
    """Writes the answer over the one before."""
    with os.fdopen(int(number), "wb", closefd=False) as file:
        file.seek(0)
        file.truncate()
        file.write(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
