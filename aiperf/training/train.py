"""One trial on one rank: make the steps that its course asks for, evaluate the network, keep the best one.

Nothing inside a step waits for the device: loss and error add up there, and are read at the end of a
block of steps. Every second is measured with the device synchronised at both ends.
"""

from __future__ import annotations

import gc
import math
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from time import perf_counter

import torch

from aiperf.clock import duration
from aiperf.conduct.actions import Close, Keep, OfTrial, Say, Train, Validate
from aiperf.conduct.course import Course
from aiperf.conduct.events import BlockDone, Built, EngineFailed, ValidationDone
from aiperf.data.training import NotFinite
from aiperf.engines.agreement import prepare_again, prepare_and_check, prepare_only
from aiperf.engines.engine import Engine
from aiperf.engines.registry import KINDS
from aiperf.parallel.parallel import agree, gathered, make_step
from aiperf.proposing.pace import WORKING_SECONDS, Pace
from aiperf.training.built_trial import BuiltTrial, Rank
from aiperf.training.evaluation import evaluate, share_statistics
from aiperf.training.kept_network import Kept
from aiperf.training.leader import distribute, follow
from aiperf.training.optimizers import state_of
from aiperf.wire.messages import Assign, Steps, Validated, Working
from aiperf.wire.reports import Fallback
from aiperf.wire.trial import State
from nas.frozen import frozen

Report = Callable[[Fallback | Steps | Validated | Working], None]
"""Takes the messages of a trial: on every rank what happened there, on the leader also what the group did."""

Happened = Callable[[EngineFailed | Working], None]
"""Takes what happens in the middle of a step or a validation, on every rank."""

Tensors = dict[str, dict[str, torch.Tensor]]
"""Tensors by kind and name."""

PREPARE_SECONDS = 900.0
"""An engine that takes longer to be ready for one trial is taken for one that hangs."""


class Here(RuntimeError):
    """The trial failed on this rank, as its cause says; all ranks know and are ready for the next."""


class Elsewhere(RuntimeError):
    """The trial failed on another rank, which reports it; all ranks know and are ready for the next."""


@frozen
class TrialEnd:
    """How a trial ended, and its network as it was at its best validation in time."""

    state: State
    reason: str
    """Known to the leader; empty on the other ranks."""
    kept: Kept | None
    """None if no validation was in time."""
    segment: int
    """The segment that this validation closed; NOTHING_KEPT without one."""


def train(rank: Rank, attempt: BuiltTrial, pace: Pace, report: Report) -> TrialEnd:
    """Trains to the end of the plan, to early stopping, or until the pace says to close.

    All ranks of a group call it. Raises NotFinite, Here, Elsewhere, and what torch raises; whatever was
    validated before has been reported.
    """
    assign, number = Assign(attempt.trial, attempt.number), (attempt.trial.number, attempt.number)
    course = Course(*number, Built(attempt.network.graph, attempt.plan), pace)

    def happened(event: EngineFailed | Working) -> None:
        report(Fallback(*number, event.engine, event.reason) if isinstance(event, EngineFailed) else event)

    parallel, trial = rank.parallel, TrainedTrial(rank, attempt, happened)
    work = deque[OfTrial]([course.first()])
    while True:
        leads = parallel.rank == 0
        action = distribute(parallel, work.popleft()) if leads else follow(parallel, assign)
        if isinstance(action, Close):
            return TrialEnd(action.state, action.reason, trial.kept(), action.kept)
        if (event := trial.do(action)) and leads:
            for each in course.take(event, rank.clock()):
                if isinstance(each, Say):
                    report(each.aged(rank.clock()))  # type: ignore[arg-type]
                else:
                    work.append(each)  # type: ignore[arg-type]


