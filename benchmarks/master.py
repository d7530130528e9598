"""What the master costs: its CPU time and its journal, whatever the number of groups.

    python -m benchmarks.master [--groups 64,512,4096] [--minutes 5] [--pressed 512] [--offered-seconds 30]

The real master, search, replay and journal run on a virtual clock, against groups that keep the protocol and
train nothing; every message is packed and unpacked. The time of the groups themselves is not counted. For
each number of groups, `first` ends when each has its first trial, and its clock goes on while the master
works; `steady` has trials of four minutes that report their steps. Of the groups --pressed, in `burst` all
trials end at once, `sustained` has trials of a second, and in `offered` the clock goes on while the master
works: they offer 100 outcomes per second, and each waits for those before it.

In one file, because all of these runs share one world. Prints the table of docs/scaling.md, and the line of
`offered` below it.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import quantiles
from time import process_time

from aiperf.config import Config, load_preset, with_overrides
from aiperf.journal.events import TERMINATED, Dispatched, Opened
from aiperf.journal.file import VERSION
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.journal.writer import JournalWriter
from aiperf.proposing.jobs import Jobs
from aiperf.ranks.world import Gone
from aiperf.run.handler import Audience
from aiperf.run.ledger import Ledger
from aiperf.run.master import Master
from aiperf.tasks.images.tally import Classified
from aiperf.wire import messages, reports
from aiperf.wire.clocks import SAME_CLOCK, ClockReading
from aiperf.wire.messages import ToGroup, pack, unpack
from aiperf.wire.reports import FromGroup
from aiperf.wire.trial import Segment, State, StepBlock
from benchmarks.script import head, row
from nas.record import graph_to_json
from nas.seeds import resolve_seed

RATE = reports.Rate(1e14, 9e13, 0.01)
READY = reports.Ready(
    rank=1,
    host="node1",
    pid=1,
    device="a device",
    memory_bytes=1,
    software={},
    code_hash="code",
    data={"training_examples": 1_231_167, "validation_examples": 50_000},
    initial_weights="weights",
    wall_seconds=0.0,
    seconds=0.1,
    multiplies={"matrix product": "bf16", "convolution": "bf16"},
)
FILLED_SECONDS = 2.0
"""Time after the release until all groups have their trials. Only what follows counts."""
LONG, EQUAL, SHORT = 240.0, 60.0, 1.0
"""Seconds of a trial: the mean in `steady`, each one in `burst`, the mean in `sustained`."""
CLOSING_SECONDS = 1.0
"""Time from the last step of a trial to its outcome."""
HASH = "0123456789abcdef" * 4
OFFERED = 100.0
"""Outcomes per second, of all groups together."""


@dataclass
class Pretender:
    """A group that pretends to train: what it was assigned, and what it runs."""

    rank: int
    assigned: deque[messages.Assign] = field(default_factory=deque)
    running: messages.Assign | None = None
    halted: bool = False


@dataclass
class Cost:
    """CPU seconds of the master while it dealt with messages of one kind, or waited."""

    seconds: float = 0.0
    messages: int = 0


class Machine:
    """A world on a virtual clock, which goes on while the master works if it `counts` that."""

    def __init__(self, groups: int, trial_seconds: Callable[[int], float], files: RunFiles) -> None:
        self.groups: tuple[tuple[int, ...], ...] = tuple((1 + group,) for group in range(groups))
        self.trial_seconds, self.files = trial_seconds, files
        self.costs: defaultdict[str, Cost] = defaultdict(Cost)
        self.proposals = Cost()
        self.block_seconds = 2.0
        self.filled = False
        self.counts = False
        self.prepared_seconds = 0.0
        """CPU seconds of the first proposals, before the release."""
        self.served_seconds = 0.0
        """Seconds of the span until each group had a trial; 0 before."""
        self.delays: list[float] = []
        """Seconds from each outcome to the candidate that follows it."""
        self._outcomes: defaultdict[int, deque[float]] = defaultdict(deque)
        self._each = [Pretender(rank) for (rank,) in self.groups]
        # What happens at one time is ordered by when it was said.
        self._now, self._kind, self._since = 0.0, "", process_time()
        self._coming: list[tuple[float, int, int, FromGroup, Callable[[], None]]] = []
        self._said, self._released = 0, 0.0

    def monotonic(self) -> float:
        """Seconds of the virtual clock."""
        return self._now + (process_time() - self._since if self.counts else 0.0)

    def wall(self) -> float:
        """Seconds since 1970 by that clock."""
        return 1.7e9 + self.monotonic()

    def start(self) -> None:
        """Forgets what was measured: the master's time counts from now on."""
        self.costs.clear()
        self.proposals = Cost()
        self.delays.clear()
        self._kind, self._since = "start", process_time()

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        """The next message, or None if none comes within `seconds`. The time since the last call was the
        master's; it is added to the kind of the message that it dealt with."""
        self._now = self.monotonic()
        cost = self.costs[self._kind]
        cost.seconds += process_time() - self._since
        cost.messages += 1
        if not self._coming or self._coming[0][0] > self._now + seconds:
            self._now += seconds
            self._kind, self._since = "wait", process_time()
            return None
        at, _, group, message, then = heapq.heappop(self._coming)
        self._now = max(self._now, at)
        then()
        if isinstance(message, reports.Finished):
            self._outcomes[group].append(at)
        data = pack(message)
        self._kind, self._since = type(message).__name__, process_time()
        return group, unpack(FromGroup, data)

    def send(self, group: int, message: ToGroup) -> None:
        """Gives a message to a group. What the group does with it is no time of the master."""
        data = pack(message)
        if isinstance(message, messages.Assign) and self._outcomes[group]:
            self.delays.append(self.monotonic() - self._outcomes[group].popleft())
        elif isinstance(message, messages.Assign) and message.trial.number == len(self.groups) - 1:
            self.served_seconds = self.monotonic() - self._released
        began = process_time()
        self._obey(group, unpack(ToGroup, data))
        self._since += process_time() - began

    def send_all(self, message: ToGroup) -> None:
        """Gives a message to each group; it is packed once, as a broadcast is."""
        pack(message)
        if isinstance(message, messages.Release):
            self._released = self.monotonic()
        began = process_time()
        for group in range(len(self.groups)):
            self._obey(group, message)
        self._since += process_time() - began

    def propose(self, number: int, group: int, made: Callable[[int, int], Dispatched]) -> Dispatched:
        """Makes a proposal and times it by itself."""
        began = process_time()
        job = made(number, group)
        took = process_time() - began
        self.proposals = Cost(self.proposals.seconds + took, self.proposals.messages + 1)
        self._since += took
        self._now += took if self.counts else 0.0
        return job

    def prepare(self, made: Callable[[], bool]) -> bool:
        """Times the first proposals, which are made before the span."""
        began = process_time()
        more = made()
        self.prepared_seconds += process_time() - began
        return more

    def clock_of(self, rank: int) -> ClockReading:
        """All ranks have the master's clock."""
        return SAME_CLOCK

    def restart(self, group: int) -> bool:
        """No group is ever lost."""
        return False

    def close(self) -> None:
        """Nothing is held."""

    def _say(
        self, after: float, group: int, message: FromGroup, then: Callable[[], None] = lambda: None
    ) -> None:
        """Puts a message on its way; `then` is called when it arrives."""
        self._said += 1
        heapq.heappush(self._coming, (self._now + after, self._said, group, message, then))

    def _obey(self, index: int, message: ToGroup) -> None:
        """What a group does when a message arrives."""
        group = self._each[index]
        where = (group.rank, f"node{index:04}", "a device")
        if isinstance(message, messages.Setup):
            wall = self.wall() + 1.0
            self._say(1.0, index, replace(READY, rank=where[0], host=where[1], wall_seconds=wall))
        elif isinstance(message, messages.MeasureCeiling):
            self._say(1.0, index, reports.Ceiling(*where, "bf16", 2048, RATE, RATE, seed=RATE))
        elif isinstance(message, messages.MeasureControl):
            self._say(1.0, index, reports.Control(*where, 8, 5, 1.0, 40.0))
        elif isinstance(message, messages.CheckDevice):
            self._say(1.0, index, reports.DeviceCheck(group.rank, (HASH,), 2, 1.0))
        elif isinstance(message, messages.Release):
            self.block_seconds = message.block_seconds
        elif isinstance(message, messages.Assign):
            group.assigned.append(message)
            if group.running is None:
                self._begin(index)
        elif isinstance(message, messages.Stop):
            group.halted = True
            while group.running or group.assigned:
                self._end(index, group.running or group.assigned.popleft(), State.WAITING)

    def _begin(self, index: int) -> None:
        """Starts the next trial that was assigned, if there is one."""
        group = self._each[index]
        job = group.running = group.assigned.popleft() if group.assigned else None
        if job is not None:
            number = job.trial.number
            self._say(0.001, index, reports.Started(number, job.attempt, HASH, 0.4))
            self._step(index, job, self.trial_seconds(number), 0)

    def _step(self, index: int, job: messages.Assign, left: float, blocks: int) -> None:
        """The next block, or the validation and the end."""
        number, attempt, seconds = job.trial.number, job.attempt, min(self.block_seconds, left)
        rest = left - seconds

        def then() -> None:
            if self._each[index].running is not job:
                return
            if rest > 0:
                self._step(index, job, rest, blocks + 1)
            else:
                steps = 7 * (blocks + 1)
                tally = Classified(50_000, 20_000 + number * 7919 % 20_000)
                closed = Segment(number, attempt, 0, steps, 1024 * steps, 230.0, tally, 5.3)
                self._say(CLOSING_SECONDS / 2, index, messages.Validated(closed, 0.0012, HASH))
                finished = self._finished(job, State.COMPLETE)
                self._say(CLOSING_SECONDS, index, finished, lambda: self._ended(index, job))

        block = StepBlock(number, attempt, 0, 7, 7168, seconds * 0.9876543, 6.9077552789)
        self._say(seconds, index, messages.Steps(block, 0.0001234), then)

    def _ended(self, index: int, job: messages.Assign) -> None:
        """Keeps weights, which the master looks for, and starts the next trial."""
        if self._each[index].running is job:
            self.files.weights(job.trial.number).touch()
            self._begin(index)

    def _end(self, index: int, job: messages.Assign, state: State) -> None:
        """Ends a trial because the master said to stop."""
        group = self._each[index]
        if job is group.running:
            group.running, state = None, State.STOPPED
        self._say(0.1, index, self._finished(job, state))

    def _finished(self, job: messages.Assign, state: State) -> reports.Finished:
        """The last message of a trial."""
        return reports.Finished(job.trial.number, job.attempt, state, "", weights=HASH, age_seconds=0.25)


