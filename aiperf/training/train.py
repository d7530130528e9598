"""One trial on one rank: build it, train it segment by segment, evaluate it.

Nothing inside a step waits for the device: loss and error add up there, and are read at the end of a
block of steps. Every second is measured with the device synchronised at both ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from time import perf_counter

import numpy as np
import torch
from torch.nn.functional import cross_entropy, dropout

from aiperf.config import TrainingConfig
from aiperf.data import Data, Split
from aiperf.device import Device
from aiperf.parallel.batchnorm import synchronise
from aiperf.parallel.parallel import Parallel, agree, gathered, lead
from aiperf.proposing.plan import CLOSING_SHARE, SEGMENT_SECONDS, Plan, plan
from aiperf.training.kept_network import Kept
from aiperf.training.rank_log import NoLog, OwnLog
from aiperf.trial import Segment, State, StepBlock, Trial
from aiperf.wire.messages import Started, Steps, Validated, Working
from nas.modules import Network

Report = Callable[[Started | Steps | Validated | Working], None]
"""Takes what the leader of the group says, on every rank."""

BLOCK_SECONDS = 2.0  # a block of steps is reported about so often
LOSS_SCALE = 2.0**13  # fp16 only; it halves at each overflow and never grows, so overflows can be counted
VALIDATION_BATCH = 400  # images at once; without gradients so many fit where a training batch does
WORKING_SECONDS = 5.0  # between two words of a long validation
CLOSE_NOW, VALIDATE_NOW = -1, 0  # what the leader says instead of a number of steps


class NotFinite(ArithmeticError):
    """A loss that is not a finite number: the steps since the last validation are void.

    Raised by all ranks of a group at once.
    """


class Here(RuntimeError):
    """The trial failed on this rank, as its cause says; all ranks know and are ready for the next."""


class Elsewhere(RuntimeError):
    """The trial failed on another rank, which tells; all ranks know and are ready for the next."""


@dataclass(frozen=True)
class Rank:
    """What a rank has for the whole run."""

    device: Device
    data: Data
    training: TrainingConfig
    parallel: Parallel
    log: OwnLog = field(default_factory=NoLog)
    """Of this rank's own work, written before it is reported."""


@dataclass
class BuiltTrial:
    """A trial that is built: its next step can be made at once."""

    trial: Trial
    number: int
    network: Network
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    plan: Plan
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]]
    prepare_seconds: float
    step_seconds: float = math.inf
    """Of the last block; before the first, not known."""
    overflows: int = 0
    """Steps that were skipped in closed segments."""

    def new_overflows(self) -> int:
        """Steps skipped since this was last asked: the scale halves at each and never grows."""
        scaler, before = self.scaler, self.overflows
        self.overflows = round(math.log2(LOSS_SCALE / scaler.get_scale())) if scaler.is_enabled() else 0
        return self.overflows - before


@dataclass
class Pace:
    """When to stop: the deadline on this host's clock, and how long validations take here.

    In a group the leader's counts.
    """

    halted: Callable[[], bool]
    deadline: float = math.inf
    """In `perf_counter` seconds."""
    validate_seconds: float = 0.0
    """Of the last validation."""

    def must_close(self) -> bool:
        return self.halted() or self.seconds_left() <= 0

    def seconds_left(self) -> float:
        """For training, before the closing validation must begin."""
        return self.deadline - CLOSING_SHARE * self.validate_seconds - perf_counter()


def build(rank: Rank, trial: Trial, attempt: int, start: Kept) -> BuiltTrial:
    """The network with its starting weights and momentum on the device, and its first batch loaded."""
    began = perf_counter()
    device, parallel = rank.device, rank.parallel
    network = Network(start.graph)
    network.load(start.weights)
    network.place(device.torch)
    _drop_out(network, trial.hyper.dropout)
    if rank.training.batch_norm == "synchronised" and parallel.ranks > 1:
        synchronise(network, parallel.sum)
    optimizer = _optimizer(network, trial, device)
    _set_momentum(network, optimizer, start)
    scaler = torch.amp.GradScaler(
        device.kind,
        init_scale=LOSS_SCALE,
        growth_interval=1 << 30,
        enabled=rank.training.format == "fp16",
    )
    batches = rank.data.train.stream(trial.hyper.batch_size, trial.seed, parallel.rank, parallel.ranks)
    return BuiltTrial(
        trial=trial,
        number=attempt,
        network=network,
        optimizer=optimizer,
        scaler=scaler,
        plan=plan(trial, rank.training, rank.data.train.num_images),
        batches=_ahead(batches),
        prepare_seconds=perf_counter() - began,
    )


