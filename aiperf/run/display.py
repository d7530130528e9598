"""Progress of a run for the user: lines that are redrawn on a terminal, or plain lines in a log. It reads the
replay only, and an OSError in showing never ends the run."""

from __future__ import annotations

import sys
from contextlib import suppress
from math import inf
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from aiperf.journal.attempts import Attempt
from aiperf.journal.mark import mark_of, marked
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.proposing.plan import measuring_seconds, plan
from aiperf.tasks.registry import task_of
from aiperf.wire.trial import State, origin
from aiperf.wording import clock, counted, percent, rate
from nas.ops import OPS

PLAIN_SECONDS = 5.0
"""Minimum time in seconds between two lines of a log: a quiet run writes to its journal as often."""

PLAIN_LINES = 60
"""Approximate number of lines in the log of a whole run, so that it stays short enough to be read: one per
minute in a run of an hour."""

LIVE_SECONDS = 0.25
"""Minimum time in seconds between two drawings on a terminal, short enough that a clock with seconds never
skips one."""

GROUPS_SHOWN, PLAIN_GROUPS_SHOWN = 8, 2
"""Number of training groups shown: as many as fit on a terminal below the other lines, and into one line of a
log."""


class Display:
    """Shows a replay as it grows. The master calls `show`."""

    def __init__(self, files: RunFiles, terminal: bool | None = None) -> None:
        """`terminal` says whether the output is a terminal, if that cannot be seen from the output itself."""
        self.files = files
        self.console = Console(stderr=False, highlight=False, force_terminal=terminal)
        self.live: Live | None = None
        self._shown = -PLAIN_SECONDS
        self._said = ""
        self._credit = _Credit()

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self.live = Live(console=self.console, auto_refresh=False, transient=True)
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            with suppress(OSError):  # as in `show`
                self.live.stop()

    def show(self, replay: Replay, t: float) -> None:
        """`t` is the leg's time [s]. Too early a call does nothing."""
        if t - self._shown < (_plain_seconds(replay) if self.live is None else LIVE_SECONDS):
            return
        self._shown = t
        try:
            self._draw(replay, t)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Stops showing progress after an error: the terminal is gone, or the disk of the log is full. The
        run itself continues."""
        self._shown = inf
        with suppress(OSError):
            print(f"aiperf-hpc: progress cannot be shown any more ({error.strerror})", file=sys.stderr)

    def _draw(self, replay: Replay, t: float) -> None:
        """Draws the panel on a terminal, or prints a line."""
        if self.live is not None:
            self.live.update(self._panel(replay, t), refresh=True)
        else:
            if not self._said:  # first, because a reader of the log looks for the other files
                print(f"run directory: {self.files.directory}", flush=True)
                if (mark := mark_of(replay.opened.origin)) is not None:
                    print(mark.line, flush=True)
            self._say(_times(replay, t), self._facts(replay, t) + self._trials(replay, t))

    def _say(self, times: list[str], facts: list[str]) -> None:
        """Prints a line of a log, unless only the clock has changed since the last one."""
        said = " · ".join([*times[1:], *facts])
        if said != self._said:
            print(f"{times[0]} · {said}", file=sys.stdout, flush=True)
        self._said = said

    def _facts(self, replay: Replay, t: float) -> list[str]:
        """What is going on in one line: the step of the preparation, the rate and the best network, or the
        end."""
        leg, best, mark = replay.leg, replay.best, mark_of(replay.opened.origin)
        if leg.released is None:
            return [_preparing(replay)]
        if leg.ended is not None:
            return ["testing the best network"]
        if leg.deadline is not None and t >= leg.deadline:
            return [f"the last validations: {counted(len(replay.running), 'group')} not done"]
        best_text = "no trial ended yet"
        if best and best.error is not None:
            error = task_of(replay.opened.config.data).error_text(best.error)
            best_text = marked(f"best ended trial {best.number}: error {error}", mark)
        so_far = rate(self._credit.of(replay) / max(replay.seconds_so_far, 1e-9))
        return [marked(f"{so_far} so far", mark), best_text]

    def _trials(self, replay: Replay, t: float) -> list[str]:
        """The trials of the first groups, and how many more there are; none after the end."""
        leg = replay.leg
        if leg.ended is not None or (leg.deadline is not None and t >= leg.deadline):
            return []
        shown = _first(replay, PLAIN_GROUPS_SHOWN)
        more = len(replay.running) - len(shown)
        return [self._running(replay, trial) for trial in shown] + ([f"and {more} more"] if more > 0 else [])

    def _running(self, replay: Replay, attempt: Attempt) -> str:
        """A trial in a few words: what it is, its epoch, its last error."""
        error = f", now {percent(attempt.error)}" if attempt.error is not None else ""
        trial = attempt.trial
        epoch = self._share(replay, attempt) * trial.epochs
        return f"trial {trial.number} ({origin(trial)}) epoch {epoch:.0f}/{trial.epochs}{error}"

    def _share(self, replay: Replay, attempt: Attempt) -> float:
        """How far a trial is in its plan, from 0 to 1."""
        examples = int(replay.ranks[0].ready.data["training_examples"])
        return attempt.steps / plan(attempt.trial, replay.opened.config.training, examples).steps

    def _panel(self, replay: Replay, t: float) -> Group:
        """The lines on a terminal: head, bar of the span, facts, and a bar for each group shown."""
        opened, leg = replay.opened, replay.leg
        device = leg.ranks[0].ready.device if leg.ranks else "…"
        device = marked(device, mark_of(opened.origin))
        head = f"[bold]aiperf-hpc[/] · {opened.config.preset} · {device} · {self.files.directory}"
        times, facts = _times(replay, t), self._facts(replay, t)
        if leg.released is None or leg.ended is not None:
            return Group(head, "  " + " · ".join([*times, *facts]))
        ended = sum(attempt.state is State.COMPLETE for attempt in replay.arrivals)
        failed = sum(attempt.state is State.FAILED for attempt in replay.arrivals)
        span, table = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 2))
        if leg.deadline is not None:
            bar = ProgressBar(total=leg.deadline - leg.released, completed=t - leg.released, width=40)
            span.add_row(" ", bar, " · ".join(times))
        for trial in _first(replay, GROUPS_SHOWN):
            bar = ProgressBar(total=1.0, completed=self._share(replay, trial), width=20)
            table.add_row(f"  group {trial.group}", bar, self._running(replay, trial))
        if (more := len(replay.running) - GROUPS_SHOWN) > 0:
            table.add_row("", "", f"and {more} more groups")
        return Group(head, span, "  " + " · ".join([*facts, f"{ended} complete, {failed} failed"]), table)


class _Credit:
    """Operations of the closed segments so far. This is a quick sum for the display; what is credited in the
    end is decided by `aiperf.score`."""

    def __init__(self) -> None:
        self.total = 0
        self._seen: dict[int, int] = {}

    def of(self, replay: Replay) -> int:
        """The operations so far, in OPS. Only trials that have changed since the last call are added up, so
        that a call takes the same time in a long run."""
        recent = {attempt.index: attempt for attempt in replay.arrivals[-64:]}
        recent |= {attempt.index: attempt for attempt in replay.running.values()}
        for index, attempt in recent.items():
            new = attempt.rows[self._seen.get(index, 0) :]
            self._seen[index] = attempt.num_closed
            dispatched = attempt.dispatched
            train = (dispatched.forward + dispatched.backward).price(OPS)
            evaluate = dispatched.evaluate.price(OPS)
            self.total += sum(train * row.train_examples + evaluate * row.of for row in new)
        return self.total


def _preparing(replay: Replay) -> str:
    """The current step of the preparation before the clock starts, its progress, and how long a CPU takes for
    it."""
    leg = replay.leg
    ranks = sum(map(len, leg.began.groups))
    ready = sum(map(len, leg.alive.values()))
    bounded = any(event.ready.processor for event in leg.ranks)
    seconds = measuring_seconds(replay.opened.config.limits) / 2
    about = f", about {seconds:.0f} s" if bounded else ""
    if ready < ranks:
        return f"starting the workers, loading the data: {ready} of {ranks} ready"
    if len(leg.controls) == ranks:
        return f"checking the bits that devices compute: {len(leg.checks)} of {ranks} done"
    if len(leg.ceilings) < ranks:
        what, done = "measuring threads and ceilings", len(leg.ceilings)
    else:
        control = task_of(replay.opened.config.data).control
        network = control.smaller if bounded and control.smaller else control
        what, done = f"timing the control, {network.short}", len(leg.controls)
    return f"{what}{about}: {done} of {ranks} done"


def _first(replay: Replay, most: int) -> list[Attempt]:
    """The trials of the groups with the lowest numbers, at most `most` of them."""
    return [replay.running[group] for group in sorted(replay.running)[:most]]


def _times(replay: Replay, t: float) -> list[str]:
    """The time to show: before the clock starts and after the end that of the leg, and which part it is; in
    between that of the span, and its length."""
    leg = replay.leg
    if leg.released is None:
        return [f"{clock(t)} before the span"]
    if leg.ended is not None:
        return [f"{clock(max(0.0, t - leg.end))} after the span"]
    if leg.deadline is None:
        return [clock(t - leg.released)]
    length = leg.deadline - leg.released
    late = t - leg.deadline
    return [f"{clock(late)} after the span" if late > 0 else f"{clock(t - leg.released)} of {clock(length)}"]


def _plain_seconds(replay: Replay) -> float:
    """Minimum time in seconds between two lines of a log: about PLAIN_LINES lines per run."""
    leg = replay.leg
    span = 0.0 if leg.released is None or leg.deadline is None else leg.deadline - leg.released
    return max(PLAIN_SECONDS, span / PLAIN_LINES)