@dataclass(frozen=True)
class Measured:
    """One run of the master."""

    machine: Machine
    span_seconds: float
    bytes_of: Counter[str]
    """Bytes of the journal, by the type of the line."""

    def microseconds(self, *kinds: str) -> float:
        """CPU time of the master per message of the first kind; its time for the other kinds is shared
        out."""
        costs = [self.machine.costs[kind] for kind in kinds]
        return 1e6 * sum(cost.seconds for cost in costs) / max(1, costs[0].messages)


def measured(
    groups: int, span_seconds: float | None, trial_seconds: Callable[[int], float], counts: bool = False
) -> Measured:
    """A run of this many seconds; None: until each group has a trial."""
    with tempfile.TemporaryDirectory() as scratch:
        files = RunFiles(Path(scratch) / "run")
        machine = Machine(groups, trial_seconds, files)
        machine.counts = counts
        with JournalWriter.begin(files) as journal:
            files.weights_directory.mkdir()
            replay, config = Replay(), _config()
            seed = resolve_seed(config.seed_architecture, (3, config.data.size, config.data.size), 1000)
            opened = Opened(VERSION, "run", "0", "code", config, graph_to_json(seed))
            journal.write(0.0, opened)
            replay.add(0.0, opened)
            jobs = Jobs.of(config, seed, replay)
            propose = jobs.propose
            jobs.propose = lambda number, group: machine.propose(number, group, propose)  # type: ignore[method-assign]
            prepare = jobs.prepare
            jobs.prepare = lambda: machine.prepare(prepare)  # type: ignore[method-assign]
            ledger = Ledger(journal, replay, jobs, machine)

            def watch(run: Replay, t: float) -> None:
                span = t - run.leg.released if run.leg.released is not None else -1.0
                if span > FILLED_SECONDS and not machine.filled:
                    machine.filled = True
                    machine.start()
                if span > span_seconds if span_seconds is not None else machine.served_seconds:
                    master.stop(TERMINATED)

            master = Master(ledger, files, machine, Audience(watch, _quiet))
            machine.start()
            master.run("now", ("aiperf-hpc",))
        bytes_of = Counter[str]()
        with files.journal.open("rb") as lines:
            for line in lines:
                bytes_of[line.split(b'"type":"', 1)[1].split(b'"', 1)[0].decode()] += len(line)
        return Measured(machine, span_seconds or machine.served_seconds, bytes_of)


