"""Named ranges around the parts of a training step, for a profiler: phases, and the forward pass of each
node.

The step is that of the eager engine. Only names are put around its parts, so a plain step and a marked one
compute the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.profiler import profile, record_function

from aiperf.engines.engine import Engine, Passes
from aiperf.engines.objective import objective_of
from aiperf.training.built_trial import BuiltTrial, Rank
from aiperf.wire.profile_records import BACKWARD, FORWARD, LOAD, LOSS, NODE, OPTIMIZER, PHASE, STEP
from nas.modules import Network

Mark = Callable[[str], AbstractContextManager[Any]]


def unmarked(name: str) -> AbstractContextManager[Any]:
    return nullcontext()


class Marked(Engine):
    """The eager step in its phases."""

    def __init__(self, passes: Passes) -> None:
        super().__init__(passes)
        self.layers: list[int] = []
        """Sequence numbers of the last step, as `aiperf.wire.profile_records.Events.layers`."""

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        passes = self.passes
        self.layers.clear()
        with passes.device.autocast(passes.format):
            with record_function(PHASE + FORWARD), marked_nodes(passes.network, self.layers):
                outputs = self.module(images)
                self.layers.append(_next_number())
            with record_function(PHASE + LOSS):
                objective = objective_of(passes.network.graph, passes.label_smoothing)
                loss = objective.loss(outputs, labels)
                del outputs  # for text they are large, and the plain step does not hold them longer either
        with record_function(PHASE + BACKWARD):
            passes.network.zero_grad(set_to_none=True)
            passes.scaler.scale(loss).backward()
        return loss.detach()


class TrialSteps:
    """The steps of a trial, as training makes them, plain or marked."""

    def __init__(self, rank: Rank, attempt: BuiltTrial) -> None:
        self.rank, self.attempt = rank, attempt
        self.eager = attempt.engine
        self.eager.module, attempt.optimizer = rank.parallel.wrap(self.eager.bare, attempt.optimizer)
        self.marked = Marked(self.eager.passes)
        self.marked.module = self.eager.module
        self._made = 0

    def plain_step(self) -> None:
        self._step(self.eager, unmarked)

    def marked_step(self) -> None:
        with record_function(STEP):
            self._step(self.marked, record_function)

    def _step(self, engine: Engine, mark: Mark) -> None:
        attempt, rank = self.attempt, self.rank
        with mark(PHASE + LOAD):
            images, labels = attempt.batches.next
        for group in attempt.optimizer.param_groups:
            group["lr"] = attempt.plan.rate(min(self._made, attempt.plan.steps - 1))
        engine.step(images, labels)
        with mark(PHASE + LOAD):
            attempt.batches.load()
        with mark(PHASE + OPTIMIZER):
            rank.parallel.step(attempt.optimizer, attempt.scaler, rank.training.gradient_clip)
            attempt.scaler.update()
        self._made += 1


@contextmanager
def marked_nodes(network: Network, numbers: list[int]) -> Iterator[None]:
    """A context in which each node's module runs in a range with the node's name. Before each node, the next
    sequence number of torch is appended to `numbers`."""
    plain = network.plan
    names = [node.name for node in network.graph.nodes]
    network.plan = tuple(
        (_in_range(module, name, numbers), reads, place, dead)
        for name, (module, reads, place, dead) in zip(names, plain)
    )
    try:
        yield
    finally:
        network.plan = plain


def _in_range(module: Callable[..., Any], name: str, numbers: list[int]) -> Callable[..., Any]:
    def run(*values: Tensor) -> Any:
        numbers.append(_next_number())
        with record_function(NODE + name):
            return module(*values)

    return run


def _next_number() -> int:
    """Sequence number that torch will give to the next operation with a backward pass. Autograd orders the
    backward pass by these numbers, and the profiler shows them, which links both passes."""
    return int(torch._C._autograd._get_sequence_nr())


def raw_events(profiler: profile) -> Sequence[Any]:
    """The recorded events as the profiler's C++ part returns them, which have the threads and the sequence
    numbers of operations."""
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    found: Sequence[Any] = profiler.profiler.kineto_results.events()
    return found
