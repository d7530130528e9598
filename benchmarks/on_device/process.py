"""A part's process, which ends with the one that waits for it, however that one ends.

    python -m benchmarks.on_device.process COMMAND...

leads the group of COMMAND and of what it starts. Its input is a pipe that only the waiting process holds
open: where that is killed, the pipe ends, and the group is killed. It needs neither Python's lock in the part
nor a recent kernel.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
END_SECONDS = 15.0
# A group of processes, so that what a part starts ends with it.
OWN_GROUP: Mapping[str, Any] = (
    {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
)


def wait(command: Sequence[str], output: int, seconds: float) -> int | None:
    """The exit status of a command, whose output goes to a file; None where it was not over after this many
    seconds. It is ended, with whatever it had started, when this returns or raises."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.on_device.process", *command],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        close_fds=False,  # it holds the folder's lock, which is not for the part: state.held
        **OWN_GROUP,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def environment() -> dict[str, str]:
    """The environment of all processes, in which the checkout need not be installed."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks the group to end, then kills it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):  # all of them have ended
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
    if process.stdin:
        process.stdin.close()


def main() -> int:
    """Ends as the command does, by the same signal or with the same exit code."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # for the command, which would take over SIG_IGN
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_input, daemon=True).start()
    status = command.wait()
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command's core is enough
        with suppress(OSError):  # of SIGKILL, which has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _end_with_input() -> None:
    """Kills the group when the pipe ends: then whoever waited is gone."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
