"""The master: it dispatches trials to groups, hears what becomes of them, and writes the journal.

Driven by messages, one at a time. Everything that can be derived is read from the replay of the
journal as it is being written. It touches no device and holds no weights.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from aiperf.config import Config
from aiperf.errors import NotReady, StoppedEarly, WorldError
from aiperf.files import RunFiles
from aiperf.journal.events import (
    TERMINATED,
    Beat,
    Began,
    CeilingMeasured,
    Closed,
    ControlMeasured,
    Dispatched,
    Ended,
    Event,
    GroupLost,
    LegBegan,
    LegEnded,
    RankReady,
    Released,
    Stepped,
    Tested,
)
from aiperf.journal.file import JournalWriter
from aiperf.journal.replay import Replay
from aiperf.proposing.jobs import Jobs
from aiperf.proposing.plan import measuring_seconds
from aiperf.ranks.world import Gone, World
from aiperf.rules.eligibility import refuse_unrankable
from aiperf.rules.who import CLOCK_SECONDS, misdeclared
from aiperf.run.patience import step_seconds
from aiperf.trial import Segment, State, StepBlock
from aiperf.wire.formats import emulation_text
from aiperf.wire.messages import (
    Assign,
    Ceiling,
    Control,
    Evaluate,
    Evaluated,
    Finished,
    FromGroup,
    Join,
    MeasureCeiling,
    MeasureControl,
    Meeting,
    Observe,
    Ready,
    Refused,
    Release,
    Setup,
    Started,
    Steps,
    Stop,
    ToGroup,
    Validated,
    Working,
)
from nas.graph import Graph
from nas.record import graph_to_json
from nas.search import Exhausted

QUIET_LINE_SECONDS = 5.0  # a killed leg ends ten seconds after its last line
TICK_SECONDS = 0.25
AHEAD = 2  # trials of a group at a time: the one that trains and the one that is prepared
READY_SECONDS = 1800.0
STOP_SECONDS = 30.0  # for the groups to obey, after a stop is asked for and after the deadline
RESTARTS = 3  # of one group without a validation in between
REST_SECONDS = 30.0  # the longest pause of a group whose trials keep failing
FIRST_STEP = 5.0  # times the usual silence: libraries choose their kernels, and caches are cold
DEAF_SECONDS = 1.0  # of the master's own, between two looks at who is silent
BLOCKS = 4.0  # of steps, as long as the last one: silence that a slow device may need


@dataclass
class _Group:
    """What the master knows of a group beside the journal."""

    ranks: int
    assigned: deque[Dispatched] = field(default_factory=deque)
    ready: int = 0
    ceilings: int = 0
    controls: int = 0
    alive: bool = True
    restarts: int = 0
    failures: int = 0
    """In a row."""
    closing: bool = False
    """It begins nothing more in this leg: the deadline is too near."""
    rests_until: float = 0.0
    heard: float = 0.0
    """When it last said something, or was last given something to do."""
    patience: float = 0.0
    """Seconds of silence from then on that are no loss."""
    told: float = 0.0
    """When what it told of last had ended."""
    refused: str = ""
    """Why a rank of it cannot take part, in the rank's own words."""

    def ended(self, end: float) -> float:
        """`end`, but not before what it told of earlier: news travels faster now and slower then."""
        self.told = max(self.told, end)
        return self.told