def train(rank: Rank, attempt: BuiltTrial, pace: Pace, report: Report) -> tuple[State, str, Kept | None]:
    """Trains to the end of the plan, to early stopping, or until the pace says to close.

    Returns the state, the reason, and the network of the best validation. Raises NotFinite, Here,
    Elsewhere, and what torch raises; whatever was validated before has been reported.
    """
    torch.manual_seed(attempt.trial.seed + rank.parallel.rank)  # of dropout
    began = perf_counter()
    loss, images = _first_step(rank, attempt)
    network: torch.nn.Module = attempt.network
    keeper = _Keeper(attempt)
    best, since_best, done, index = math.inf, 0, 0, 0
    while done < attempt.plan.steps:
        end = min(done + attempt.plan.segment_steps, attempt.plan.steps)
        segment = _Segment(attempt, index, done)
        if done == 0:
            segment.tell(rank, 1, loss, images, began, report)
            network, attempt.optimizer = rank.parallel.wrap(network, attempt.optimizer)
        halted = segment.run(rank, network, end, pace, report)
        if segment.steps == 0:
            return State.STOPPED, "the run ended", keeper.kept
        _share_statistics(rank, attempt.network)
        own = partial(rank.log.answers, attempt.trial.number, attempt.number, index)
        correct, of, seconds = evaluate(rank, attempt.network, rank.data.validation, _Progress(report), own)
        pace.validate_seconds = seconds
        closed = segment.closed(correct, of, seconds)
        ended = perf_counter()
        if closed.error < best and ended <= pace.deadline:  # what came too late chooses nothing
            best, since_best = closed.error, 0
            keeper.keep()
        else:
            since_best += 1
        logs = _of_logs(rank)
        report(Validated(closed, perf_counter() - ended, logs))
        done, index = done + segment.steps, index + 1
        if halted and done < attempt.plan.steps:
            return State.STOPPED, "the run ended", keeper.kept
        if rank.training.patience and since_best >= rank.training.patience:
            return State.COMPLETE, f"no better error in {since_best} validations", keeper.kept
    return State.COMPLETE, "", keeper.kept


@torch.inference_mode()
def evaluate(
    rank: Rank,
    network: Network,
    split: Split,
    progress: Callable[[], None] = lambda: None,
    own: Callable[[int, int], None] = lambda correct, of: None,
) -> tuple[int, int, float]:
    """Images classified right, images seen, seconds; summed over the group, every image once.

    `progress` is called after each batch, `own` with the first two of this rank alone.
    """
    rank.device.synchronise()
    began = perf_counter()
    network.eval()
    correct = torch.zeros((), dtype=torch.int64, device=rank.device.torch)
    images_seen = 0
    batch_size = max(1, min(VALIDATION_BATCH, split.num_images))
    for images, labels in split.sweep(batch_size, rank.parallel.rank, rank.parallel.ranks):
        with rank.device.autocast(rank.training.format):
            logits = network(images)
        correct += (logits.argmax(dim=1) == labels).sum()
        images_seen += len(labels)
        progress()
    own(int(correct), images_seen)
    found, of = rank.parallel.total(int(correct), images_seen)
    network.train()
    return found, of, perf_counter() - began


def _of_logs(rank: Rank) -> str:
    """One SHA-256 over those of the logs of the group's ranks, in their order; empty where none is written.

    The journal then holds what every rank had written down by now, and a later change of it shows.
    """
    own = rank.log.digest()
    return sha256(gathered(rank.parallel, own)).hexdigest() if own else ""


class _Progress:
    """Says now and then that a long validation goes on."""

    def __init__(self, report: Report) -> None:
        self._report, self._said = report, perf_counter()

    def __call__(self) -> None:
        if perf_counter() - self._said > WORKING_SECONDS:
            self._said = perf_counter()
            self._report(Working())


