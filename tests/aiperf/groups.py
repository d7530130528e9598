"""One leg of a run by the real master, against groups that train nothing: they answer as a script says.

Nobody waits: master and groups share a clock that is turned on when all of them do.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aiperf.clock import Clock
from aiperf.config import Config, with_overrides
from aiperf.errors import WorldError
from aiperf.journal.events import Opened
from aiperf.journal.file import VERSION, read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.journal.writer import JournalWriter
from aiperf.proposing.jobs import Jobs
from aiperf.ranks.world import Gone
from aiperf.run.handler import Audience
from aiperf.run.ledger import Ledger
from aiperf.run.master import Master
from aiperf.tasks.images.tally import Classified
from aiperf.wire.clocks import SAME_CLOCK, ClockReading
from aiperf.wire.layout import Described
from aiperf.wire.messages import (
    Assign,
    CheckDevice,
    Evaluate,
    MeasureCeiling,
    MeasureControl,
    NextWanted,
    Refused,
    Release,
    Setup,
    Steps,
    Stop,
    ToGroup,
    Validated,
    pack,
    unpack,
)
from aiperf.wire.reports import (
    Ceiling,
    Control,
    DeviceCheck,
    Evaluated,
    Finished,
    FromGroup,
    Rate,
    Ready,
    Started,
)
from aiperf.wire.trial import Segment, State, StepBlock
from nas.record import graph_to_json
from nas.seeds import residual
from tests.aiperf.presets import resolved_preset
from tests.journals import READY

STEP_SECONDS = 0.01
STEPS, BATCH, VALIDATED = 4, 50, 400
RATE = Rate(1e11, 9e10, 0.01)

PROCESSOR = Described(1, "a processor", "cpu", 8 << 30, {"fp32": 2e11, "bf16": 1e11})
"""What `describe_device` finds out in a process of its own."""

Doing = Iterable[float]
"""What a group does with a message: seconds that pass between what it says."""


class Obedient:
    """A group that does what it is told, quickly. Subclasses do one thing differently."""

    def __init__(self, world: FakeWorld, index: int) -> None:
        self.world, self.index, self.ranks = world, index, world.groups[index]
        self.inbox, self.heard = deque[ToGroup](), list[ToGroup]()
        self.halted, self.deadline, self.trained = False, inf, 0
        self.idle, self._course = True, self._run()

    def hear(self, message: ToGroup) -> None:
        self.halted = self.halted or isinstance(message, Stop)
        self.inbox.append(message)
        if self.idle:
            self.go_on()

    def go_on(self) -> None:
        """Until it waits for time to pass or for a message."""
        seconds = next(self._course)
        self.idle = seconds is None
        if seconds is not None:
            self.world.after(seconds, self.go_on)

    def _run(self) -> Iterator[float | None]:
        while True:
            while not self.inbox:
                yield None
            message = self.inbox.popleft()
            self.heard.append(message)
            yield from self.do(message)

    def do(self, message: ToGroup) -> Doing:
        if isinstance(message, Release) and message.seconds_left is not None:
            self.deadline = self.world.now + message.seconds_left
        plain = {Setup: self.set_up, MeasureCeiling: self.ceiling, MeasureControl: self.control}
        asked = {CheckDevice: self.check_device, Assign: self.assigned, Evaluate: self.evaluate}
        kind: Any = type(message)
        return asked[kind](message) if kind in asked else plain.get(kind, tuple)()

    def say(self, *said: FromGroup | Gone) -> Doing:
        """Not heard once it was started again."""
        if self.world.workers[self.index] is self:
            self.world.mail += [(self.index, each if isinstance(each, Gone) else pack(each)) for each in said]
        return ()

    def die(self, reason: str) -> Doing:
        """Says nothing more, whatever it is told."""
        self.say(Gone(reason))
        yield inf

    def set_up(self) -> Doing:
        return self.say(*map(self.ready, self.ranks))

    def ready(self, rank: int) -> Ready:
        return replace(READY, rank=rank, wall_seconds=self.world.now)

    def ceiling(self) -> Doing:
        return self.say(*map(self.measured, self.ranks))

    def measured(self, rank: int) -> Ceiling:
        return Ceiling(rank, "node1", "a device", "bf16", 2048, RATE, RATE)

    def control(self) -> Doing:
        return self.say(*(Control(rank, "node1", "a device", 8, 5, 1.0, 40.0) for rank in self.ranks))

    def check_device(self, message: CheckDevice) -> Doing:
        return self.say(*(DeviceCheck(rank, ("b175",), 2, 0.1) for rank in message.ranks or self.ranks))

    def evaluate(self, evaluate: Evaluate) -> Doing:
        return self.say(Evaluated(evaluate.trial, Classified(1197, 1000), 0.1))

    def assigned(self, assign: Assign) -> Doing:
        if self.halted or self.world.now > self.deadline:
            self.end(assign, State.WAITING)
        else:
            if self.trained:  # as where a trial takes no longer than a preparation
                self.say(NextWanted(assign.trial.number, assign.attempt))
            yield from self.train(assign)
            self.trained += 1

    def train(self, assign: Assign) -> Doing:
        self.say(Started(assign.trial.number, assign.attempt, "key", 0.01))
        yield from self.work(assign)

    def work(self, assign: Assign) -> Doing:
        """What it does in a trial once it has begun."""
        yield STEPS * STEP_SECONDS
        tally = Classified(VALIDATED, 300 + 10 * min(assign.trial.number, 9))
        self.say(block(assign), validated(assign, tally))
        self.end(assign, State.COMPLETE)

    def end(self, assign: Assign, state: State, reason: str = "", **more: Any) -> Doing:
        return self.say(Finished(assign.trial.number, assign.attempt, state, reason, **more))


def dies_in(moment: str, reason: str = "killed by signal 9") -> type[Obedient]:
    """A group that dies in this, its first of that kind."""

    class Dies(Obedient): ...

    setattr(Dies, moment, lambda self, *asked: self.die(reason))
    return Dies


def works_for(seconds: float, *says: FromGroup, every: float = 0.0) -> type[Obedient]:
    """A group whose trials take so much longer, in which it says this every so often."""

    class Long(Obedient):
        def work(self, assign: Assign) -> Doing:
            for _ in range(round(seconds / (every or seconds))):
                yield every or seconds
                self.say(*says)
            yield from super().work(assign)

    return Long


class NeverReady(Obedient):
    def do(self, message: ToGroup) -> Doing:
        return ()


class Refuses(Obedient):
    def set_up(self) -> Doing:
        self.say(Refused(2, "node2", "the data is not here"))
        return self.die("it ended")


def block(assign: Assign, steps: int = STEPS, seconds: float = STEPS * STEP_SECONDS, age: float = 0) -> Steps:
    return Steps(StepBlock(assign.trial.number, assign.attempt, 0, steps, steps * BATCH, seconds, 1.5), age)


def validated(assign: Assign, tally: Classified, age: float = 0) -> Validated:
    examples, seconds = STEPS * BATCH, STEPS * STEP_SECONDS
    number, attempt = assign.trial.number, assign.attempt
    return Validated(Segment(number, attempt, 0, STEPS, examples, seconds, tally, STEP_SECONDS), age)


@dataclass
class Turned:
    """A clock that is turned by hand."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class FakeWorld:
    """A world of these groups; every message goes through its wire form."""

    def __init__(
        self,
        *kinds: type[Obedient],
        ranks: int = 1,
        restartable: bool = True,
        again: type[Obedient] = Obedient,
    ) -> None:
        """`again`: what a group is that was started again."""
        numbers = range(1, 1 + ranks * len(kinds))
        self.groups = tuple(tuple(numbers[first : first + ranks]) for first in range(0, len(numbers), ranks))
        self.clocks = dict[int, ClockReading]()
        """What the clocks of ranks showed, unless it is the master's clock."""
        self.restartable, self.again, self.restarts = restartable, again, list[int]()
        self.clock, self.now = Turned(), 0.0
        """The master's, which may be held up, and the time of what the groups do meanwhile [s]."""
        self.mail, self.said = deque[tuple[int, bytes | Gone]](), list[str]()
        self._events, self._order = list[tuple[float, int, Callable[[], object]]](), count()
        self.workers = [kind(self, index) for index, kind in enumerate(kinds)]

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        self._at(self.now + seconds, action)

    def _at(self, t: float, action: Callable[[], object]) -> None:
        if t < inf:
            heapq.heappush(self._events, (t, next(self._order), action))

    def send(self, group: int, message: ToGroup) -> None:
        worker, data = self.workers[group], pack(message)
        self._at(self.clock.now, lambda: worker.hear(unpack(ToGroup, data)))

    def send_all(self, message: ToGroup) -> None:
        for group in range(len(self.groups)):
            self.send(group, message)

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        now, until = self.clock.now, self.clock.now + seconds
        while self._events and self._events[0][0] <= (now if self.mail else until):
            self.now, _, action = heapq.heappop(self._events)
            action()
        if not self.mail:
            self.now = self.clock.now = until
            return None
        self.clock.now = max(now, self.now)
        group, content = self.mail.popleft()
        return group, content if isinstance(content, Gone) else unpack(FromGroup, content)

    def clock_of(self, rank: int) -> ClockReading:
        return self.clocks.get(rank, SAME_CLOCK)

    def restart(self, group: int) -> bool:
        self.restarts.append(group)
        if self.restartable:
            self.mail = deque(each for each in self.mail if each[0] != group)
            self.workers[group] = self.again(self, group)
        return self.restartable

    def close(self) -> None: ...


