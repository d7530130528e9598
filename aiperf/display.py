"""What a person sees while a run goes on: lines that renew themselves, or plain lines in a log."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from aiperf.files import RunFiles
from aiperf.plan import plan
from aiperf.replay import Replay
from aiperf.story import Attempt
from aiperf.trial import State
from analysis.wording import clock, origin, percent, rate
from nas.ops import OPS, Ops

__all__ = ["Display"]

PLAIN_SECONDS = 5.0  # between two lines where nobody watches
LIVE_SECONDS = 0.25
GROUPS_SHOWN = 8


class Display:
    """Shows a replay as it grows. Give `show` to the master."""

    def __init__(self, files: RunFiles, terminal: bool | None = None) -> None:
        """`terminal` says whether a person watches where the output cannot tell."""
        self.files = files
        self.console = Console(stderr=False, highlight=False, force_terminal=terminal)
        self.live: Live | None = None
        self._shown = -PLAIN_SECONDS
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
            self.live.stop()

    def show(self, replay: Replay, t: float) -> None:
        """`t` is the leg's time [s]."""
        if t - self._shown < (PLAIN_SECONDS if self.live is None else LIVE_SECONDS):
            return
        self._shown = t
        if self.live is not None:
            self.live.update(self._panel(replay, t), refresh=True)
        else:
            print(" · ".join(self._facts(replay, t)), file=sys.stdout, flush=True)

    def _facts(self, replay: Replay, t: float) -> list[str]:
        leg = replay.leg
        if leg.released is None:
            what = "measuring the devices" if leg.ranks else "starting the workers, loading the data"
            return [clock(t), what]
        if leg.ended is not None:
            return [clock(t), "testing the best network"]
        facts = [clock(t - leg.released)]
        if leg.deadline is not None:
            facts.append(f"{clock(leg.deadline - t)} left")
        facts.append(f"{rate(self._credit.of(replay) / max(replay.span_seconds, 1e-9))} so far")
        best = replay.best
        facts.append(
            f"best error {percent(best.error)} (trial {best.number})" if best else "no trial ended yet"
        )
        return facts + [self._running(replay, running) for running in _first(replay)]

    def _running(self, replay: Replay, attempt: Attempt) -> str:
        error = f", error {percent(attempt.error)}" if attempt.error is not None else ""
        trial = attempt.trial
        epoch = self._share(replay, attempt) * trial.epochs
        return f"trial {trial.number} ({origin(trial)}) epoch {epoch:.0f}/{trial.epochs}{error}"

    def _share(self, replay: Replay, attempt: Attempt) -> float:
        images = int(replay.ranks[0].ready.data["training_images"])
        return attempt.steps / plan(attempt.trial, replay.opened.config.training, images).steps

    def _panel(self, replay: Replay, t: float) -> Group:
        opened, leg = replay.opened, replay.leg
        device = leg.ranks[0].ready.device if leg.ranks else "…"
        head = f"[bold]aiperf-hpc[/] · {opened.config.preset} · {device} · {self.files.directory}"
        if leg.released is None or leg.ended is not None:
            return Group(head, "  " + " · ".join(self._facts(replay, t)))
        table = Table.grid(padding=(0, 2))
        for trial in _first(replay):
            bar = ProgressBar(total=1.0, completed=self._share(replay, trial), width=20)
            table.add_row(f"  group {trial.group}", bar, self._running(replay, trial))
        ended = sum(attempt.state is State.COMPLETE for attempt in replay.arrivals)
        failed = sum(attempt.state is State.FAILED for attempt in replay.arrivals)
        facts = self._facts(replay, t)[: 4 if leg.deadline is not None else 3]
        line = "  " + " · ".join(facts) + f" · {ended} trials complete, {failed} failed"
        parts: list[object] = [head, line, table]
        if leg.deadline is not None:
            span = leg.deadline - leg.released
            parts.insert(1, ProgressBar(total=span, completed=t - leg.released, width=60))
        return Group(*parts)  # type: ignore[arg-type]


class _Credit:
    """Operations of the closed segments so far. A quick sum to look at; `aiperf.score` has the rules."""

    def __init__(self) -> None:
        self.total = 0
        self._seen: dict[int, int] = {}

    def of(self, replay: Replay) -> int:
        recent = {attempt.index: attempt for attempt in replay.arrivals[-64:]}
        recent |= {attempt.index: attempt for attempt in replay.running.values()}
        for index, attempt in recent.items():
            new = attempt.validations[self._seen.get(index, 0) :]
            self._seen[index] = len(attempt.validations)
            dispatched = attempt.dispatched
            train = (Ops(*dispatched.forward) + Ops(*dispatched.backward)).price(OPS)
            evaluate = Ops(*dispatched.evaluate).price(OPS)
            for validation in new:
                self.total += train * validation.segment.train_images + evaluate * validation.segment.of
        return self.total


def _first(replay: Replay) -> list[Attempt]:
    return [replay.running[group] for group in sorted(replay.running)[:GROUPS_SHOWN]]
