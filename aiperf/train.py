"""One trial on one rank: build it, train it segment by segment, evaluate it.

Nothing inside a step waits for the device: loss and error add up there, and are read at the end of a
block of steps. Every second is measured with the device synchronised at both ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from aiperf.config import TrainingConfig
from aiperf.data import Data, Split
from aiperf.device import Device
from aiperf.kept import Kept
from aiperf.messages import Started, Steps, Validated
from aiperf.parallel import Parallel
from aiperf.plan import Plan, plan
from aiperf.trial import Segment, State, Trial
from nas.modules import Network

__all__ = ["Attempt", "NotFinite", "Rank", "build", "evaluate", "train"]

BLOCK_SECONDS = 2.0  # a block of steps is reported about so often
SEGMENT_SECONDS = 540.0  # a segment is credited whole, so it must not grow beyond ten minutes
CLOSING_SHARE = 1.5  # times the last validation: what is left for the closing one
LOSS_SCALE = 2.0**13  # fp16 only; it halves at each overflow and never grows, so overflows can be counted
VALIDATION_BATCH = 400  # images at once; without gradients so many fit where a training batch does


class NotFinite(ArithmeticError):
    """A loss that is not a finite number: the steps since the last validation are void."""


@dataclass(frozen=True)
class Rank:
    """What a rank has for the whole run."""

    device: Device
    data: Data
    training: TrainingConfig
    parallel: Parallel


@dataclass
class Attempt:
    """A trial that is built: its next step can be made at once."""

    trial: Trial
    number: int
    network: Network
    optimizer: torch.optim.SGD
    scaler: torch.amp.GradScaler
    plan: Plan
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]]
    prepare_seconds: float


@dataclass
class Pace:
    """When to stop: the deadline on this host's clock, and how long validations take here."""

    halted: Callable[[], bool]
    deadline: float = math.inf
    """In `perf_counter` seconds."""
    validate_seconds: float = 0.0
    """Of the last validation."""

    def must_close(self) -> bool:
        return perf_counter() >= self.deadline - CLOSING_SHARE * self.validate_seconds or self.halted()


def build(rank: Rank, trial: Trial, attempt: int, start: Kept) -> Attempt:
    """The network with its starting weights and momentum on the device, and its first batch loaded."""
    began = perf_counter()
    device, parallel = rank.device, rank.parallel
    network = Network(start.graph)
    network.load(start.weights)
    network.place(device.torch)
    optimizer = _optimizer(network, trial, device)
    _set_momentum(network, optimizer, start)
    scaler = torch.amp.GradScaler(
        device.kind,
        init_scale=LOSS_SCALE,
        growth_interval=1 << 30,
        enabled=rank.training.format == "fp16",
    )
    batches = rank.data.train.stream(trial.hyper.batch_size, trial.seed, parallel.rank, parallel.ranks)
    return Attempt(
        trial=trial,
        number=attempt,
        network=network,
        optimizer=optimizer,
        scaler=scaler,
        plan=plan(trial, rank.training, rank.data.train.num_images),
        batches=_ahead(batches),
        prepare_seconds=perf_counter() - began,
    )


def train(
    rank: Rank, attempt: Attempt, pace: Pace, report: Callable[[Started | Steps | Validated], None]
) -> tuple[State, str, Kept | None]:
    """Trains to the end of the plan, to early stopping, or until the pace says to close.

    Returns the state, the reason, and the network of the best validation. Raises NotFinite, and what
    torch raises; whatever was validated before has been reported.
    """
    torch.manual_seed(attempt.trial.seed)
    network = rank.parallel.wrap(attempt.network)
    keeper = _Keeper(attempt)
    best, since_best, done, index = math.inf, 0, 0, 0
    while done < attempt.plan.steps:
        end = min(done + attempt.plan.segment_steps, attempt.plan.steps)
        segment = _Segment(attempt, index, done)
        halted = segment.run(rank, network, end, pace, report)
        if segment.steps == 0:
            return State.STOPPED, "the run ended", keeper.kept
        correct, of, seconds = evaluate(rank, attempt.network, rank.data.validation)
        pace.validate_seconds = seconds
        closed = segment.closed(correct, of, seconds)
        ended = perf_counter()
        if closed.error < best:
            best, since_best = closed.error, 0
            keeper.keep()
        else:
            since_best += 1
        report(Validated(closed, perf_counter() - ended))
        done, index = done + segment.steps, index + 1
        if halted and done < attempt.plan.steps:
            return State.STOPPED, "the run ended", keeper.kept
        if rank.training.patience and since_best >= rank.training.patience:
            return State.COMPLETE, f"no better error in {since_best} validations", keeper.kept
    return State.COMPLETE, "", keeper.kept


