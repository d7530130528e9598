"""One trial on one rank: build it, train it segment by segment, evaluate it.

Nothing inside a step waits for the device: loss and error add up there, and are read at the end of a
block of steps. Every second is measured with the device synchronised at both ends.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from time import perf_counter

import numpy as np
import torch

from aiperf.clock import duration, moment
from aiperf.engines.check import begun, moved, ready
from aiperf.engines.engine import Engine
from aiperf.engines.made import KINDS
from aiperf.engines.objective import NotFinite
from aiperf.parallel.parallel import agree, gathered, lead, make_step
from aiperf.proposing.pace import CLOSE_NOW, VALIDATE_NOW, WORKING_SECONDS, Pace
from aiperf.tally import Tally
from aiperf.training.built_trial import BuiltTrial, Rank
from aiperf.training.evaluation import evaluate, share_statistics
from aiperf.training.kept_network import Kept
from aiperf.training.optimizers import state_of
from aiperf.trial import Segment, State, StepBlock
from aiperf.wire.messages import NOTHING_KEPT, Fallback, Started, Steps, Validated, Working

Report = Callable[[Started | Fallback | Steps | Validated | Working], None]
"""Takes what the leader of the group says, on every rank."""

PREPARE_SECONDS = 900.0  # of an engine in one trial: after that it is taken for one that hangs


class Here(RuntimeError):
    """The trial failed on this rank, as its cause says; all ranks know and are ready for the next."""


class Elsewhere(RuntimeError):
    """The trial failed on another rank, which tells; all ranks know and are ready for the next."""


@dataclass(frozen=True)
class TrialEnd:
    """How a trial ended, and its network as it was at its best validation in time."""

    state: State
    reason: str
    kept: Kept | None
    segment: int
    """The one that this validation closed; NOTHING_KEPT without one."""


def train(rank: Rank, attempt: BuiltTrial, pace: Pace, report: Report) -> TrialEnd:
    """Trains to the end of the plan, to early stopping, or until the pace says to close.

    Raises NotFinite, Here, Elsewhere, and what torch raises; whatever was validated before has been reported.
    """
    torch.manual_seed(attempt.trial.seed + rank.parallel.rank)  # of dropout
    begin_engine(rank, attempt, 0, report)
    began = perf_counter()
    loss, examples = _first_step(rank, attempt)
    keeper = _Keeper(attempt)
    best, since_best, done, index = math.inf, 0, 0, 0
    while done < attempt.plan.steps:
        end = min(done + attempt.plan.segment_steps, attempt.plan.steps)
        segment = _Segment(attempt, index, done)
        if done == 0:
            segment.tell(rank, 1, loss, examples, began, report)
            engine = attempt.engine
            engine.module, attempt.optimizer = rank.parallel.wrap(engine.bare, attempt.optimizer)
            if rank.parallel.ranks > 1:
                move_engine(rank, attempt, report)
        halted = segment.run(rank, end, pace, report)
        if segment.steps == 0:
            return keeper.end(State.STOPPED, "the run ended")
        share_statistics(rank, attempt.network)
        own = partial(rank.log.answers, attempt.trial.number, attempt.number, index)
        answers, progress = attempt.engine.answers, SignsOfLife(report)
        tally, seconds = evaluate(rank, answers, rank.data.validation, progress, own)
        pace.validate_seconds = seconds
        closed = segment.closed(tally, seconds)
        ended = perf_counter()
        in_time = lead(rank.parallel, int(ended <= pace.deadline))  # the ranks' clocks differ a little
        if closed.unbounded < best and in_time:  # what came too late chooses nothing
            best, since_best = closed.unbounded, 0
            keeper.keep(index)
        else:
            since_best += 1
        logs = _of_logs(rank)
        report(Validated(closed, perf_counter() - ended, logs))
        done, index = done + segment.steps, index + 1
        if (halted or not in_time) and done < attempt.plan.steps:
            return keeper.end(State.STOPPED, "the run ended")
        if rank.training.patience and since_best >= rank.training.patience:
            return keeper.end(State.COMPLETE, f"no better error in {since_best} validations")
    return keeper.end(State.COMPLETE, "")


def _of_logs(rank: Rank) -> str:
    """One SHA-256 over those of the logs of the group's ranks, in their order; empty where none is written.

    The journal then holds what every rank had written down by now, and a later change of it shows.
    """
    own = rank.log.digest()
    return sha256(gathered(rank.parallel, own)).hexdigest() if own else ""


class _Segment:
    """The steps up to the next validation."""

    def __init__(self, attempt: BuiltTrial, index: int, first_step: int) -> None:
        self.attempt, self.index, self.first_step = attempt, index, first_step
        self.steps, self.examples, self.seconds = 0, 0, 0.0

    def run(self, rank: Rank, end: int, pace: Pace, report: Report) -> bool:
        """Trains up to the step `end`. True when the pace says that the trial must close here."""
        while self.first_step + self.steps < end:
            self.attempt.end = lead(rank.parallel, self._end(pace))
            left = end - self.first_step - self.steps
            # So many that nobody asks in between.
            steps = lead(rank.parallel, pace.steps_of_block(self.attempt.step_seconds, self.seconds, left))
            if steps in (CLOSE_NOW, VALIDATE_NOW):
                return steps == CLOSE_NOW
            began = perf_counter()
            loss_sum, examples = self._block(rank, steps, report)
            self.tell(rank, steps, loss_sum, examples, began, report)
        return False

    def _end(self, pace: Pace) -> int:
        """The step at which the trial will end, its validations included: the plan's last, or one before."""
        attempt, made = self.attempt, self.first_step + self.steps
        seconds = self.seconds / self.steps if self.steps else attempt.step_seconds
        seconds += pace.validate_seconds / attempt.plan.segment_steps
        return min(attempt.plan.steps, made + 1 + int(min(pace.steps_left(seconds), attempt.plan.steps)))

    def _block(self, rank: Rank, steps: int, report: Report) -> tuple[torch.Tensor, int]:
        """Makes so many steps: the sum of their losses, and how many examples this rank saw."""
        attempt = self.attempt
        loss_sum, examples = torch.zeros((), device=rank.device.torch), 0
        first = self.first_step + self.steps
        for step in range(first, first + steps):
            begin_engine(rank, attempt, step, report)
            loss, seen = _backward(attempt, step)
            rank.parallel.step(attempt.optimizer, attempt.scaler, rank.training.gradient_clip)
            attempt.scaler.update()
            loss_sum += loss
            examples += seen
        return loss_sum, examples

    def tell(
        self, rank: Rank, steps: int, loss_sum: torch.Tensor, examples: int, began: float, report: Report
    ) -> None:
        """Closes a block that this rank began at `began`. Raises NotFinite."""
        loss = _finite_mean(rank.parallel.sum(loss_sum), steps * rank.parallel.ranks)
        rank.device.synchronise()
        ended = perf_counter()
        trial, attempt = self.attempt.trial.number, self.attempt.number
        rank.log.steps(trial, attempt, self.index, steps, examples)
        (all_examples,) = rank.parallel.total(examples)
        self.steps += steps
        self.examples += all_examples
        seconds = duration(ended - began)
        self.seconds += seconds
        self.attempt.step_seconds = (ended - began) / steps
        age = perf_counter() - ended
        report(Steps(StepBlock(trial, attempt, self.index, steps, all_examples, seconds, loss), age))

    def closed(self, tally: Tally, validate_seconds: float) -> Segment:
        trial = self.attempt.trial
        return Segment(
            trial=trial.number,
            attempt=self.attempt.number,
            index=self.index,
            steps=self.steps,
            train_examples=self.examples,
            train_seconds=moment(self.seconds),  # a sum of whole microseconds
            tally=tally,
            validate_seconds=validate_seconds,
            skipped=self.attempt.new_overflows(),
        )