def _quiet(line: str) -> None:
    """Drops the lines that the master writes for its user."""


def _config() -> Config:
    """The ranked preset, with trials that only a stop ends, and without a tuner, whose time is that of its
    library."""
    changes = {"ranked": False, "training.format": "bf16", "limits.minutes": 0.0, "limits.max_trials": 10**6}
    return with_overrides(load_preset("ranked"), {**changes, "tuning.name": "none"})


def spread(mean: float) -> Callable[[int], float]:
    """Seconds of the trial of a number: from half to one and a half times the mean."""
    return lambda number: mean * (0.5 + number * 0.618034 % 1)


FIRST = (
    "the first candidates, proposed before the clock starts, s",
    "from there until the last group has its first candidate, s",
)
STEADY = (
    "a message, µs",
    "an outcome with its dispatch, µs",
    "a new candidate (ResNet-50 and its descendants), ms",
    "blocks of steps in the journal: MB per hour",
)
BURST = "outcomes per second, all at once, one prepared candidate per group"
SUSTAINED = "outcomes per second, sustained, candidates included"
ROWS = (*FIRST, *STEADY[:3], BURST, SUSTAINED, STEADY[3])


def first(groups: int) -> dict[str, float]:
    """Figures by row of the table."""
    machine = measured(groups, None, spread(LONG), counts=True).machine
    return dict(zip(FIRST, (machine.prepared_seconds, machine.served_seconds), strict=True))


