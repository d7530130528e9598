"""Courses that every driver of the conduct must follow alike, and what the master hears in each.

    python -m tests.aiperf.conduct.courses      writes courses.txt, to be read before it is committed

A step takes half a second and a validation a whole one; preparing and writing take no time. What is heard is
written by trial, since preparing and writing go on beside the next one: the steps of each block, and how many
of 16 answers were right in the validation that closes a segment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path

from aiperf.conduct import events
from aiperf.conduct.actions import Action, Begin, Close, Prepare, Say, Train, Validate
from aiperf.conduct.conduct import Conduct
from aiperf.config import Config, LimitsConfig, TrainingConfig
from aiperf.proposing.plan import plan
from aiperf.tasks.images.data import ImageData
from aiperf.tasks.images.tally import Classified
from aiperf.wire.messages import Assign, Evaluate, NextWanted, Quit, Release, Steps, Stop, ToGroup, Validated
from aiperf.wire.reports import Evaluated, Finished, FromGroup, Started
from aiperf.wire.trial import HyperParameters, Trial
from nas.seeds import residual

STEP_SECONDS, VALIDATE_SECONDS = 0.5, 1.0
EXAMPLES, BATCH_SIZE, VALIDATED = 64, 8, 16
SEED = residual((1, 8, 8), 2, (4, 8))
ABSENT = 99
"""A parent whose weights are nowhere."""
WRITTEN = Path(__file__).with_name("courses.txt")


@dataclass(frozen=True)
class Script:
    """What the master says and when, and what the validations come to, over and over."""

    name: str
    messages: tuple[tuple[float, ToGroup], ...]
    correct: tuple[int, ...] = (8, 10, 9, 12, 11, 11)
    every: int = 16
    """Examples between two validations."""
    patience: int = 0

    @property
    def config(self) -> Config:
        num = {"training_examples": EXAMPLES, "validation_examples": VALIDATED, "test_examples": 24}
        data = ImageData("synthetic", channels=1, size=8, classes=2, **num)
        stops = {"validate_every_examples": self.every, "patience": self.patience}
        training = TrainingConfig("fp32", BATCH_SIZE, learning_rate=0.05, epochs=(4,), **stops)
        return Config("test", "-", data, training, LimitsConfig(minutes=1))

    def tallies(self) -> Iterator[Classified]:
        """One for each validation."""
        return (Classified(VALIDATED, correct) for correct in cycle(self.correct))


class VirtualClock:
    """Passes as its driver says, and delivers the messages of a script on the way."""

    def __init__(self, script: Script) -> None:
        self.now = 0.0
        self.deliver: Callable[[ToGroup], None]
        self._left = deque(script.messages)

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        """As an event that nobody sets."""
        until = self.now + seconds
        while self._left and self._left[0][0] <= until:
            self.next()
        self.now = until
        return False

    def next(self) -> None:
        """Passes to the next message; the last is Quit."""
        at, message = self._left.popleft() if self._left else (self.now, Quit())
        self.now = max(self.now, at)
        self.deliver(message)


def assign(number: int, epochs: int = 4, parent: int | None = None) -> Assign:
    hyper = HyperParameters(learning_rate=0.05, batch_size=BATCH_SIZE)
    return Assign(Trial(number, parent, (), hyper, 1, epochs, 17 + number), 1)


def scripts() -> Iterator[Script]:
    """Some sixty: every mixture of deadline, stop, early stopping and segments, and others."""
    deadlines, stops = (None, 4.4, 9.4), (None, 5.2)
    for deadline, stop, patience, every, epochs in product(deadlines, stops, (0, 2), (16, 64), (1, 4)):
        told = [(0.0, message) for message in (Release(deadline), assign(0, epochs), assign(1, epochs))]
        told += [(stop, Stop())] if stop else []
        words = (
            f"{8 * epochs} steps, validated after {every // 8}",
            f"{deadline} s" if deadline else "",
            f"stop at {stop} s" if stop else "",
            f"patience {patience}" if patience else "",
        )
        yield Script(", ".join(filter(None, words)), tuple(told), every=every, patience=patience)
    begun = (0.0, Release(None))
    long, short = (0.0, assign(0, 4)), (0.0, assign(0, 1))
    rising, falling = (4, 6, 8, 10), (10, 8, 6, 4)
    yield Script("ever better", (begun, long), rising, patience=1)
    yield Script("ever worse", (begun, long), falling, patience=1)
    yield Script("all alike", (begun, long), (8,), patience=3)
    yield Script("stopped before it begins", (begun, (0.0, Stop()), short))
    yield Script("the deadline is over", ((0.0, Release(0.0)), short))
    yield Script("stopped in its first step", (begun, long, (0.2, Stop())))
    yield Script("no time after the first validation", ((0.0, Release(3.0)), long))
    yield Script("its first validation is late", ((0.0, Release(1.2)), long), patience=1)
    yield Script("released in the middle", (long, (3.2, Release(6.0, block_seconds=0.5))))
    yield Script("short blocks", ((0.0, Release(None, block_seconds=0.5)), short), every=64)
    yield Script("a parent's weights are nowhere", (begun, (0.0, assign(0, 1, ABSENT)), (0.5, assign(1, 1))))
    yield from _next_ones(begun)
    tested = (begun, short, (9.2, assign(1, 1, 0)), (20.2, Evaluate(1)))
    yield Script("a child of the one before, then a test", tested)


def _next_ones(begun: tuple[float, ToGroup]) -> Iterator[Script]:
    """The first trial takes 5 s, and the second comes some time after its end. By that time the group knows
    how early to want the third one."""
    first = (0.0, assign(0, 1))
    yield Script("the second came after 1 s", (begun, first, (6.0, assign(1, 2))), every=64)
    yield Script("the second came after 4 s", (begun, first, (9.0, assign(1, 1))), every=64)
    yield Script("the third came early", (begun, first, (6.0, assign(1)), (6.2, assign(2, 1))), every=64)
    yield Script("the deadline is nearer", ((0.0, Release(15.0)), first, (6.0, assign(1, 2))), every=64)


def heard(script: Script, said: Iterable[FromGroup]) -> str:
    """What the master heard, a line for each trial."""
    trials: dict[int, list[str]] = {}
    for message in said:
        if isinstance(message, Started):
            trials.setdefault(message.trial, []).append("began")
        elif isinstance(message, Steps):
            block = message.block
            assert block.examples == block.steps * BATCH_SIZE
            assert block.seconds == block.steps * STEP_SECONDS
            trials[block.trial].append(str(block.steps))
        elif isinstance(message, Validated):
            closed = message.segment
            assert closed.train_examples == closed.steps * BATCH_SIZE
            assert closed.train_seconds == closed.steps * STEP_SECONDS
            assert closed.validate_seconds == VALIDATE_SECONDS
            words = f"= {closed.steps} in segment {closed.index}: {closed.tally.correct},"
            trials[closed.trial].append(words)
        elif isinstance(message, NextWanted):
            trials[message.trial].append("next wanted,")
        elif isinstance(message, Finished):
            # What a driver says of an error is its own; the kept segment is of trials that ran to their end.
            why = "" if message.state.value == "FAILED" else f" {message.reason}".rstrip()
            kept = "" if message.kept is None else f", kept {message.kept}"
            trials.setdefault(message.trial, []).append(f"{message.state.value}{why}{kept}")
        elif isinstance(message, Evaluated):
            trials[message.trial].append("tested")
    lines = (f"  trial {number}: {' '.join(each)}" for number, each in sorted(trials.items()))
    return "\n".join((script.name, *lines, ""))


def followed(script: Script) -> str:
    """The course as the conduct alone goes: what it asks for happens at once, and takes its time."""
    clock, conduct, tallies = VirtualClock(script), Conduct(), script.tallies()
    said, works = list[FromGroup](), deque[Action]()

    def take(event: events.Event) -> None:
        for action in conduct.take(event, clock.now):
            if isinstance(action, Say):
                said.append(action.aged(clock.now))
            elif isinstance(action, Prepare):
                take(_prepared(script, action.assign))
            elif isinstance(action, Close):
                take(events.WeightsWritten(action.trial, action.attempt))
            else:
                works.append(action)

    clock.deliver = take
    while True:
        while not works:
            clock.next()
        work = works.popleft()
        if isinstance(work, Quit):
            return heard(script, said)
        if isinstance(work, Train):
            clock.wait(seconds := work.steps * STEP_SECONDS)
            take(events.BlockDone(work.steps, work.steps * BATCH_SIZE, seconds, 0.7, clock.now))
        elif isinstance(work, Validate):
            clock.wait(VALIDATE_SECONDS)
            take(events.ValidationDone(next(tallies), VALIDATE_SECONDS, clock.now))
        elif isinstance(work, Begin):
            take(events.Failed() if work.assign.trial.parent == ABSENT else events.Begun())
        elif isinstance(work, Evaluate):
            take(events.Answered((Evaluated(work.trial, next(tallies), 0.0),)))


def _prepared(script: Script, assign: Assign) -> events.Prepared:
    trial = assign.trial
    built = events.Built(SEED, plan(trial, script.config.training, EXAMPLES))
    return events.Prepared(trial.number, assign.attempt, None if trial.parent == ABSENT else built)


SCRIPTS = tuple(scripts())


def expected() -> dict[str, str]:
    """What was read by a person, by the name of the script."""
    parts = WRITTEN.read_text(encoding="utf-8").split("\n\n")
    return {part.split("\n", 1)[0]: part.rstrip("\n") + "\n" for part in parts}


if __name__ == "__main__":
    WRITTEN.write_text("\n".join(map(followed, SCRIPTS)), encoding="utf-8")