@contextmanager
def begun(files: RunFiles, config: Config, clock: Clock) -> Iterator[Ledger]:
    """The ledger of a run of which nothing is written but its first line."""
    opened, told = Opened(VERSION, "run", "0", "code", config, graph_to_json(residual())), Replay()
    with JournalWriter.begin(files) as journal:
        journal.write(0.0, opened)
        told.add(0.0, opened)
        yield Ledger(journal, told, Jobs.of(config, residual(), told), clock)


def lead(
    directory: Path,
    world: FakeWorld,
    silence_seconds: float = 60.0,
    before: Callable[[Master], object] = lambda master: None,
    changes: Mapping[str, object] = MappingProxyType({}),
    **limits: float,
) -> Replay:
    """One leg in the folder `run` of that directory, as its journal tells it."""
    chosen = {"limits.minutes": 0.0, **{f"limits.{name}": value for name, value in limits.items()}, **changes}
    files, audience = RunFiles(directory / "run"), Audience(lambda run, t: None, world.said.append)
    with begun(files, with_overrides(resolved_preset("digits"), chosen), world.clock) as ledger:
        master = Master(ledger, files, world, audience, silence_seconds)
        before(master)
        master.run("now", ("aiperf-hpc",))
    found = replay(read_journal(files.journal))
    assert found.faults == []
    return found


