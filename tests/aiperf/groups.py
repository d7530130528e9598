"""Groups of workers that train nothing: threads that answer the master as a script says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue

from aiperf.ranks.world import Gone
from aiperf.tally import Classified
from aiperf.trial import Segment, State, StepBlock
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
    Quit,
    Rate,
    Ready,
    Release,
    Setup,
    Started,
    Steps,
    Stop,
    ToGroup,
    Validated,
    pack,
    unpack,
)
from nas.graph import Graph
from nas.record import graph_from_json
from tests.journals import READY

STEP_SECONDS = 0.01
STEPS, BATCH, VALIDATED = 4, 50, 400


@dataclass
class Obedient:
    """A group that does what it is told, quickly. Subclasses do one thing differently."""

    index: int
    ranks: tuple[int, ...]
    say: Callable[[FromGroup | Gone], None]
    inbox: SimpleQueue[ToGroup] = field(default_factory=SimpleQueue)
    heard: list[ToGroup] = field(default_factory=list)
    halted: bool = False
    deadline: float = float("inf")
    trained: int = 0

    def run(self) -> None:
        while not isinstance(message := self.inbox.get(), Quit):
            self.heard.append(message)
            if isinstance(message, Setup):
                self.seed: Graph = graph_from_json(message.seed_graph)
                self.set_up()
            elif isinstance(message, MeasureCeiling):
                self.ceiling()
            elif isinstance(message, MeasureControl):
                self.control()
            elif isinstance(message, Release) and message.seconds_left is not None:
                self.deadline = time.monotonic() + message.seconds_left
            elif isinstance(message, Assign):
                self.assigned(message)
            elif isinstance(message, Stop):
                self.halted = True
            elif isinstance(message, Evaluate):
                self.evaluate(message)

    def evaluate(self, evaluate: Evaluate) -> None:
        self.say(Evaluated(evaluate.trial, Classified(1197, 1000), 0.1))

    def set_up(self) -> None:
        for rank in self.ranks:
            self.say(self.ready(rank))

    def ready(self, rank: int) -> Ready:
        return replace(READY, rank=rank, wall_seconds=time.time())

    def ceiling(self) -> None:
        for rank in self.ranks:
            self.say(
                Ceiling(
                    rank, "node1", "a device", "bf16", 2048, Rate(1e11, 9e10, 0.01), Rate(1e10, 9e9, 0.01)
                )
            )

    def control(self) -> None:
        for rank in self.ranks:
            self.say(Control(rank, "node1", "a device", 8, 5, 1.0, 40.0))

    def assigned(self, assign: Assign) -> None:
        if self.over():
            self.end(assign, State.WAITING)
        else:
            self.train(assign)
            self.trained += 1

    def over(self) -> bool:
        while not self.inbox.empty():  # what came meanwhile, but for trials and the end
            message = self.inbox.get()
            if isinstance(message, Stop):
                self.halted = True
            else:
                self.inbox.put(message)
                break
        return self.halted or time.monotonic() > self.deadline

    def train(self, assign: Assign) -> None:
        number, attempt = assign.trial.number, assign.attempt
        self.say(Started(number, attempt, "key", 0.01))
        self.work(assign)

    def work(self, assign: Assign) -> None:
        """What it does in a trial once it has begun."""
        number, attempt = assign.trial.number, assign.attempt
        time.sleep(STEPS * STEP_SECONDS)
        examples = STEPS * BATCH
        self.say(Steps(StepBlock(number, attempt, 0, STEPS, examples, STEPS * STEP_SECONDS, 1.5), 0.0))
        tally = Classified(VALIDATED, 300 + 10 * min(number, 9))
        segment = Segment(number, attempt, 0, STEPS, examples, STEPS * STEP_SECONDS, tally, STEP_SECONDS)
        self.say(Validated(segment, 0.0))
        self.end(assign, State.COMPLETE)

    def die(self, reason: str) -> None:
        """Says nothing more, whatever it is told."""
        self.say(Gone(reason))
        while True:
            self.inbox.get()

    def end(self, assign: Assign, state: State, reason: str = "", out_of_memory: bool = False) -> None:
        self.say(Finished(assign.trial.number, assign.attempt, state, reason, out_of_memory))


class Meeter(Obedient):
    """Its ranks meet before they are ready."""

    def set_up(self) -> None:
        self.say(Meeting("127.0.0.1", 4242))
        message = self.inbox.get()
        assert message == Join("127.0.0.1", 4242), message
        super().set_up()


class FakeWorld:
    """A world whose groups are these threads; every message goes through its wire form."""

    def __init__(self, *kinds: type[Obedient], ranks: int = 1, restartable: bool = True) -> None:
        self.groups = tuple(
            tuple(range(1 + ranks * index, 1 + ranks * (index + 1))) for index in range(len(kinds))
        )
        self.kinds, self.restartable = list(kinds), restartable
        self.restarts: list[int] = []
        self._mail: SimpleQueue[tuple[int, int, bytes | Gone]] = SimpleQueue()
        self._incarnation = [0] * len(kinds)
        self.workers = [self._start(index) for index in range(len(kinds))]

    def _start(self, index: int) -> Obedient:
        incarnation = self._incarnation[index]

        def say(message: FromGroup | Gone) -> None:
            content = message if isinstance(message, Gone) else pack(message)
            self._mail.put((index, incarnation, content))

        worker = self.kinds[index](index, self.groups[index], say)
        threading.Thread(target=worker.run, daemon=True).start()
        return worker

    def send(self, group: int, message: ToGroup) -> None:
        self.workers[group].inbox.put(unpack(ToGroup, pack(message)))

    def send_all(self, message: ToGroup) -> None:
        for group in range(len(self.groups)):
            self.send(group, message)

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        try:
            group, incarnation, content = self._mail.get(timeout=seconds)
        except Empty:
            return None
        if incarnation != self._incarnation[group]:
            return None
        return group, content if isinstance(content, Gone) else unpack(FromGroup, content)

    def restart(self, group: int) -> bool:
        self.restarts.append(group)
        if self.restartable:
            self._incarnation[group] += 1
            self.kinds[group] = Obedient
            self.workers[group].inbox.put(Quit())
            self.workers[group] = self._start(group)
        return self.restartable

    def close(self) -> None:
        for worker in self.workers:
            worker.inbox.put(Quit())