class _Segment:
    """The steps up to the next validation."""

    def __init__(self, attempt: BuiltTrial, index: int, first_step: int) -> None:
        self.attempt, self.index, self.first_step = attempt, index, first_step
        self.steps, self.images, self.seconds = 0, 0, 0.0

    def run(self, rank: Rank, network: torch.nn.Module, end: int, pace: Pace, report: Report) -> bool:
        """Trains up to the step `end`. True when the pace says that the trial must close here."""
        while self.first_step + self.steps < end:
            steps = lead(rank.parallel, self._wanted(end, pace))
            if steps in (CLOSE_NOW, VALIDATE_NOW):
                return steps == CLOSE_NOW
            began = perf_counter()
            loss_sum, images = self._block(rank, network, steps)
            self.tell(rank, steps, loss_sum, images, began, report)
        return False

    def _wanted(self, end: int, pace: Pace) -> int:
        """How many steps the leader wants in the next block: so many that nobody asks in between.

        Towards the deadline a block takes half of what is left, so that a step that suddenly takes
        longer does not carry the closing validation past it.
        """
        if pace.must_close():
            return CLOSE_NOW
        if self.seconds >= SEGMENT_SECONDS:
            return VALIDATE_NOW
        room = min(BLOCK_SECONDS, pace.seconds_left() / 2)
        return max(1, min(int(room / self.attempt.step_seconds), end - self.first_step - self.steps))

    def _block(self, rank: Rank, network: torch.nn.Module, steps: int) -> tuple[torch.Tensor, int]:
        """Makes so many steps: the sum of their losses, and how many images this rank saw."""
        attempt = self.attempt
        loss_sum, images = torch.zeros((), device=rank.device.torch), 0
        first = self.first_step + self.steps
        for step in range(first, first + steps):
            loss, seen = _backward(rank, attempt, network, step)
            rank.parallel.step(attempt.optimizer, attempt.scaler)
            attempt.scaler.update()
            loss_sum += loss
            images += seen
        return loss_sum, images

    def tell(
        self, rank: Rank, steps: int, loss_sum: torch.Tensor, images: int, began: float, report: Report
    ) -> None:
        """Closes a block that this rank began at `began`. Raises NotFinite."""
        loss = _finite_mean(rank.parallel.sum(loss_sum), steps * rank.parallel.ranks)
        rank.device.synchronise()
        ended = perf_counter()
        trial, attempt = self.attempt.trial.number, self.attempt.number
        rank.log.steps(trial, attempt, self.index, steps, images)
        (all_images,) = rank.parallel.total(images)
        self.steps += steps
        self.images += all_images
        self.seconds += ended - began
        self.attempt.step_seconds = (ended - began) / steps
        age = perf_counter() - ended
        report(Steps(StepBlock(trial, attempt, self.index, steps, all_images, ended - began, loss), age))

    def closed(self, correct: int, of: int, validate_seconds: float) -> Segment:
        trial = self.attempt.trial
        return Segment(
            trial=trial.number,
            attempt=self.attempt.number,
            index=self.index,
            steps=self.steps,
            train_images=self.images,
            train_seconds=self.seconds,
            correct=correct,
            of=of,
            validate_seconds=validate_seconds,
            skipped=self.attempt.new_overflows(),
        )


def _first_step(rank: Rank, attempt: BuiltTrial) -> tuple[torch.Tensor, int]:
    """Makes the first step: its loss, and how many images this rank saw.

    No rank is met before all have their gradients: what fails in a first step, memory mostly, then ends
    the trial and leaves the group whole.
    """
    parallel, failure = rank.parallel, None
    try:
        loss, images = _backward(rank, attempt, attempt.network, 0)
    except Exception as error:  # a trial is foreign code; it is the cause of what is raised below
        failure = error
    if agree(parallel, failure is not None):
        raise (Here if failure else Elsewhere)(f"trial {attempt.trial.number}: the first step") from failure
    if parallel.ranks > 1:
        for parameter in attempt.network.parameters():
            assert parameter.grad is not None
            parameter.grad.copy_(parallel.sum(parameter.grad) / parallel.ranks)
    attempt.scaler.step(attempt.optimizer)
    attempt.scaler.update()
    return loss, images