class TrainedTrial:
    """Carries out, on one rank, what the course of a trial asks for."""

    def __init__(self, rank: Rank, attempt: BuiltTrial, report: Happened) -> None:
        """`report` takes what happens on this rank in the middle of a work."""
        self._rank, self._attempt, self._report = rank, attempt, report
        self._kept: Tensors | None = None
        """Copies on the device of what is to be kept, by kind of state; the weights are the kind ""."""
        self._unkept: Exception | None = None
        self._done = 0
        """Steps that were made."""
        torch.manual_seed(attempt.trial.seed + rank.parallel.rank)  # of dropout

    def do(self, action: OfTrial) -> BlockDone | ValidationDone | None:
        """The event that answers the action."""
        if isinstance(action, Keep):
            self._keep()
            return None
        self._refuse_unkept()
        if isinstance(action, Train):
            return self._train(action)
        assert isinstance(action, Validate), action
        return self._validate(action.segment)

    def kept(self) -> Kept | None:
        """The network at its best validation in time, on the host; None without one."""
        self._refuse_unkept()
        if self._kept is None:
            return None
        state = {
            kind: {name: tensor.contiguous().cpu().numpy() for name, tensor in tensors.items()}
            for kind, tensors in self._kept.items()
        }
        return Kept(self._attempt.network.graph, state.pop(""), state)

    def close(self) -> None:
        """Frees what the trial holds on the device in addition to its network."""
        self._attempt.close()

    def _keep(self) -> None:
        """Nobody waits for the end of this, so an error, of memory mostly, is raised by the next work."""
        network = self._attempt.network
        try:
            weights = {name: tensor.detach().clone() for name, tensor in network.tensors().items()}
            self._kept = {"": weights, **state_of(network, self._attempt.optimizer)}
        except Exception as error:
            self._unkept = error

    def _refuse_unkept(self) -> None:
        """Raises the error of the last `_keep`, if there was one."""
        error, self._unkept = self._unkept, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback holds this frame, and with it the device's memory

    def _train(self, action: Train) -> BlockDone:
        """Raises NotFinite on all ranks of the group."""
        rank, attempt = self._rank, self._attempt
        if self._done:
            began = rank.clock()
            loss_sum, examples = self._block(action)
        else:
            begin_engine(rank, attempt, 0, self._report)
            began = rank.clock()
            loss_sum, examples = _first_step(rank, attempt)
        block = self._closed(action, loss_sum, examples, began)
        if not self._done:
            self._wrap()
        self._done += action.steps
        return block

    def _closed(self, action: Train, loss_sum: torch.Tensor, examples: int, began: float) -> BlockDone:
        """A block that began at `began`, over all ranks. Raises NotFinite."""
        rank, attempt, steps = self._rank, self._attempt, action.steps
        loss = _finite_mean(rank.parallel.sum(loss_sum), steps * rank.parallel.ranks)
        rank.device.synchronise()
        ended = rank.clock()
        rank.log.steps(attempt.trial.number, attempt.number, action.segment, steps, examples)
        (all_examples,) = rank.parallel.total(examples)
        return BlockDone(steps, all_examples, duration(ended - began), loss, ended)

    def _wrap(self) -> None:
        """Lets the backward pass average the gradients from the second step on; the first one has no
        collectives."""
        rank, attempt = self._rank, self._attempt
        engine = attempt.engine
        engine.module, attempt.optimizer = rank.parallel.wrap(engine.bare, attempt.optimizer)
        if rank.parallel.ranks > 1:
            move_engine(rank, attempt, self._report)

    def _block(self, action: Train) -> tuple[torch.Tensor, int]:
        """Makes the steps. Returns the sum of their losses and the number of examples of this rank."""
        rank, attempt = self._rank, self._attempt
        loss_sum, examples = torch.zeros((), device=rank.device.torch), 0
        for step in range(self._done, self._done + action.steps):
            begin_engine(rank, attempt, step, self._report)
            loss, seen = _backward(attempt, step, action.end)
            rank.parallel.step(attempt.optimizer, attempt.scaler, rank.training.gradient_clip)
            attempt.scaler.update()
            loss_sum += loss
            examples += seen
        return loss_sum, examples

    def _validate(self, segment: int) -> ValidationDone:
        """Evaluates the network that all ranks have in common: their statistics are averaged first. Overflows
        since the last validation belong to the segment that it closes."""
        rank, attempt = self._rank, self._attempt
        share_statistics(rank, attempt.network)
        own = partial(rank.log.answers, attempt.trial.number, attempt.number, segment)
        progress = SignsOfLife(self._report, rank.clock)
        tally, seconds = evaluate(rank, attempt.engine.answers, rank.data.validation, progress, own)
        ended = rank.clock()
        return ValidationDone(tally, seconds, ended, attempt.new_overflows(), _of_logs(rank))


def _of_logs(rank: Rank) -> str:
    """One SHA-256 over those of the logs of the group's ranks, in their order; empty where none is written.

    The journal then holds what every rank had written down by now, and a later change of it shows.
    """
    own = rank.log.digest()
    return sha256(gathered(rank.parallel, own)).hexdigest() if own else ""


def _first_step(rank: Rank, attempt: BuiltTrial) -> tuple[torch.Tensor, int]:
    """Makes the first step: its loss, and how many examples this rank saw.

    There is no collective before all ranks have their gradients, but for those of synchronised batch norms:
    what fails in a first step, memory mostly, then ends the trial and leaves the group whole.
    """
    parallel, failure = rank.parallel, None
    try:
        loss, examples = _backward(attempt, 0, None)
    except Exception as error:  # a trial is foreign code; it is the cause of what is raised below
        if rank.training.normalises_over(parallel.ranks):
            raise  # the others wait in the collectives of their batch norms
        failure = error
    try:
        if agree(parallel, failure is not None):
            raise (Here if failure else Elsewhere)(
                f"trial {attempt.trial.number}: the first step"
            ) from failure
    finally:
        del failure  # its traceback holds this frame, and with it all tensors of the step
    if parallel.ranks > 1:
        for parameter in attempt.network.parameters():
            assert parameter.grad is not None
            parameter.grad.copy_(parallel.sum(parameter.grad) / parallel.ranks)
    make_step(attempt.optimizer, attempt.scaler, rank.training.gradient_clip)
    attempt.scaler.update()
    return loss, examples


