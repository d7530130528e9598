"""The course of one trial that nobody trains: the same words to the master, at the times that training takes.

It mirrors `aiperf.training.train`: blocks of steps, validations, early stopping and the closing validation,
by the same plan and the same pace. Who runs it waits where it says so: in real time, or on a virtual clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, replace

from aiperf.config import Config
from aiperf.pretending.assumptions import Assumptions, Spread
from aiperf.proposing.pace import CLOSE_NOW, VALIDATE_NOW, Pace
from aiperf.proposing.plan import plan, validated_at_once
from aiperf.tally import Tally
from aiperf.tasks.known import task_of
from aiperf.tasks.task import Manifest
from aiperf.trial import Segment, State, StepBlock, Trial
from aiperf.wire.messages import NOTHING_KEPT, Started, Steps, Validated
from nas.graph import Graph
from nas.ops import TENSOR_OPS

ELEMENT_BYTES = 4
"""Of a weight and of its gradient."""


@dataclass(frozen=True)
class Wait:
    """So long nothing is said."""

    seconds: float
    validates: bool = False
    """Whether a validation goes on; in a long one a worker says now and then that it works."""


@dataclass(frozen=True)
class Learnt:
    """An architecture, and how much it and its ancestors were trained."""

    graph: Graph
    examples: int = 0
    rate_offset: float = 0.0
    """Logarithm of its rate ÷ that of a usual network of as many operations and layers."""

    def child(self, trial: Trial, spread: Spread) -> Learnt:
        """What a trial starts from. Raises what its morphisms raise."""
        graph, offset = self.graph, self.rate_offset
        for morphism in trial.morphisms:
            graph = morphism.apply(graph)
            own = random.Random(f"rate of {graph.key}").gauss(0.0, spread.network)
            offset = spread.lineage * offset + own
        return replace(self, graph=graph, rate_offset=offset)


@dataclass(frozen=True)
class CourseEnd:
    """How a trial ended. Its best network is kept if it has any."""

    state: State
    reason: str
    kept: Learnt | None
    segment: int
    """The one whose validation was the best in time; NOTHING_KEPT without one."""


Course = Generator[Wait | Started | Steps | Validated, None, CourseEnd]
"""What is waited for and said, in turn."""


@dataclass(frozen=True)
class Pretended:
    """A group of ranks that pretends, and what it is given to learn from."""

    assumptions: Assumptions
    config: Config
    seed: Graph
    manifest: Manifest
    """What it would have found in the data."""
    ranks: int = 1
    speed: float = 1.0
    """Of this group, times that of a usual one."""

    def step_seconds(self, learnt: Learnt, batch_size: int) -> float:
        """Of a training step, all-reduce included."""
        speed, group, graph = self.assumptions.speed, self.assumptions.group, learnt.graph
        operations = graph.cost.train.price(TENSOR_OPS) * batch_size / self.ranks
        usual = (
            speed.step_seconds + speed.layer_seconds * len(graph.nodes) + operations / speed.ops_per_second
        )
        computing = usual * math.exp(-learnt.rate_offset)
        if self.ranks == 1:
            return computing / self.speed
        content = 2 * (self.ranks - 1) / self.ranks * ELEMENT_BYTES * graph.num_parameters
        reducing = group.all_reduce_seconds + content / group.all_reduce_bytes_per_second
        return (computing + max(0.0, reducing - group.overlap * computing)) / self.speed

    def validate_seconds(self, learnt: Learnt, examples: int) -> float:
        """Of an evaluation of so many examples."""
        speed, graph = self.assumptions.speed, learnt.graph
        batches = math.ceil(examples / validated_at_once(graph, self.ranks))
        operations = graph.cost.evaluate.price(TENSOR_OPS) * examples / self.ranks
        computing = operations / speed.ops_per_second
        starting = batches * speed.layer_seconds * len(graph.nodes) / 3  # a step goes forward and back
        return (computing + starting) * math.exp(-learnt.rate_offset) / speed.validation / self.speed

    def error(self, learnt: Learnt) -> float:
        """On new examples."""
        task = task_of(self.config.data)
        errors = self.assumptions.errors.of(task.error_law)
        relative = learnt.graph.operations / self.seed.operations
        draw = random.Random(f"error of {learnt.graph.key}").gauss(0.0, 1.0)
        floor = min(0.99, errors.floor * relative**-errors.size_power * math.exp(errors.spread * draw))
        start = max(floor, task.chance(self.config.data.classes))
        left = (1 + learnt.examples / errors.examples) ** -errors.power
        return float(floor + (start - floor) * left)

    def tally(self, learnt: Learnt, examples: int) -> Tally:
        """Of so many new examples."""
        data = self.config.data
        return task_of(data).tally(examples, data.size, self.error(learnt))

    def course(self, trial: Trial, attempt: int, start: Learnt, pace: Pace, prepare_seconds: float) -> Course:
        """What the group says of a trial from its first step on. `start` is the child's own architecture.

        Each message is said when all that was waited for before it is over. `pace` is on the clock that
        the waits pass on.
        """
        graph, training = start.graph, self.config.training
        schedule, batch_size = (
            plan(trial, training, self.manifest["training_examples"]),
            trial.hyper.batch_size,
        )
        draws = random.Random(f"course of {trial.number} {attempt} {self.config.random_seed}")
        step_seconds, learnt = self.step_seconds(start, batch_size), start
        kept, kept_at = None, NOTHING_KEPT
        yield Started(trial.number, attempt, graph.key, prepare_seconds)
        best, since_best, done, index = math.inf, 0, 0, 0
        while done < schedule.steps:
            loss = self.error(learnt)
            end, first = min(done + schedule.segment_steps, schedule.steps), done
            trained, halted, took = 0.0, False, step_seconds
            while done < end:
                wanted = 1 if done == 0 else pace.steps_of_block(took, trained, end - done)
                if wanted in (CLOSE_NOW, VALIDATE_NOW):
                    halted = wanted == CLOSE_NOW
                    break
                seconds = wanted * step_seconds * math.exp(draws.gauss(0.0, self.assumptions.spread.block))
                if done == 0:
                    seconds += self.assumptions.trials.first_step_seconds / self.speed
                yield Wait(seconds)
                done, trained, took = done + wanted, trained + seconds, seconds / wanted
                examples = wanted * batch_size
                block = StepBlock(trial.number, attempt, index, wanted, examples, seconds, loss)
                yield Steps(block, 0.0)
            if done == first:
                return CourseEnd(State.STOPPED, "the run ended", kept, kept_at)
            learnt = replace(learnt, examples=learnt.examples + (done - first) * batch_size)
            of = self.manifest["validation_examples"]
            pace.validate_seconds = self.validate_seconds(start, of)
            yield Wait(pace.validate_seconds, validates=True)
            segment = Segment(
                trial=trial.number,
                attempt=attempt,
                index=index,
                steps=done - first,
                train_examples=(done - first) * batch_size,
                train_seconds=trained,
                tally=self.tally(learnt, of),
                validate_seconds=pace.validate_seconds,
            )
            in_time = pace.now() <= pace.deadline
            if segment.unbounded < best and in_time:
                best, since_best = segment.unbounded, 0
                kept, kept_at = learnt, index
            else:
                since_best += 1
            yield Validated(segment, 0.0)
            index += 1
            if (halted or not in_time) and done < schedule.steps:
                return CourseEnd(State.STOPPED, "the run ended", kept, kept_at)
            if training.patience and since_best >= training.patience:
                return CourseEnd(
                    State.COMPLETE, f"no better error in {since_best} validations", kept, kept_at
                )
        return CourseEnd(State.COMPLETE, "", kept, kept_at)