def _backward(
    rank: Rank, attempt: BuiltTrial, network: torch.nn.Module, step: int
) -> tuple[torch.Tensor, int]:
    """Gradients of the step with this index, on this rank's images: the loss and the number of images."""
    images, labels = next(attempt.batches)
    for group in attempt.optimizer.param_groups:
        group["lr"] = attempt.plan.rate(step)
    with rank.device.autocast(rank.training.format):
        loss = cross_entropy(network(images), labels, label_smoothing=attempt.trial.hyper.label_smoothing)
    attempt.optimizer.zero_grad()
    attempt.scaler.scale(loss).backward()
    return loss.detach(), len(labels)


@torch.no_grad()
def _share_statistics(rank: Rank, network: Network) -> None:
    """Makes the running statistics of batch norm the mean of those of all ranks, each of its own images.

    So every rank evaluates the same network, which is also the one that is kept.
    """
    statistics = [tensor for tensor in network.tensors().values() if not tensor.requires_grad]
    if rank.parallel.ranks == 1 or not statistics:
        return
    means = rank.parallel.sum(torch.cat([tensor.flatten() for tensor in statistics])) / rank.parallel.ranks
    for tensor, mean in zip(statistics, means.split([tensor.numel() for tensor in statistics])):
        tensor.copy_(mean.view_as(tensor))


class _Keeper:
    """Holds the network as it was at its best validation."""

    def __init__(self, attempt: BuiltTrial) -> None:
        self.attempt = attempt
        self.tensors: dict[str, torch.Tensor] = {}
        self.momentum: dict[str, torch.Tensor] = {}

    def keep(self) -> None:
        network = self.attempt.network
        self.tensors = {name: tensor.detach().clone() for name, tensor in network.tensors().items()}
        state = self.attempt.optimizer.state
        self.momentum = {
            name: state[tensor]["momentum_buffer"].clone()
            for name, tensor in network.tensors().items()
            if tensor.requires_grad and "momentum_buffer" in state[tensor]
        }

    @property
    def kept(self) -> Kept | None:
        if not self.tensors:
            return None
        return Kept(self.attempt.network.graph, _arrays(self.tensors), _arrays(self.momentum))


def _arrays(tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.contiguous().cpu().numpy() for name, tensor in tensors.items()}


def _optimizer(network: Network, trial: Trial, device: Device) -> torch.optim.SGD:
    hyper = trial.hyper
    parameters = [tensor for tensor in network.tensors().values() if tensor.requires_grad]
    decayed = [tensor for tensor in parameters if tensor.ndim > 1]
    plain = [tensor for tensor in parameters if tensor.ndim <= 1]  # batch norm and biases
    return torch.optim.SGD(
        [
            {"params": decayed, "weight_decay": hyper.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=hyper.learning_rate,
        momentum=hyper.momentum,
        fused=device.kind in ("cpu", "cuda", "xpu"),
    )


def _drop_out(network: Network, rate: float) -> None:
    """Sets a share of what the last layer with weights reads to zero, in training only."""
    weighted = [module for module in network.layers if any(True for _ in module.parameters(recurse=False))]
    if rate and weighted:
        weighted[-1].register_forward_pre_hook(
            lambda module, inputs: (dropout(inputs[0], rate, module.training),)
        )


def _set_momentum(network: Network, optimizer: torch.optim.SGD, start: Kept) -> None:
    tensors = network.tensors()
    for name, array in start.momentum.items():
        buffer = torch.empty_like(tensors[name])
        buffer.copy_(torch.from_numpy(array))
        optimizer.state[tensors[name]]["momentum_buffer"] = buffer


def _finite_mean(loss_sum: torch.Tensor, steps: int) -> float:
    """The mean loss of a block; reading it waits for the device. Raises NotFinite."""
    mean = loss_sum.item() / steps
    if not math.isfinite(mean):
        raise NotFinite(f"the loss is {mean} in the last {steps} steps; the learning rate may be too high")
    return mean


def _ahead(
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]],
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The same batches, the first already loaded."""
    first = next(batches)

    def chained() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield first
        yield from batches

    return chained()