def _backward(attempt: BuiltTrial, step: int, end: int | None) -> tuple[torch.Tensor, int]:
    """Gradients of the step with this index, on this rank's examples: the loss and the number of examples.
    `end` is the step at which the trial is to end early, if that is known: the learning rate then falls to
    its end there."""
    examples, labels = attempt.batches.next
    for group in attempt.optimizer.param_groups:
        group["lr"] = attempt.plan.rate(step, end)
    loss = attempt.engine.step(examples, labels)
    if step + 1 < attempt.plan.steps:
        attempt.batches.load()
    return loss, len(labels)


def _finite_mean(loss_sum: torch.Tensor, steps: int) -> float:
    """The mean loss of a block; reading it waits for the device. Raises NotFinite."""
    mean = loss_sum.item() / steps
    if not math.isfinite(mean):
        raise NotFinite(f"the loss is {mean} in the last {steps} steps; lower training.learning_rate")
    return float(f"{mean:.6g}")  # what a journal shows; a mean over examples says no more


def begin_engine(rank: Rank, attempt: BuiltTrial, step: int, report: Happened) -> None:
    """Uses the chosen engine from this step on, if it is the first that the engine can make. One that is made
    anew for each network is checked first; all ranks of a group take it, or none.

    Nothing of this is credited. Where it fails the trial goes on eagerly, and an event says so. `step` is the
    index of the step that comes next. Raises what a collective raises.
    """
    eager, parallel = attempt.engine, rank.parallel
    kind = KINDS[attempt.engine_name]
    if attempt.engine_name == eager.name or step != kind.begins(parallel.wraps_network):
        return
    begin = prepare_and_check if kind.is_made_anew else prepare_only
    with AtWork(report):
        engine, reason = begin(kind, eager, *attempt.batches.next, parallel)
    attempt.engine = engine
    if reason:
        _fall_back(rank, attempt, reason, report)


def move_engine(rank: Rank, attempt: BuiltTrial, report: Happened) -> None:
    """Makes the engine ready again where the group has moved the network's tensors: on all ranks, or none.
    Only an engine that keeps addresses, as a captured graph does, has to be prepared again."""
    engine = attempt.engine
    with AtWork(report):
        reason = prepare_again(engine, *attempt.batches.next, rank.parallel)
    if reason:
        engine.release()
        attempt.engine = Engine(engine.passes)
        attempt.engine.module = engine.module
        _fall_back(rank, attempt, reason, report)


def _fall_back(rank: Rank, attempt: BuiltTrial, reason: str, report: Happened) -> None:
    """Reports why, and lets the rest of the trial be eager."""
    report(EngineFailed(attempt.engine_name, reason))
    attempt.engine_name = Engine.name
    if (engine := attempt.engine).is_wrapped:
        # A backward pass that failed half way leaves DDP waiting for its other half: the next step would
        # raise (`ensure_prior_reduction_finished` of torch/csrc/distributed/c10d/reducer.cpp).
        engine.module = engine.bare
        gc.collect()  # what is left of the former one has hooks on the network
        engine.module = rank.parallel.wrap_again(engine.bare)


class AtWork:
    """Reports from time to time that the rank is working while its thread waits for a compiler; for
    PREPARE_SECONDS at most, because a compiler may hang."""

    def __init__(self, report: Callable[[Working], None]) -> None:
        self._report, self._done = report, threading.Event()
        self._thread = threading.Thread(target=self._say, name="working", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _say(self) -> None:
        """Runs on a thread of its own, because the rank's thread is inside the compiler."""
        until = perf_counter() + PREPARE_SECONDS
        while not self._done.wait(WORKING_SECONDS) and perf_counter() < until:
            self._report(Working())


class SignsOfLife:
    """Reports from time to time that a long validation is in progress."""

    def __init__(self, report: Callable[[Working], None], clock: Callable[[], float]) -> None:
        self._report, self._clock, self._said = report, clock, clock()

    def __call__(self) -> None:
        """Called after each batch; a message is sent every WORKING_SECONDS at most."""
        if self._clock() - self._said > WORKING_SECONDS:
            self._said = self._clock()
            self._report(Working())