class Master:
    """One leg of a run: from initialisation to the last test."""

    def __init__(
        self,
        config: Config,
        files: RunFiles,
        seed: Graph,
        world: World,
        jobs: Jobs,
        journal: JournalWriter,
        replay: Replay,
        watch: Callable[[float], None],
        silence_seconds: float = 60.0,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`watch` is called with the leg's time a few times a second, to show what `replay` holds; `say`
        with what a person should know.
        """
        self.config, self.files, self.world, self.jobs = config, files, world, jobs
        self.journal, self.replay, self.watch = journal, replay, watch
        self.silence_seconds, self.say = silence_seconds, say
        self.setup = Setup(
            config, graph_to_json(seed), str(files.directory.absolute()), probe=os.urandom(8).hex()
        )
        self.groups = [_Group(len(ranks)) for ranks in world.groups]
        self.deadline: float | None = None
        self._stop_asked = ""
        self._closing = ""
        self._closing_since = 0.0
        self._last_idle = 0.0
        self._in_vain: float | None = None  # `_last_idle` when there was no new architecture to be found
        self._listened = 0.0
        self._zero = time.monotonic()
        self._written = 0.0

    def stop(self, reason: str) -> None:
        """Asks for a clean end; may be called from a signal handler."""
        self._stop_asked = self._stop_asked or reason

    def run(self, started: str, command: tuple[str, ...], backend: str = "ddp") -> None:
        """Raises WorldError when the groups do not come up; what happened stands in the journal."""
        self._write(LegBegan(self.replay.num_legs, started, command, self.world.groups, backend))
        try:
            with self._probe():
                self._initialise()
                self._release()
                while not self._over():
                    self._turn(self._lose)
                    self._check_limits()
                    self._check_silence()
                    self._fill()
        except Exception as error:
            self._write(LegEnded(f"error: {error}", self._t()))
            raise
        self._write(LegEnded(self._closing, self._end_of_span()))
        if self._closing != TERMINATED:  # to be continued, and the test images are used once
            self._test()

    @contextlib.contextmanager
    def _probe(self) -> Iterator[None]:
        """The file by which a rank sees whether it shares the run directory."""
        try:
            self.files.probe.write_text(self.setup.probe, encoding="utf-8")
            yield
        finally:
            self.files.probe.unlink(missing_ok=True)

    def _initialise(self) -> None:
        self._say_all(self.setup)
        self._await(lambda: all(group.ready == group.ranks for group in self.groups))
        self._refuse_idle_devices()
        refuse_unrankable(self.config, self.replay.ranks[0].ready.data)
        self._tell_of_apart()
        self._tell_of_emulation()
        self._refuse_other_formats()
        self._refuse_other_clocks()
        self._say_all(self._observe())
        seconds = measuring_seconds(self.config.limits) / 2
        self._say_all(MeasureCeiling(seconds))
        self._await(lambda: all(group.ceilings == group.ranks for group in self.groups))
        self._say_all(MeasureControl(seconds))
        self._await(lambda: all(group.controls == group.ranks for group in self.groups))

    def _observe(self) -> Observe:
        devices: dict[str, tuple[str, ...]] = {}
        for ready in [event.ready for event in self.replay.ranks]:
            known = devices.get(ready.host, ())
            devices[ready.host] = known if ready.device_id in ("", *known) else (*known, ready.device_id)
        return Observe(devices)

    def _refuse_other_formats(self) -> None:
        """A run whose products are narrower than declared would be INVALID."""
        for ready in [event.ready for event in self.replay.ranks]:
            for wrong in misdeclared(self.config.training.format, ready):
                raise WorldError(f"{wrong}; unset what makes its libraries do so, or declare that format")

    def _refuse_other_clocks(self) -> None:
        """Nor would one whose hosts tell other times of day be valid."""
        for event in self.replay.ranks:
            if abs(event.clock_offset_seconds) > CLOCK_SECONDS:
                raise WorldError(
                    f"the clock of {event.ready.host} and that of the master differ by "
                    f"{abs(event.clock_offset_seconds):.1f} s; synchronise them (chrony, ntp)"
                )

    def _await(self, reached: Callable[[], bool]) -> None:
        until = self._t() + READY_SECONDS
        while not reached():
            self._turn(self._refuse_loss)
            if self._stop_asked:
                raise StoppedEarly(self._stop_asked)
            if self._t() > until:
                told = f"not all ranks were ready in {READY_SECONDS / 60:.0f} minutes{self._late()}"
                raise NotReady(f"{told}; see logs/")

    def _late(self) -> str:
        ready = self.replay.leg.devices.keys()
        late = [rank for ranks in self.world.groups for rank in ranks if rank not in ready]
        return f", of {len(late)} no word came: rank {', '.join(map(str, late[:10]))}" if late else ""

    def _release(self) -> None:
        limit = self.config.limits.minutes * 60
        left = max(0.0, limit - self.replay.span_seconds) if limit else None
        now = self._t()
        self.deadline = None if left is None else now + left
        self._write(Released(self.deadline), now)  # the span begins with this line, and must not be shorter
        self._say_all(Release(left))
        self._fill()

    def _check_limits(self) -> None:
        if self._closing:
            return
        limits, best = self.config.limits, self.replay.best
        if self._stop_asked:
            self._close(self._stop_asked)
        elif self.deadline is not None and self._t() >= self.deadline:
            self._close("deadline")
        elif limits.target_error and best and best.error is not None and best.error <= limits.target_error:
            self._close("target")
        elif not any(group.alive for group in self.groups):
            self._close("error: every group is lost")
        elif self.jobs.exhausted and not any(group.assigned for group in self.groups):
            self._close("trials")

    def _close(self, reason: str) -> None:
        self._closing, self._closing_since = reason, self._t()
        if reason != "deadline":  # which the groups keep by themselves
            self._say_all(Stop())

    def _over(self) -> bool:
        if self._closing and self._t() > self._closing_since + STOP_SECONDS:
            for index, group in enumerate(self.groups):
                if group.assigned:
                    self._bury(index, f"did not stop within {STOP_SECONDS:.0f} s")
        return bool(self._closing) and not any(group.assigned for group in self.groups)

    def _end_of_span(self) -> float:
        """The deadline, whatever was credited last; without it, when the last group became idle."""
        if self._closing == "deadline" and self.deadline is not None:
            return self.deadline
        return self._last_idle or self._t()

    def _test(self) -> None:
        """The best network on the test images, once, by any group that is left."""
        best = self.replay.best
        # One that is being started again may never come: the link to it may be cut.
        ready_first = sorted(enumerate(self.groups), key=lambda each: each[1].ready < each[1].ranks)
        for index, group in ready_first:
            if best is None or self.replay.tested is not None:
                return
            if group.alive:
                self.world.send(index, Evaluate(best.trial.number))
            until = self._t() + READY_SECONDS
            while self.replay.tested is None and self._t() < until and group.alive:
                self._turn(self._bury)

    # Messages

    def _turn(self, on_loss: Callable[[int, str], None]) -> None:
        """Waits a moment for one message and deals with it."""
        received = self.world.receive(TICK_SECONDS)
        if received is not None:
            index, message = received
            self.groups[index].heard = self._t()
            if isinstance(message, Gone):
                if self.groups[index].alive:  # its other ranks may follow; it is lost once
                    on_loss(index, message.reason)
            elif self._expects(index, message):
                self._hear(index, message)
        if self._t() - self._written > QUIET_LINE_SECONDS:
            self._write(Beat())
        self.watch(self._t())

    def _expects(self, index: int, message: FromGroup) -> bool:
        """False for news of an attempt that was taken from the group since."""
        if isinstance(message, (Ready, Refused, Ceiling, Control, Evaluated, Meeting, Working)):
            return True
        told = _work_of(message)
        return any(
            (job.trial.number, job.attempt) == (told.trial, told.attempt)
            for job in self.groups[index].assigned
        )

    def _hear(self, index: int, message: FromGroup) -> None:
        now, group = self._t(), self.groups[index]
        if isinstance(message, Meeting):
            self.world.send(index, Join(message.host, message.port))
        elif isinstance(message, Ready):
            self._ready(index, message)
        elif isinstance(message, Refused):
            group.refused = f"rank {message.rank} on {message.host}: {message.reason}"
        elif isinstance(message, Ceiling):
            self._write(CeilingMeasured(message))
            group.ceilings += 1
        elif isinstance(message, Control):
            self._write(ControlMeasured(message))
            group.controls += 1
        elif isinstance(message, Started):
            self._write(Began(message, now))
            group.patience = self._first_step_patience(index)
        elif isinstance(message, Steps):
            group.patience = max(self.silence_seconds, BLOCKS * message.block.seconds)
            self._write(Stepped(message.block, group.ended(now - message.age_seconds)))
        elif isinstance(message, Validated):
            self._write(Closed(message.segment, group.ended(now - message.age_seconds)))
            group.restarts = 0
        elif isinstance(message, Finished):
            self._finish(index, message, group.ended(now - message.age_seconds))
        elif isinstance(message, Evaluated):
            self._write(Tested(message))

    def _ready(self, index: int, ready: Ready) -> None:
        group = self.groups[index]
        self._write(RankReady(index, ready, ready.wall_seconds - time.time()))
        group.ready += 1
        self._refuse_difference(ready, self.replay.ranks[0].ready)
        if self.replay.leg.released is not None and group.ready == group.ranks:  # it was lost in between
            self.world.send(index, self._observe())
            left = None if self.deadline is None else self.deadline - self._t()
            self.world.send(index, Release(left, self._threads(index)))

    def _threads(self, index: int) -> dict[str, int]:
        """That the ranks of a group chose before the span."""
        ceilings = self.replay.leg.ceilings
        chosen = {rank: ceilings[rank].threads for rank in self.world.groups[index] if rank in ceilings}
        return {str(rank): threads for rank, threads in chosen.items() if threads}

    def _refuse_difference(self, ready: Ready, first: Ready) -> None:
        """What differs between ranks would make their work incomparable."""
        for what in ("code_hash", "data", "initial_weights"):
            if getattr(ready, what) != getattr(first, what):
                raise WorldError(
                    f"rank {ready.rank} on {ready.host} and rank {first.rank} on {first.host} differ in "
                    f"{what.replace('_', ' ')}; give all nodes the same installation and the same data"
                )

    def _refuse_idle_devices(self) -> None:
        """Devices of a host that no rank has, or that several have, are the commonest first mistake."""
        ready = [event.ready for event in self.replay.ranks]
        shared = Counter((each.host, each.device_id) for each in ready if each.device_id)
        for (host, _), num_ranks in shared.items():
            if num_ranks > 1:
                raise WorldError(
                    f"{num_ranks} ranks on {host} have the same device; start one rank for each device and "
                    "one more for the master, and let the launcher show every rank all devices of its host"
                )
        workers = Counter(each.host for each in ready)
        for each in ready:
            if each.device_id and workers[each.host] < each.visible_devices and each.visible_devices > 1:
                right = len(workers) * each.visible_devices + 1
                raise WorldError(
                    f"{each.host} shows {each.visible_devices} devices to {workers[each.host]} rank(s) that "
                    f"train; start {right} ranks (one for each device and the master), or show fewer devices"
                )

    def _tell_of_apart(self) -> None:
        apart = sorted({event.ready.host for event in self.replay.ranks if not event.ready.sees_run})
        if apart:
            self.say(
                f"{self.files.directory} is not shared with {', '.join(apart)}: weights travel over MPI, and "
                "the logs of their ranks stay there"
            )

    def _tell_of_emulation(self) -> None:
        format = self.config.training.format
        for ready in [event.ready for event in self.replay.ranks]:
            if text := emulation_text(ready.device, format, ready.formats):
                self.say(f"{text}; --format auto takes the fastest format that is native")
                return

    def _first_step_patience(self, index: int) -> float:
        """Of the trial that the group begins now; its kernels are chosen meanwhile, and caches are cold."""
        ceilings, jobs = self.replay.leg.ceilings, self.groups[index].assigned
        measured = [ceilings[rank] for rank in self.world.groups[index] if rank in ceilings]
        expected = step_seconds(jobs[0], measured) if jobs else 0.0
        return FIRST_STEP * max(self.silence_seconds, expected)

    def _finish(self, index: int, message: Finished, end: float) -> None:
        group = self.groups[index]
        group.assigned = deque(job for job in group.assigned if job.trial.number != message.trial)
        group.patience = self._first_step_patience(index)  # of the next one
        self._last_idle = max(self._last_idle, end)
        if message.state is State.WAITING:  # it never began, so nothing ended; the group closes
            group.closing = True
            return
        self._write(Ended(message, end))
        self._drop_weights()
        group.failures = group.failures + 1 if message.state is State.FAILED else 0
        if group.failures > 2:  # where every trial fails at once, the journal must not fill with failures
            group.rests_until = self._t() + min(REST_SECONDS, 2.0 ** (group.failures - 3))

    # Dispatch and loss

    def _fill(self) -> None:
        """What is in flight may yet have children, so a search without any waits for its end."""
        if self._in_vain == self._last_idle:
            return
        for index, group in enumerate(self.groups):
            while self._wants(group):
                try:
                    job = self.jobs.next(index)
                except Exhausted as error:
                    self._in_vain = self._last_idle
                    if not any(group.assigned for group in self.groups):
                        self._close(f"exhausted: {error}")
                    return
                if job is None:
                    return
                self._write(job)
                group.assigned.append(job)
                if len(group.assigned) == 1:
                    group.heard, group.patience = self._t(), self._first_step_patience(index)
                self.world.send(index, Assign(job.trial, job.attempt))

    def _wants(self, group: _Group) -> bool:
        able = group.alive and group.ready == group.ranks and self._t() >= group.rests_until
        return able and not (self._closing or group.closing) and len(group.assigned) < AHEAD

    def _drop_weights(self) -> None:
        """Removes the files that no child and no test will read."""
        needed = self.jobs.needed()
        for path in self.files.kept_weights():
            if int(path.stem) not in needed:
                path.unlink(missing_ok=True)

    def _refuse_loss(self, index: int, reason: str) -> None:
        group = self.groups[index]
        if group.refused:
            raise WorldError(group.refused)
        what = "was lost before the clock started" if group.ready == group.ranks else "failed to start"
        raise NotReady(f"group {index} {what}: {reason}")

    def _lose(self, index: int, reason: str) -> None:
        """Its trials go to others; it is started again where that can be done."""
        group = self.groups[index]
        self._bury(index, reason)
        group.restarts += 1
        if not self._closing and group.restarts <= RESTARTS and self.world.restart(index):
            group.alive, group.ready = True, 0
            self.world.send(index, self.setup)

    def _check_silence(self) -> None:
        now = self._t()
        deaf, self._listened = now - self._listened, now
        if deaf > DEAF_SECONDS:  # a file system that stalls holds this process up: nobody is heard meanwhile
            for group in self.groups:
                group.heard += deaf
        for index, group in enumerate(self.groups):
            if group.alive and group.assigned and now - group.heard > group.patience:
                self._lose(index, f"said nothing for {now - group.heard:.0f} s")

    def _bury(self, index: int, reason: str) -> None:
        self._write(GroupLost(index, reason))
        self.groups[index].alive = False
        self.groups[index].assigned.clear()
        self._last_idle = self._t()

    # Small things

    def _say_all(self, message: ToGroup) -> None:
        for index, group in enumerate(self.groups):
            if group.alive:
                self.world.send(index, message)

    def _t(self) -> float:
        return time.monotonic() - self._zero

    def _write(self, event: Event, now: float | None = None) -> None:
        self._written = self._t() if now is None else now
        self.journal.write(self._written, event)
        self.replay.add(self._written, event)
        self.jobs.follow(event)


def _work_of(message: FromGroup) -> Started | StepBlock | Segment | Finished:
    """What names the attempt that the news is of."""
    if isinstance(message, Steps):
        return message.block
    if isinstance(message, Validated):
        return message.segment
    assert isinstance(message, Started | Finished), message
    return message
