"""A trial that is built: network, optimizer and the first batch are on the device.

It is built beside the steps of the trial before, on a thread and a queue of its own, so that the device does
not wait between two trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import torch
from torch.nn.functional import dropout

from aiperf.config import TrainingConfig
from aiperf.data import Data
from aiperf.data.splits import Batch
from aiperf.device import Device
from aiperf.device.device import BATCHES
from aiperf.engines.engine import Engine, Passes, placed
from aiperf.engines.objective import objective_of
from aiperf.parallel.batchnorm import synchronise, synchronise_natively
from aiperf.parallel.parallel import Parallel
from aiperf.proposing.plan import Plan, plan
from aiperf.training.kept_network import Kept
from aiperf.training.optimizers import make_optimizer, set_state
from aiperf.training.rank_log import NoLog
from aiperf.wire.trial import Trial
from nas.frozen import frozen
from nas.modules import Network

LOSS_SCALE = 2.0**13  # fp16 only; it halves at each overflow and never grows, so overflows can be counted


@frozen
class Rank:
    """What a rank has for the whole run."""

    device: Device
    data: Data
    """Its splits lie on the device, or are read from files by processes of this rank."""
    training: TrainingConfig
    parallel: Parallel
    """The group that trains each trial together; one rank alone is a group, too."""
    log: NoLog = field(default_factory=NoLog)
    """Takes this rank's own work before it is reported."""
    clock: Callable[[], float] = perf_counter
    """Seconds; all times of trials are taken on it."""


class InAdvance:
    """Batches, each loaded beside the step before it; the first is loaded already."""

    def __init__(self, batches: Iterator[Batch], device: Device) -> None:
        """`batches` are (examples, targets) of this rank; `aside` is a queue of the device beside that of the
        steps."""
        self._batches, self._device, self._aside = batches, device, device.aside(BATCHES)
        self._loaded = self._next()

    @property
    def next(self) -> Batch:
        """Examples and targets of the next step; the same at each call until `load` is called."""
        # What is submitted from here on waits for the copy of the batch.
        self._aside.join(*self._loaded)
        return self._loaded

    def load(self) -> None:
        """To be called when the step of the batch before is submitted. Its copy then runs beside the kernels
        of that step."""
        with self._aside.begin():
            self._loaded = self._next()

    def _next(self) -> Batch:
        """The next batch, its examples in the memory layout of the device. Raises what the loader raises."""
        examples, targets = next(self._batches)
        return self._device.arranged(examples), targets


@dataclass
class BuiltTrial:
    """A trial that is built: its next step can be made at once."""

    trial: Trial
    number: int
    """Number of the attempt: a trial whose group was lost is trained once more."""
    network: Network
    optimizer: torch.optim.Optimizer
    """Replaced after the first step by the one that the group's `wrap` returns."""
    scaler: torch.amp.GradScaler
    """Enabled for fp16 only; otherwise it passes losses and steps through."""
    plan: Plan
    """Steps, segments and learning rates."""
    batches: InAdvance
    engine: Engine
    """The engine that makes the steps: the eager one until another was prepared and checked."""
    engine_name: str = Engine.name
    """Name of the engine that is to make them."""
    overflows: int = 0
    """Steps that were skipped in closed segments."""

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Those of the network and of the optimizer's state."""
        states = [values for state in self.optimizer.state.values() for values in state.values()]
        return [*self.network.tensors().values(), *states]

    def close(self) -> None:
        """Frees what the engine holds, above all a captured graph with its memory."""
        self.engine.release()

    def new_overflows(self) -> int:
        """Steps skipped since this was last asked: the scale halves at each and never grows. In fp16 such a
        step changes no weights."""
        scaler, before = self.scaler, self.overflows
        self.overflows = round(math.log2(LOSS_SCALE / scaler.get_scale())) if scaler.is_enabled() else 0
        return self.overflows - before


def build(rank: Rank, trial: Trial, attempt: int, start: Kept) -> BuiltTrial:
    """The network with its starting weights and the optimizer's state on the device, and its first batch
    loaded. It runs on the thread that prepares, while the trial before makes its steps. In a group every rank
    builds the same network, and reads its own share of each batch."""
    device, parallel = rank.device, rank.parallel
    network = placed(start.graph, start.weights, device)
    _drop_out(network, trial.hyper.dropout)
    if rank.training.normalises_over(parallel.ranks):
        if device.kind == "cuda" and parallel.wraps_network:
            synchronise_natively(network)
        else:
            synchronise(network, parallel.sum)
    training = rank.training
    optimizer = make_optimizer(training.optimizer, network, trial.hyper, device, training.format)
    set_state(network, optimizer, start.state)
    scaler = torch.amp.GradScaler(
        device.kind,
        init_scale=LOSS_SCALE,
        growth_interval=1 << 30,
        enabled=rank.training.format == "fp16",
    )
    objective = objective_of(network.graph, trial.hyper.label_smoothing)
    passes = Passes(network, device, rank.training.format, scaler, objective)
    batches = rank.data.train.stream(trial.hyper.batch_size, trial.seed, parallel.rank, parallel.ranks)
    return BuiltTrial(
        trial=trial,
        number=attempt,
        network=network,
        optimizer=optimizer,
        scaler=scaler,
        plan=plan(trial, rank.training, rank.data.train.num_examples),
        batches=InAdvance(batches, device),
        engine=Engine(passes),
    )


def _drop_out(network: Network, rate: float) -> None:
    """Sets a share of what the last layer with weights reads to zero, in training only.

    A hook and not a layer: dropout is a hyper-parameter of the trial, and the architecture, whose operations
    are counted, stays the same. `rate` is the share, from 0 to 1.
    """
    weighted = [module for module in network.layers if any(True for _ in module.parameters(recurse=False))]
    if rate and weighted:
        weighted[-1].register_forward_pre_hook(
            lambda module, inputs: (dropout(inputs[0], rate, module.training),)
        )
