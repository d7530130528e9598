"""The state of a run, folded from the lines of its journal: legs, ranks, trials, attempts and validations.

Live status, score, rules, report and resume all read a `Replay`, which is a function of the lines alone.
A line that contradicts those before it becomes a fault and changes nothing else. One file, since all events
are folded into the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any

import numpy as np

from aiperf.config import AUTO_STEP, EAGER, ENGINES
from aiperf.journal import events
from aiperf.journal.attempts import Attempt, Leg, Stall, TrialStory
from aiperf.journal.columns import AttemptRows, Blocks, Pieces, Totals, ValidationRow, Validations, Worked
from aiperf.journal.compression import whole_line
from aiperf.journal.events import Line
from aiperf.wire.reports import NOTHING_KEPT, Evaluated, Ready
from aiperf.wire.trial import State
from nas.frozen import frozen
from nas.record import RecordError

TOLD = (State.COMPLETE, State.STOPPED, State.FAILED)
"""States in which a group may report the end of a trial; LOST follows from its silence instead."""

MOST_OF_BLOCK = 1 << 40
"""Steps, or examples, that no group makes in a block or a segment. So sums of them fit into 64 bits."""
DECISIONS = frozenset({events.Dispatched, events.Ended, events.GroupLost, events.LegBegan})
"""Events that determine what the search proposes."""

AFTER_THE_END = (
    events.Beat,
    events.Stalled,
    events.GroupLost,
    events.RankReady,
    events.RankAlike,
    events.HostUsed,
    events.DeviceChecked,
    events.Tested,
)
"""Events that may follow the end of a leg, when some group tests the best network; groups may still be lost
or restarted then."""


@frozen
class Fault:
    """A line that cannot follow those before it."""

    line: int
    text: str


class Replay:
    """The state of a run after the lines that were added so far."""

    def __init__(self) -> None:
        self.legs: list[Leg] = []
        self.trials: dict[int, TrialStory] = {}
        self.attempts: list[Attempt] = []
        self.arrivals: list[Attempt] = []
        """Ended attempts in the order of their lines, which is the order in which the search learns of
        them."""
        self.blocks = Blocks()
        self.validations = Validations()
        self.attempt_rows = AttemptRows()
        self.best: TrialStory | None = None
        """The trial with the lowest validation error among those that ended by themselves or by a limit; of
        equal ones the first to end."""
        self.tested: Evaluated | None = None
        self.tested_line = 0
        """Number of the line with the test; 0 without one."""
        self.broken: list[int] = []
        """Numbers of the lines whose chain does not match."""
        self.faults: list[Fault] = []
        self.lines = 0
        self.last_chain = ""
        self.begin_chain = ""
        """Chain of the line that began the first leg. It identifies a run, however many lines follow."""
        self._decisions: list[events.Event | Attempt] = []
        """As `decisions`; an attempt stands for the event of its end, which would take as much memory."""
        self._opened: events.Opened | None = None
        self._lowest = inf
        self._open: dict[tuple[int, int], Attempt] = {}
        self._of_group: dict[int, dict[int, Attempt]] = {}
        """The attempts in `_open` that are not abandoned, by group and by index."""
        self._pieces: tuple[int, Pieces] | None = None
        """The last answer of `pieces`, with the number of lines that it is of."""

    @property
    def opened(self) -> events.Opened:
        assert self._opened is not None, "no line was added"
        return self._opened

    @property
    def decisions(self) -> Iterator[events.Event]:
        """The events that determine what the search proposes (`DECISIONS`), in order."""
        return (each.ending if isinstance(each, Attempt) else each for each in self._decisions)

    @property
    def leg(self) -> Leg:
        """The last leg."""
        assert self.legs, "no leg began"
        return self.legs[-1]

    @property
    def released(self) -> bool:
        """Whether the clock of any leg started."""
        return bool(self.timed_legs)

    @property
    def timed_legs(self) -> list[Leg]:
        """The legs whose clock started. A leg that was refused before did no work, and contradicts
        nothing."""
        return [leg for leg in self.legs if leg.released is not None]

    @property
    def counted_legs(self) -> list[Leg]:
        """The legs that have a span. Ranks, measurements and data are read from these only: without a span a
        leg did no work, and the rules check it less or not at all. Before any leg has one, those whose clock
        started; before that, all."""
        return [leg for leg in self.legs if leg.span_seconds > 0] or self.timed_legs or self.legs

    @property
    def timed_ranks(self) -> list[events.RankReady]:
        """The ready ranks of the legs whose clock started, in the order of their arrival."""
        return [event for leg in self.timed_legs for event in leg.ranks]

    @property
    def num_legs(self) -> int:
        return len(self.legs)

    @property
    def ranks(self) -> list[events.RankReady]:
        """Ready ranks of the last leg, in the order of their arrival."""
        return self.leg.ranks

    @property
    def devices(self) -> dict[int, Ready]:
        """The last `Ready` of each rank, from the last counted leg in which it took part."""
        return {rank: ready for leg in self.counted_legs for rank, ready in leg.devices.items()}

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Manifest of the data as the first rank of a leg saw it: the first leg whose clock started, else
        any."""
        legs = self.timed_legs or self.legs
        return next((event.ready.data for leg in legs for event in leg.ranks), {})

    @property
    def span_seconds(self) -> float:
        """Length of the span in seconds, over all legs."""
        return sum(leg.span_seconds for leg in self.legs)

    @property
    def seconds_so_far(self) -> float:
        """Length of the span up to the last line: what `AFTER_LAST_LINE_SECONDS` adds to a leg that was
        killed is not added to one that goes on."""
        if not self.legs or self.leg.ended is not None or self.leg.released is None:
            return self.span_seconds
        return self.span_seconds - max(0.0, self.leg.end - self.leg.last)

    @property
    def running(self) -> dict[int, Attempt]:
        """The attempts that began and have not ended, by group."""
        return {a.group: a for a in self._open.values() if a.state is State.RUNNING}

    @property
    def next_number(self) -> int:
        """Number of the trial that is dispatched next."""
        return len(self.trials)

    def name_of(self, row: ValidationRow) -> str:
        """A validation in words."""
        return f"trial {self.attempts[row.attempt].trial.number}, segment {row.segment}"

    def totals(self) -> Totals:
        """Sums over the blocks of each segment. Each attempt has one segment more than were closed."""
        return self.blocks.totals([attempt.num_closed + 1 for attempt in self.attempts])

    def worked(self) -> Worked:
        """Sums over the blocks of each attempt."""
        return self.blocks.worked(len(self.attempts))

    def pieces(self) -> Pieces:
        """All work of the run. Score and rules ask often, so what it has of each attempt is made once."""
        if self._pieces is None or self._pieces[0] != self.lines:
            self._pieces = self.lines, _pieces(self)
        return self._pieces[1]

    def add_line(self, line: Line) -> None:
        """Folds in the next line of the journal as it was read."""
        number, t, event, chain, intact = line
        self.add_read(number, t, type(event), _content(event), chain, intact)

    def add_read(
        self, number: int, t: float, kind: type[events.Event], content: Any, chain: str, intact: bool
    ) -> None:
        """The same of a line of which no event was made: `content` is the event, or its row (`Stepped`,
        `Closed`)."""
        if not intact:
            self.broken.append(number)
        self.last_chain = chain
        if not self.begin_chain and kind is events.LegBegan:
            self.begin_chain = chain
        self._add(t, kind, content)

    def add(self, t: float, event: events.Event) -> None:
        """Folds in the next event, which was written at `t` seconds of its leg."""
        self._add(t, type(event), _content(event))

    def _add(self, t: float, kind: type[events.Event], content: Any) -> None:
        self.lines += 1
        if kind in DECISIONS:
            self._decisions.append(content)
        if kind in _BEFORE_A_LEG:
            text = _BEFORE_A_LEG[kind](self, t, content)
        else:
            text = self._fold(t, kind, content) if self.legs else "comes before the first leg"
        if text:
            self.faults.append(Fault(self.lines, f"{kind.__name__} {text}"))

    def _fold(self, t: float, kind: type[events.Event], content: Any) -> str:
        """Folds in what happened in the last leg; returns what it contradicts, or an empty text."""
        leg = self.legs[-1]
        before, leg.last_line = leg.last, self.lines
        if t > before:
            leg.last = t
        if kind is events.Stalled:
            leg.stalls.append(Stall(before, t))
        elif t - before > leg.longest_silence:
            leg.longest_silence = t - before
        if leg.ended is not None and kind not in AFTER_THE_END:
            return "comes after the end of its leg"
        text = _FOLDS[kind](self, t, content)
        if not text and t < before:
            return f"is at {t:.3f} s, but a line above it is at {before:.3f} s: the clock went backwards"
        return text

    def _open_run(self, t: float, event: events.Opened) -> str:
        if self._opened is not None:
            return "appears twice"
        self._opened = event
        return f"states version {event.rules} of the rules" if event.rules < 1 else ""

    def _began_leg(self, t: float, event: events.LegBegan) -> str:
        for attempt in self._open.values():
            attempt.abandoned = True
        self._open.clear()
        self._of_group.clear()
        line = self.lines
        self.legs.append(Leg(len(self.legs), event, first=t, last=t, first_line=line, last_line=line))
        if event.index != self.leg.index:
            return f"is numbered {event.index}, not {self.leg.index}"
        return "comes after the test: the test examples are used only once, at the end" if self.tested else ""

    def _beat(self, t: float, event: events.Beat | events.Stalled) -> str:
        return ""

    def _nonce_given(self, t: float, event: events.NonceGiven) -> str:
        if self.leg.nonce is not None:
            return "appears twice in its leg"
        if self.leg.released is not None:
            return "comes after the clock started"
        self.leg.nonce, self.leg.nonce_time, self.leg.nonce_line = event, t, self.lines
        return ""

    def _rank_ready(self, t: float, event: events.RankReady) -> str:
        rank = event.ready.rank
        if not self._has(event.group) or rank not in self.leg.began.groups[event.group]:
            return f"of rank {rank}, which is not in group {event.group}"
        ready = self.leg.alive.setdefault(event.group, set())
        if rank in ready:
            return f"of rank {rank} appears twice"
        if wrong := [name for name, value in event.ready.data.items() if not _counts(name, value)]:
            return (
                f"of rank {rank}: {wrong[0]} of its data is "
                f"{event.ready.data[wrong[0]]!r}, not a whole number"
            )
        ready.add(rank)
        self.leg.ranks.append(event)
        self.leg.arrivals.append((t, t - self.leg.started.get(event.group, self.leg.first)))
        self.leg.devices[rank] = event.ready
        self.leg.least_memory_bytes = min(self.leg.least_memory_bytes, event.ready.memory_bytes)
        self.leg.first_devices.setdefault(rank, event.ready)
        self.leg.first_of_host.setdefault(event.ready.host, rank)
        return ""

    def _rank_alike(self, t: float, event: events.RankAlike) -> str:
        try:
            return self._rank_ready(t, whole_line(self.leg.devices.get(event.like), event))
        except RecordError as error:
            return str(error)

    def _ceiling_measured(self, t: float, event: events.CeilingMeasured) -> str:
        return self._measured(self.leg.ceilings, event.ceiling.rank, event.ceiling)

    def _control_measured(self, t: float, event: events.ControlMeasured) -> str:
        return self._measured(self.leg.controls, event.control.rank, event.control)

    def _device_checked(self, t: float, event: events.DeviceChecked) -> str:
        rank, leg = event.check.rank, self.leg
        if rank not in leg.devices:
            return f"of rank {rank}, which was never ready"
        if leg.released is not None and leg.ended is None:
            return f"of rank {rank} comes within the span"
        early = leg.ended is None
        checks = leg.end_checks if not early else leg.repeats if rank in leg.checks else leg.checks
        if rank in checks:
            return f"of rank {rank} appears {'three times' if early else 'twice after the span'}"
        checks[rank] = event.check
        return ""

    def _fabric_measured(self, t: float, event: events.FabricMeasured) -> str:
        if self.leg.fabric is not None:
            return "appears twice in its leg"
        if self.leg.released is not None:
            return "comes after the clock started"
        if event.fabric.impossible:
            return "has a figure that nobody can measure"
        self.leg.fabric = event.fabric
        return ""

    def _measured(self, measured: dict[int, Any], rank: int, found: object) -> str:
        if rank in measured:
            return f"of rank {rank} appears twice"
        if self.leg.released is not None:
            return f"of rank {rank} comes after the clock started"
        measured[rank] = found
        return ""

    def _host_used(self, t: float, event: events.HostUsed) -> str:
        if event.use.rank not in self.leg.devices:
            return f"of rank {event.use.rank}, which was never ready"
        if event.end > t:
            return f"of rank {event.use.rank} ended at {event.end:.3f} s, after this line at {t:.3f} s"
        self.leg.uses.append(event)
        return ""

    def _released(self, t: float, event: events.Released) -> str:
        if self.leg.released is not None:
            return "appears twice in its leg"
        ready = set[int]().union(*self.leg.alive.values())
        missing = sorted(set(self.leg.began.ranks) - ready)
        self.leg.released, self.leg.deadline = t, event.deadline
        return f"comes before rank {missing[0]} was ready" if missing else ""

    def _dispatched(self, t: float, event: events.Dispatched) -> str:
        number = event.trial.number
        story = self.trials.get(number)
        expected = 1 + len(story.attempts) if story else 1
        if event.attempt != expected:
            return f"of trial {number}, attempt {event.attempt}, but the next attempt is {expected}"
        if story and not story.state.ended:
            return f"of trial {number}, which has not ended"
        if not self.leg.alive.get(event.group):
            return f"of trial {number} to group {event.group}, which does not exist"
        attempt = Attempt(len(self.attempts), event, self.leg, self.attempt_rows, self.validations)
        self.attempt_rows.append(t)
        self.attempts.append(attempt)
        story = self.trials.setdefault(number, TrialStory())
        story.attempts += (attempt,)
        self._open[number, event.attempt] = attempt
        self._of_group.setdefault(event.group, {})[attempt.index] = attempt
        return ""

    def _began(self, t: float, event: events.Began) -> str:
        started = event.started
        attempt = self._open.get((started.trial, started.attempt))
        if attempt is None or attempt.state is not State.WAITING:
            return f"of trial {started.trial}, attempt {started.attempt}, which is not waiting"
        if started.engine not in ENGINES:
            return f"of trial {started.trial}: there is no engine {started.engine!r}"
        configured = self.opened.config.training.step
        if started.engine not in (EAGER, configured) and configured != AUTO_STEP:
            return (
                f"of trial {started.trial}: its engine is {started.engine}, but training.step is {configured}"
            )
        if started.threads and len(started.threads) != len(attempt.ranks):
            found, needed = len(started.threads), len(attempt.ranks)
            return f"of trial {started.trial}: threads of {found} ranks, not of {needed}"
        for rank, count in zip(attempt.ranks, started.threads):
            attempt.leg.threads.setdefault(rank, set()).add(count)
        self.attempt_rows.began(attempt.index, t, started.prepare_seconds)
        attempt.began, attempt.built_key = event.end, started.graph_key
        attempt.engine, attempt.chosen, attempt.threads = started.engine, started.chosen, started.threads
        return ""

    def _fell_back(self, t: float, event: events.FellBack) -> str:
        told = event.fallback
        attempt = self._running(told.trial, told.attempt)
        if attempt is None or attempt.began is None:
            return f"of trial {told.trial}, attempt {told.attempt}, which is not running"
        engine = attempt.engine
        if attempt.fallback is not None or told.engine != engine or engine == EAGER:
            return f"of trial {told.trial}: its engine is {engine}, which cannot fall back from {told.engine}"
        attempt.fallback = told
        return ""

    def _stepped(self, t: float, row: events.BlockRow) -> str:
        """Most lines of a long journal are folded in here."""
        trial, number, segment, steps, examples, *_ = row
        attempt = self._running(trial, number)
        if attempt is None:
            return f"of trial {trial}, attempt {number}, which is not running"
        if steps > MOST_OF_BLOCK or examples > MOST_OF_BLOCK:
            return f"of trial {trial}: a block of {steps} steps and {examples} examples is too large"
        if segment != attempt.num_closed:
            return f"of trial {trial}, segment {segment}, but {attempt.num_closed} is open"
        attempt.steps += steps
        self.blocks.append(attempt.index, t, row)
        return ""

    def _closed(self, t: float, row: events.ClosedRow) -> str:
        trial, number, index, steps, trained, _, tally, *_, end, _ = row
        attempt = self._running(trial, number)
        if attempt is None:
            return f"of trial {trial}, attempt {number}, which is not running"
        if index != attempt.num_closed:
            return f"of trial {trial}, segment {index}, but {attempt.num_closed} is open"
        if max(steps, trained, tally.of) > MOST_OF_BLOCK:
            return (
                f"of trial {trial}, segment {index}: {steps} steps, {trained} and {tally.of} examples "
                "are too many"
            )
        attempt.places.append(len(self.validations))
        self.validations.append(attempt.index, t, row, self.legs[-1].in_time(end))
        return ""

    def _running(self, trial: int, number: int) -> Attempt | None:
        attempt = self._open.get((trial, number))
        return None if attempt is None or attempt.began is None or attempt.abandoned else attempt

    def _ended(self, t: float, event: events.Ended) -> str:
        """An attempt is closed even if its line is a fault, so that a later line cannot refer to it."""
        told = event.finished
        attempt = self._open.pop((told.trial, told.attempt), None)
        if attempt is not None:
            self._of_group.get(attempt.group, {}).pop(attempt.index, None)
        where = f"of trial {told.trial}, attempt {told.attempt}: {told.state.value}"
        if attempt is None or attempt.abandoned or told.state not in TOLD:
            return f"{where} cannot follow here"
        if told.out_of_memory and told.state is not State.FAILED:
            return f"{where}, but out of memory"
        if attempt.began is None and told.state is not State.FAILED:
            return f"{where}, but it never began"
        if told.kept is not None and not NOTHING_KEPT <= told.kept < attempt.num_closed:
            return f"{where}, but it keeps the network of segment {told.kept} of {attempt.num_closed}"
        self.attempt_rows.ended(attempt.index, t, told.age_seconds, self.lines, told.weights)
        attempt.ended, attempt.told_state, attempt.reason = event.end, told.state, told.reason
        attempt.out_of_memory, attempt.kept = told.out_of_memory, told.kept
        self._decisions[-1] = attempt
        self.arrivals.append(attempt)
        unbounded = attempt.unbounded if attempt.chosen_from else None
        if unbounded is not None and unbounded < self._lowest:
            self._lowest, self.best = unbounded, self.trials[told.trial]
        return ""

    def _group_lost(self, t: float, event: events.GroupLost) -> str:
        if not self._has(event.group):
            return f"of group {event.group}, which does not exist"
        self.leg.losses.append(event)
        self.leg.alive.pop(event.group, None)
        self.leg.started[event.group] = t
        if self.leg.released is None:  # it will measure again
            for rank in self.leg.began.groups[event.group]:
                self.leg.ceilings.pop(rank, None)
                self.leg.controls.pop(rank, None)
                self.leg.checks.pop(rank, None)
                self.leg.repeats.pop(rank, None)
        for attempt in self._of_group.pop(event.group, {}).values():
            attempt.abandoned = True
        return ""

    def _has(self, group: int) -> bool:
        return 0 <= group < len(self.leg.began.groups)

    def _ended_leg(self, t: float, event: events.LegEnded) -> str:
        self.leg.ended, self.leg.end_line = event, self.lines
        running = [a.trial.number for a in self._open.values() if a.state is State.RUNNING]
        if running and not event.reason.startswith("error"):
            return f"comes while trial {running[0]} is running"
        return ""

    def _tested(self, t: float, event: events.Tested) -> str:
        if self.tested is not None:
            return "appears twice: the test examples are used once"
        if self.leg.ended is None:
            return "comes before the end of its leg: the test examples are used at the end"
        if self.leg.released is None:
            return "comes in a leg whose clock never started"
        if event.evaluated.tally.of < 1:
            return f"has {event.evaluated.tally.of} examples"
        self.tested, self.tested_line = event.evaluated, self.lines
        return ""