def _first_step(rank: Rank, attempt: BuiltTrial) -> tuple[torch.Tensor, int]:
    """Makes the first step: its loss, and how many examples this rank saw.

    No rank is met before all have their gradients: what fails in a first step, memory mostly, then ends
    the trial and leaves the group whole.
    """
    parallel, failure = rank.parallel, None
    try:
        loss, examples = _backward(attempt, 0)
    except Exception as error:  # a trial is foreign code; it is the cause of what is raised below
        failure = error
    if agree(parallel, failure is not None):
        raise (Here if failure else Elsewhere)(f"trial {attempt.trial.number}: the first step") from failure
    if parallel.ranks > 1:
        for parameter in attempt.network.parameters():
            assert parameter.grad is not None
            parameter.grad.copy_(parallel.sum(parameter.grad) / parallel.ranks)
    make_step(attempt.optimizer, attempt.scaler, rank.training.gradient_clip)
    attempt.scaler.update()
    return loss, examples


def _backward(attempt: BuiltTrial, step: int) -> tuple[torch.Tensor, int]:
    """Gradients of the step with this index, on this rank's examples: the loss and the number of examples."""
    examples, labels = attempt.batches.next
    for group in attempt.optimizer.param_groups:
        group["lr"] = attempt.plan.rate(step, attempt.end)
    loss = attempt.engine.step(examples, labels)
    if step + 1 < attempt.plan.steps:
        attempt.batches.load()
    return loss, len(labels)


