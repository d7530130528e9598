"""The answers of other programs: schedulers, drivers, compilers, shells.

A site's programs print headings, warnings and bytes of other encodings, hang, or print without end. All of
them are asked here, so that none of this reaches the code that needs the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from nas.frozen import frozen

MOST_BYTES = 16 << 20
"""Longest answer in bytes. A scheduler describes a job in 5 kB, and a driver's tool a device in 1 kB."""
REAPED_SECONDS = 1.0  # for a killed program to end; one that waits inside its driver never does
LOOK_SECONDS = 0.05
"""Interval in seconds between two looks whether a program has ended whose children hold its output open."""
SHOWN = 200
"""Longest line of an answer that is shown, in characters."""


class ToolFailed(Exception):
    """A program cannot be started, does not answer in time, or prints without end. The message is a verb
    phrase without the program's name."""

    def __init__(self, reason: str, is_missing: bool = False) -> None:
        super().__init__(reason)
        self.is_missing = is_missing


@frozen
class ProgramAnswer:
    """What a program printed, and how it ended."""

    code: int
    """Exit code; negative for the signal that killed it."""
    output: str
    errors: str

    @property
    def text(self) -> str:
        """Output and errors."""
        return "\n".join(filter(None, (self.output, self.errors)))

    @property
    def reason(self) -> str:
        """The last line of the errors, or else of the output: most programs end with what went wrong. A word
        alone is no reason, such as the "Exiting." of Grid Engine."""
        lines = (self.errors or self.output).splitlines()
        said = [line for line in lines if len(line.split()) > 1] or lines
        return said[-1].strip()[:SHOWN] if said else "no reason given"

    @property
    def how(self) -> str:
        """How it ended: "exit code 1", "killed by signal 9"."""
        return f"killed by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"


@frozen
class Rows:
    """The lines of an answer that have the expected form, and those that do not."""

    found: tuple[re.Match[str], ...]
    skipped: tuple[str, ...]
    """Other lines: headings such as `CLUSTER: name`, banners of a site, warnings."""


def ask(
    command: Sequence[str],
    seconds: float,
    given: str = "",
    environment: Mapping[str, str] | None = None,
    keep: Sequence[int] = (),
) -> ProgramAnswer:
    """Runs a program, with `given` on its standard input, and returns its answer.

    `keep` are open file descriptors that it may use. Raises ToolFailed, after at most `seconds`. A process
    that waits inside its driver cannot be killed; it remains then, and so do its children.
    """
    with tempfile.TemporaryFile() as written:
        if given:
            written.write(given.encode(errors="replace"))
            written.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=written if given else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                pass_fds=keep,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolFailed(
                f"cannot be started: {error.strerror}", isinstance(error, FileNotFoundError)
            ) from None
        except ValueError as error:  # a zero byte in an argument
            raise ToolFailed(f"cannot be started: {error}") from None
    try:
        return _heard(process, time.monotonic() + seconds)
    except TimeoutError:
        raise ToolFailed(f"gives no answer in {seconds:g} s") from None
    finally:
        _end(process)


def rows(text: str, form: str) -> Rows:
    """The lines of an answer that match `form` as a whole; empty lines are ignored."""
    lines = [line.strip() for line in text.splitlines()]
    matches = [re.fullmatch(form, line, re.ASCII) for line in lines]
    return Rows(
        tuple(match for match in matches if match),
        tuple(line[:SHOWN] for line, match in zip(lines, matches) if line and not match),
    )


def json_object(text: str) -> Mapping[str, Any]:
    """The object of JSON in an answer, between whatever a site prints before and after it. Raises
    ValueError with the first line for an answer without one."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text[text.find("{") : text.rfind("}") + 1], strict=False)
        if isinstance(found, dict):
            return found
    first = (text.strip().splitlines() or ["nothing"])[0]
    raise ValueError(f"not valid JSON: {first[:SHOWN]!r}")


def _heard(process: subprocess.Popen[bytes], until: float) -> ProgramAnswer:
    """Reads what a program prints until it ends. Raises TimeoutError, and ToolFailed if it prints too
    much."""
    assert process.stdout is not None
    assert process.stderr is not None
    heard: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in heard:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            # Children that outlive the program may hold its output open: it is read while there is some.
            has_ended = process.poll() is not None
            wait = 0.0 if has_ended else min(LOOK_SECONDS, max(0.0, until - time.monotonic()))
            ready = selector.select(wait)
            if has_ended and not ready:
                break
            for key, _ in ready:
                stream = next(each for each in heard if each is key.fileobj)
                piece = os.read(key.fd, 1 << 16)
                heard[stream] += piece
                if not piece:
                    selector.unregister(stream)
            if sum(map(len, heard.values())) > MOST_BYTES:
                raise ToolFailed(f"prints more than {MOST_BYTES >> 20} MiB")
            if not has_ended and time.monotonic() > until:
                raise TimeoutError
    try:
        code = process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:  # it has closed its output
        raise TimeoutError from None
    output, errors = (bytes(each).decode(errors="replace").strip() for each in heard.values())
    return ProgramAnswer(code, output, errors)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills a program that has not ended, with its children."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(REAPED_SECONDS)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