@torch.inference_mode()
def evaluate(rank: Rank, network: Network, split: Split) -> tuple[int, int, float]:
    """Images classified right, images seen, seconds; summed over the group, every image once."""
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
    total = rank.parallel.sum(torch.stack([correct, torch.tensor(images_seen, device=correct.device)]))
    found, of = total.tolist()
    network.train()
    return found, of, perf_counter() - began


class _Segment:
    """The steps up to the next validation."""

    def __init__(self, attempt: Attempt, index: int, first_step: int) -> None:
        self.attempt, self.index, self.first_step = attempt, index, first_step
        self.steps, self.seconds, self.skipped = 0, 0.0, 0

    def run(
        self,
        rank: Rank,
        network: torch.nn.Module,
        end: int,
        pace: Pace,
        report: Callable[[Started | Steps | Validated], None],
    ) -> bool:
        """Trains up to the step `end`. True when the pace says that the trial must close here."""
        halted, overflows = False, _overflows(self.attempt.scaler)
        while not halted and self.first_step + self.steps < end and self.seconds < SEGMENT_SECONDS:
            began = perf_counter()
            steps, loss_sum, halted = self._block(rank, network, end, pace)
            if steps == 0:
                break
            loss = _finite_mean(loss_sum, steps)
            rank.device.synchronise()
            ended = perf_counter()
            self.steps += steps
            self.seconds += ended - began
            trial, number = self.attempt.trial, self.attempt.number
            images = steps * trial.hyper.batch_size
            report(
                Steps(
                    trial.number, number, self.index, steps, images, ended - began, perf_counter() - ended, loss
                )
            )
        self.skipped = _overflows(self.attempt.scaler) - overflows
        return halted

    def _block(
        self, rank: Rank, network: torch.nn.Module, end: int, pace: Pace
    ) -> tuple[int, torch.Tensor, bool]:
        """Steps for about BLOCK_SECONDS: their number, the sum of their losses, whether to close."""
        attempt, device = self.attempt, rank.device
        smoothing, optimizer, scaler = attempt.trial.hyper.label_smoothing, attempt.optimizer, attempt.scaler
        first = self.first_step + self.steps
        loss_sum = torch.zeros((), device=device.torch)
        began, step = perf_counter(), first
        halted = False
        while step < end:
            halted = pace.must_close()
            if halted or perf_counter() - began > BLOCK_SECONDS:
                break
            images, labels = next(attempt.batches)
            for group in optimizer.param_groups:
                group["lr"] = attempt.plan.rate(step)
            with device.autocast(rank.training.format):
                loss = cross_entropy(network(images), labels, label_smoothing=smoothing)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            loss_sum += loss.detach()
            step += 1
        return step - first, loss_sum, halted

    def closed(self, correct: int, of: int, validate_seconds: float) -> Segment:
        trial = self.attempt.trial
        return Segment(
            trial=trial.number,
            attempt=self.attempt.number,
            index=self.index,
            steps=self.steps,
            train_images=self.steps * trial.hyper.batch_size,
            train_seconds=self.seconds,
            correct=correct,
            of=of,
            validate_seconds=validate_seconds,
            skipped=self.skipped,
        )


class _Keeper:
    """Holds the network as it was at its best validation."""

    def __init__(self, attempt: Attempt) -> None:
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


def _overflows(scaler: torch.amp.GradScaler) -> int:
    """Steps skipped since the trial began: the scale halves at each and never grows."""
    return round(math.log2(LOSS_SCALE / scaler.get_scale())) if scaler.is_enabled() else 0


def _ahead(
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]],
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The same batches, the first already loaded."""
    first = next(batches)

    def chained() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield first
        yield from batches

    return chained()