def steady(groups: int, minutes: float) -> dict[str, float]:
    """Figures by row of the table."""
    run = measured(groups, 60 * minutes, spread(LONG))
    costs, proposals = run.machine.costs, run.machine.proposals
    heard = ("Steps", "Started", "Validated", "Finished")
    num_messages = sum(costs[kind].messages for kind in heard)
    spent = sum(costs[kind].seconds for kind in (*heard, "wait"))
    figures = (
        1e6 * spent / num_messages,
        run.microseconds("Finished", "wait"),
        1e3 * proposals.seconds / proposals.messages,
        run.bytes_of["Stepped"] * 3600 / run.span_seconds / 1e6,
    )
    return dict(zip(STEADY, figures, strict=True))


def pressed(groups: int) -> dict[str, float]:
    """Outcomes per second, by the row of the table: when all come at once, and all the time."""
    burst = measured(groups, 2.5 * EQUAL, lambda number: EQUAL).microseconds("Finished")
    sustained = measured(groups, 15.0, spread(SHORT)).machine
    seconds = sum(cost.seconds for cost in sustained.costs.values()) + sustained.proposals.seconds
    return {BURST: 1e6 / burst, SUSTAINED: sustained.costs["Finished"].messages / seconds}


def offered(groups: int, span_seconds: float) -> str:
    """The line below the table: how long an outcome waits for the candidate that follows it."""
    run = measured(groups, span_seconds, spread(groups / OFFERED - CLOSING_SECONDS), counts=True)
    middle, high = (1e3 * quantiles(run.machine.delays, n=100)[at] for at in (49, 98))
    rate = len(run.machine.delays) / (span_seconds - FILLED_SECONDS)
    return (
        f"{groups} groups that offer {rate:.0f} outcomes per second: the next candidate leaves "
        f"{middle:.2f} ms after an outcome (median; 99th percentile {high:.1f} ms)"
    )


def table(figures: dict[int, dict[str, float]]) -> Iterator[str]:
    """The rows of docs/scaling.md, by groups."""
    first, *others = figures
    yield head("", f"{first:,} groups", *(f"{groups:,}" for groups in others))
    for name in ROWS:
        cells = [each.get(name) for each in figures.values()]
        shown = ["–" if cell is None else f"{cell:,.3g}" if cell < 10 else f"{cell:,.0f}" for cell in cells]
        yield row(name, *shown)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--groups", default="64,512,4096", help="of the steady runs")
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="span of the steady runs; no trial ends before 2"
    )
    parser.add_argument("--pressed", type=int, default=512, help="groups of the other runs, above 100")
    parser.add_argument("--offered-seconds", type=float, default=30.0, help="of the run `offered`, above 2")
    options = parser.parse_args(arguments)
    sizes = map(int, options.groups.split(","))
    figures = {groups: first(groups) | steady(groups, options.minutes) for groups in sizes}
    figures.setdefault(options.pressed, {}).update(pressed(options.pressed))
    print("\n".join(table(dict(sorted(figures.items())))))
    print(f"\n{offered(options.pressed, options.offered_seconds)}")


if __name__ == "__main__":
    main()
