"""`status --watch`: the terminal shows a run as its journal grows."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from aiperf.files import RunFiles
from aiperf.rules.ending import Answer
from analysis.exports.watch import watch_text
from analysis.readings.live import Follower

LEAST_SECONDS = 1.0
SHARE_OF_TIME = 0.05
"""Maximum fraction of the time that is spent on reading and showing."""


def watch_run(files: RunFiles) -> None:
    """Shows the run until it has a result or cannot have one, or until Ctrl-C. Raises JournalError."""
    follower, console = Follower(files), Console(highlight=False)
    follower.update()
    with Live(console=console, auto_refresh=False, screen=False) as live:
        try:
            while True:
                begun = time.monotonic()
                follower.update()
                if follower.replay.lines:
                    text = watch_text(
                        follower.snapshot(follower.silent_seconds), console.width, console.height
                    )
                    live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)
                    if _over(follower):
                        break
                time.sleep(max(LEAST_SECONDS, (time.monotonic() - begun) / SHARE_OF_TIME))
        except KeyboardInterrupt:  # the way to end it
            pass
    if not console.is_terminal:  # rich ends its last line in a terminal only
        console.line()


def _over(follower: Follower) -> bool:
    """Whether the run has a result, or will have none."""
    found = follower.shortfall(follower.silent_seconds)
    return found is None or found.answer is Answer.NO_RESULT