class _Keeper:
    """Holds the network as it was at its best validation."""

    def __init__(self, attempt: BuiltTrial) -> None:
        self.attempt = attempt
        self.tensors: dict[str, torch.Tensor] = {}
        self.state: dict[str, dict[str, torch.Tensor]] = {}
        self.segment = NOTHING_KEPT

    def keep(self, segment: int) -> None:
        network = self.attempt.network
        self.segment = segment
        self.tensors = {name: tensor.detach().clone() for name, tensor in network.tensors().items()}
        self.state = state_of(network, self.attempt.optimizer)

    def end(self, state: State, reason: str) -> TrialEnd:
        return TrialEnd(state, reason, self._kept(), self.segment)

    def _kept(self) -> Kept | None:
        if not self.tensors:
            return None
        state = {kind: _arrays(tensors) for kind, tensors in self.state.items()}
        return Kept(self.attempt.network.graph, _arrays(self.tensors), state)


def _arrays(tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.contiguous().cpu().numpy() for name, tensor in tensors.items()}


def _finite_mean(loss_sum: torch.Tensor, steps: int) -> float:
    """The mean loss of a block; reading it waits for the device. Raises NotFinite."""
    mean = loss_sum.item() / steps
    if not math.isfinite(mean):
        raise NotFinite(f"the loss is {mean} in the last {steps} steps; the learning rate may be too high")
    return float(f"{mean:.6g}")  # what a journal shows; a mean over examples says no more


def begin_engine(rank: Rank, attempt: BuiltTrial, step: int, report: Report) -> None:
    """Makes the wanted engine that of the trial where this is its first step. One that is made anew for each
    network is checked first; all ranks of a group take it, or none.

    Nothing of this is credited. Where it fails the trial goes on eagerly, and an event says so.
    """
    eager, parallel = attempt.engine, rank.parallel
    kind = KINDS[attempt.wanted]
    if attempt.wanted == eager.name or step != kind.begins(parallel.wraps_network):
        return
    begin = begun if kind.is_made_anew else ready
    with AtWork(report):
        engine, reason = begin(attempt.wanted, eager, *attempt.batches.next, parallel)
    if reason:
        _fall_back(attempt, reason, report)
    attempt.engine = engine


def move_engine(rank: Rank, attempt: BuiltTrial, report: Report) -> None:
    """Makes the engine ready again where the group has moved the network's tensors: on all ranks, or none."""
    engine = attempt.engine
    with AtWork(report):
        reason = moved(engine, *attempt.batches.next, rank.parallel)
    if reason:
        engine.release()
        _fall_back(attempt, reason, report)
        attempt.engine = Engine(engine.passes)
        attempt.engine.module = engine.module


def _fall_back(attempt: BuiltTrial, reason: str, report: Report) -> None:
    report(Fallback(attempt.trial.number, attempt.number, attempt.wanted, reason))
    attempt.wanted = Engine.name


class AtWork:
    """Says now and then that the rank is at work, while its thread waits for a compiler; not without end, for
    a compiler may hang."""

    def __init__(self, report: Report) -> None:
        self._report, self._done = report, threading.Event()
        self._thread = threading.Thread(target=self._say, name="working", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _say(self) -> None:
        until = perf_counter() + PREPARE_SECONDS
        while not self._done.wait(WORKING_SECONDS) and perf_counter() < until:
            self._report(Working())


class SignsOfLife:
    """Says now and then that a long validation goes on."""

    def __init__(self, report: Report) -> None:
        self._report, self._said = report, perf_counter()

    def __call__(self) -> None:
        if perf_counter() - self._said > WORKING_SECONDS:
            self._said = perf_counter()
            self._report(Working())
