"""A rank of `aiperf-hpc run --pretend` that notes when an outcome leaves and when the next candidate arrives.

    python -m benchmarks.dispatch_rank FOLDER [--ranks N] -- ARGUMENTS OF aiperf-hpc

It writes FOLDER/RANK: "F" (Finished is sent) or "A" (Assign has arrived) and the monotonic time [s]. With
--ranks it starts this many itself, joined by sockets as those of torchrun are: they are forked when all is
imported, so that 512 of them start in seconds and share their memory.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from pathlib import Path
from typing import ClassVar

from aiperf.commands.main import main as aiperf_hpc
from aiperf.ranks import relay
from aiperf.ranks.launcher import launched_rank
from aiperf.ranks.link import Waited
from aiperf.ranks.relay import Post
from aiperf.wire.messages import Assign, ToGroup
from aiperf.wire.reports import Finished, FromGroup
from benchmarks.script import torchrun_variables


class TimedPost(Post):
    """The way of a rank to the master, with a clock beside it."""

    noted: ClassVar[list[str]] = []

    def receive(self, seconds: float, beside: Waited | None = None) -> ToGroup | None:
        """The message, with its time if it is a candidate."""
        message = super().receive(seconds, beside)
        if isinstance(message, Assign):
            self.noted.append(f"A {time.monotonic()}\n")
        return message

    def send(self, message: FromGroup) -> None:
        """Sends the message, and notes the time of an outcome."""
        if isinstance(message, Finished):
            self.noted.append(f"F {time.monotonic()}\n")
        super().send(message)


def main() -> int:
    before, arguments = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    folder = Path(before[0])
    if "--ranks" not in before:
        return _rank(folder, arguments)
    size = int(before[before.index("--ranks") + 1])
    children = []
    for variables in torchrun_variables(size, "dispatch", port=os.getpid()):
        if not (child := os.fork()):
            os.environ |= variables
            return _rank(folder, arguments)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return next((code for code in codes[1:] if code), codes[0])


def _rank(folder: Path, arguments: list[str]) -> int:
    """Runs the command as one rank, which notes its times when it ends."""
    relay.Post = TimedPost  # type: ignore[misc]
    sys.argv = ["aiperf-hpc", *arguments]
    own = launched_rank(os.environ)
    if own is not None and own.rank:
        atexit.register(lambda: (folder / str(own.rank)).write_text("".join(TimedPost.noted)))
    return aiperf_hpc()


if __name__ == "__main__":
    sys.exit(main())