def leader(folders: Iterator[Path]) -> Callable[..., str]:
    """Leads legs for a table, each in a folder of its own."""

    def led(world: FakeWorld, stop: tuple[float, str] | None = None, **options: Any) -> str:
        """How a leg ends that may be stopped after some seconds: what became of its trials, how many each
        group was given, who was lost and started again, and what the user heard."""

        def stopped(master: Master) -> None:
            if stop:
                world.after(stop[0], lambda: master.stop(stop[1]))

        refusal, folder = "", next(folders)
        try:
            told = lead(folder, world, before=stopped, **options)
        except WorldError as error:
            told, refusal = replay(read_journal(RunFiles(folder / "run").journal)), type(error).__name__
        counts, first = Counter(states(told)), told.trials[0].attempts if told.trials else ()
        facts = {
            "": f"{refusal} {reason(told)}".strip(),
            "at": "" if refusal else f"{told.leg.end:.1f} s, over after {world.clock.now:.1f} s",
            "measured": str(sorted(told.leg.ceilings.keys() & told.leg.controls.keys()) or ""),
            "trials": ", ".join(f"{counts[state]} {state.name}" for state in counts),
            "the first": ", ".join(f"{each.state.name} by {each.group}" for each in first),
            "given": str([len(assigned(world, group)) for group in range(len(world.groups))]),
            "tested": "" if told.tested is None else str(told.tested.trial),
            "lost": ", ".join(reasons(told)),
            "started again": str(world.restarts or ""),
            "said": "; ".join(world.said).replace(str(folder), "…"),
        }
        return " | ".join(f"{name} {fact}".strip() for name, fact in facts.items() if fact)

    return led


def states(told: Replay) -> list[State]:
    return [told.trials[number].state for number in sorted(told.trials)]


def assigned(world: FakeWorld, group: int) -> list[int]:
    return [m.trial.number for m in world.workers[group].heard if isinstance(m, Assign)]


def reasons(told: Replay) -> list[str]:
    return [loss.reason for loss in told.leg.losses]


def reason(told: Replay) -> str:
    """Why the leg ended."""
    assert told.leg.ended is not None
    return told.leg.ended.reason