_BEFORE_A_LEG: Mapping[type[events.Event], Callable[[Replay, float, Any], str]] = {
    events.Opened: Replay._open_run,
    events.LegBegan: Replay._began_leg,
}
_FOLDS: Mapping[type[events.Event], Callable[[Replay, float, Any], str]] = {
    events.Beat: Replay._beat,
    events.Stalled: Replay._beat,
    events.NonceGiven: Replay._nonce_given,
    events.RankReady: Replay._rank_ready,
    events.RankAlike: Replay._rank_alike,
    events.CeilingMeasured: Replay._ceiling_measured,
    events.ControlMeasured: Replay._control_measured,
    events.DeviceChecked: Replay._device_checked,
    events.FabricMeasured: Replay._fabric_measured,
    events.HostUsed: Replay._host_used,
    events.Released: Replay._released,
    events.Dispatched: Replay._dispatched,
    events.Began: Replay._began,
    events.FellBack: Replay._fell_back,
    events.Stepped: Replay._stepped,
    events.Closed: Replay._closed,
    events.Ended: Replay._ended,
    events.GroupLost: Replay._group_lost,
    events.LegEnded: Replay._ended_leg,
    events.Tested: Replay._tested,
}


def _counts(name: str, value: object) -> bool:
    """Whether an entry of a manifest is a whole number if it must be one; other entries can be anything."""
    counted = name.endswith("_examples") or name in ("channels", "size", "classes")
    return not counted or (type(value) is int and value >= 0)


def _content(event: events.Event) -> Any:
    """What is folded in of an event: itself, or its row."""
    return event.row if isinstance(event, (events.Stepped, events.Closed)) else event


def _pieces(replay: Replay) -> Pieces:
    attempts = replay.attempts
    group = np.array([a.group for a in attempts], dtype=np.int64)
    leg = np.array([a.leg.index for a in attempts], dtype=np.int64)
    batch = np.array([max(1, a.trial.hyper.batch_size) for a in attempts], dtype=np.int64)
    return Pieces(replay.blocks, replay.validations, group, leg, batch)


def replay(lines: Iterable[Line]) -> Replay:
    """The state of a run after all these lines."""
    found = Replay()
    for line in lines:
        found.add_line(line)
    return found
