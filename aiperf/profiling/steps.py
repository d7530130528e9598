"""The steps of a trial: their times, plain and profiled in turn, so that both run under the same load of the
machine, and their memory, as torch allocates it and as torch predicts it without a device.

A profiled step is that of the eager engine with named ranges around its phases and around the forward pass of
each node. Only names are added, so a plain step and a marked one compute the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import accumulate, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile, record_function

from aiperf.config import TrainingConfig
from aiperf.data import Batch, Split
from aiperf.device import Device
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.objective import objective_of
from aiperf.training.built_trial import BuiltTrial, Rank
from aiperf.training.optimizers import make_optimizer
from aiperf.wire.profile_records import (
    BACKWARD,
    COLLECTIVES,
    FORWARD,
    LOAD,
    LOSS,
    NODE,
    OPTIMIZER,
    PHASE,
    STEP,
    Events,
    MeasuredMemory,
    PredictedMemory,
)
from aiperf.wire.trial import HyperParameters
from nas.frozen import frozen
from nas.graph import Graph
from nas.layers import Experts
from nas.modules import Network

ALLOCATION = "[memory]"
"""Name of the profiler's events for changes of allocated memory."""
SECOND = "second step"
"""Name of the range around the step whose memory is reported."""
STEPS = 2
"""Number of predicted steps: only from the second step on, gradients and optimizer state exist from the
start."""

Mark = Callable[[str], AbstractContextManager[Any]]
"""Puts a named range around what runs in its context."""


def unmarked(name: str) -> AbstractContextManager[Any]:
    """A mark that does nothing."""
    return nullcontext()


class MarkedEngine(Engine):
    """The eager step in its phases."""

    def __init__(self, passes: Passes) -> None:
        """The module is set by `TrialSteps`, wrapped in a group."""
        super().__init__(passes)
        self.layers: list[int] = []
        """Sequence numbers of the last step, as `aiperf.wire.profile_records.Events.layers`."""

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        """Computes loss and gradients as the eager engine does, in the same order, with a range around each
        phase."""
        passes = self.passes
        self.layers.clear()
        with passes.device.autocast(passes.format):
            with record_function(PHASE + FORWARD), marked_nodes(passes.network, self.layers):
                outputs = self.module(images)
                self.layers.append(_next_number())
            with record_function(PHASE + LOSS):
                loss = passes.objective.loss(outputs, labels)
                del outputs  # for text they are large, and the plain step does not hold them longer either
        with record_function(PHASE + BACKWARD):
            passes.network.zero_grad(set_to_none=True)
            passes.scaler.scale(loss).backward()
        return loss.detach()


class TrialSteps:
    """The steps of a trial, as training makes them, plain or marked."""

    def __init__(self, rank: Rank, attempt: BuiltTrial) -> None:
        """The network is wrapped at once; in a trial that happens after the first step."""
        self.rank, self.attempt = rank, attempt
        self.eager = attempt.engine
        self.eager.module, attempt.optimizer = rank.parallel.wrap(self.eager.bare, attempt.optimizer)
        self.marked = MarkedEngine(self.eager.passes)
        self.marked.module = self.eager.module
        self._made = 0

    def plain_step(self) -> None:
        """Makes a step as training does."""
        self._step(self.eager, unmarked)

    def marked_step(self) -> None:
        """Makes a step with named ranges."""
        with record_function(STEP):
            self._step(self.marked, record_function)

    def _step(self, engine: Engine, mark: Mark) -> None:
        """Makes a step; after the last one of the plan, with its last learning rate."""
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
    """The module with a range of this name around it; the sequence number is noted before the range
    begins."""

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


@frozen
class Rounds:
    """Times and events of the steps; see `aiperf.wire.profile_records.Recorded`."""

    plain_seconds: tuple[float, ...]
    profiled_seconds: tuple[float, ...]
    chosen: int
    """Index of the profiled step of median length."""
    steps: tuple[Events, ...]
    _profiler: profile
    """Profiler of the chosen step."""

    def write_trace(self, path: Path) -> None:
        """Writes the trace of the chosen step as JSON for Perfetto or chrome://tracing."""
        self._profiler.export_chrome_trace(str(path))


def run_rounds(steps: TrialSteps, rounds: int) -> Rounds:
    """Makes `rounds` plain and profiled steps in turn. One more of each comes first and is not counted,
    because torch loads and compiles what it needs in it."""
    timed = [(_timed(steps, steps.plain_step, nullcontext()), *_profiled(steps)) for _ in range(1 + rounds)][
        1:
    ]
    plain, profiled, profilers, layers = zip(*timed)
    # The lower of the two in the middle if their number is even: a step that was made, not a mean of two.
    chosen = sorted(range(rounds), key=profiled.__getitem__)[(rounds - 1) // 2]
    events = tuple(_events(*each) for each in zip(profilers, layers))
    return Rounds(plain, profiled, chosen, events, profilers[chosen])


def _profiled(steps: TrialSteps) -> tuple[float, profile, tuple[int, ...]]:
    """Time of one marked step in seconds, its profiler, and the sequence numbers of its nodes."""
    profiler = profile(activities=[ProfilerActivity.CPU])
    seconds = _timed(steps, steps.marked_step, profiler)
    return seconds, profiler, tuple(steps.marked.layers)


def _timed(steps: TrialSteps, step: Callable[[], None], around: AbstractContextManager[object]) -> float:
    """Time of one step in seconds. All ranks of the group begin it together."""
    device = steps.rank.device
    with around:
        steps.rank.parallel.total(0)
        device.synchronise()
        began = perf_counter()
        step()
        device.synchronise()
        return perf_counter() - began


def _events(profiler: profile, layers: tuple[int, ...]) -> Events:
    """The events of a marked step: those of its own thread, and the collectives, which run in another one.
    Times are nanoseconds from the beginning of the step."""
    found = raw_events(profiler)
    (step,) = (event for event in found if event.name() == STEP)
    begin, length, thread = step.start_ns(), step.duration_ns(), step.start_thread_id()
    kept = [
        event
        for event in found
        if 0 <= event.start_ns() - begin < length
        and (event.start_thread_id() == thread or event.name().startswith(COLLECTIVES))
    ]
    names = {name: place for place, name in enumerate(dict.fromkeys(event.name() for event in kept))}
    return Events(
        names=tuple(names),
        name=tuple(names[event.name()] for event in kept),
        begin=tuple(event.start_ns() - begin for event in kept),
        end=tuple(event.start_ns() + event.duration_ns() - begin for event in kept),
        sequence=tuple(event.sequence_nr() for event in kept),
        layers=layers,
    )


def measure_memory(steps: TrialSteps) -> MeasuredMemory:
    """Memory of the second of two steps. Tensors that exist between steps are summed up one by one; temporary
    memory is derived from the profiler's record of allocations. Memory that libraries allocate without torch
    is not included. The result is in bytes."""
    attempt = steps.attempt
    tensors = attempt.network.tensors().values()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        steps.marked_step()
        gradients = sum(tensor.grad.nbytes for tensor in tensors if tensor.grad is not None)
        examples = sum(tensor.nbytes for tensor in attempt.batches.next)
        # In the first step gradients and optimizer state are made; only the second one has them from its
        # start.
        with record_function(SECOND):
            steps.marked_step()
    events = raw_events(profiler)
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == ALLOCATION)
    begins = {
        name: max(event.start_ns() for event in events if event.name() == name)
        for name in (PHASE + FORWARD, SECOND)
    }
    loss_ends = max(
        event.start_ns() + event.duration_ns() for event in events if event.name() == PHASE + LOSS
    )
    levels = list(zip((moment for moment, _ in changes), accumulate(amount for _, amount in changes)))

    def level(moment: int) -> int:
        return next((amount for at, amount in reversed(levels) if at <= moment), 0)

    start = level(begins[PHASE + FORWARD])
    state = [value for each in attempt.optimizer.state.values() for value in each.values()]
    known = {
        "weights": sum(tensor.nbytes for tensor in tensors if tensor.requires_grad),
        "statistics": sum(tensor.nbytes for tensor in tensors if not tensor.requires_grad),
        "gradients": gradients,
        "optimizer_state": sum(value.nbytes for value in state if isinstance(value, Tensor)),
        "examples": examples,
    }
    highest = max((amount for at, amount in levels if at >= begins[SECOND]), default=start)
    return MeasuredMemory(
        **known,
        activations=level(loss_ends) - start,
        peak=sum(known.values()) + max(highest, start) - start,
    )


def predict_memory(
    graph: Graph, training: TrainingConfig, hyper: HyperParameters, device: Device, examples: int
) -> PredictedMemory | None:
    """Memory as torch's MemTracker predicts it on fake tensors, which have a shape but no memory. None for a
    mixture of experts, where the number of rows of an expert depends on the examples. The result is in bytes,
    and no step is really computed."""
    if any(isinstance(node.layer, Experts) for node in graph.nodes):
        return None
    # Here: it imports torch's compiler, which takes as long as torch itself and no other step needs.
    from torch.distributed._tools.mem_tracker import MemTracker

    # On no device first: a network of any size is built without memory, and its tensors are then replaced.
    with torch.device("meta"):
        network = Network(graph)
    with FakeTensorMode():
        _fake(network)
        optimizer = make_optimizer(training.optimizer, network, hyper, device, training.format)
        scaler = torch.amp.GradScaler(device.kind, enabled=False)
        objective = objective_of(graph, hyper.label_smoothing)
        engine = Engine(Passes(network, device, training.format, scaler, objective))
        batch = _batch(graph, examples)
        tracker = MemTracker()
        tracker.track_external(network, optimizer, *batch)
        with tracker:
            for _ in range(STEPS):
                engine.step(*batch)
                optimizer.step()
                tracker.reset_mod_stats()  # without this, the tracker refuses a second step
    (found,) = tracker.get_tracker_snapshot("peak").values()
    kinds = {getattr(kind, "name", kind): amount for kind, amount in found.items()}
    return PredictedMemory(
        weights=kinds["PARAM"],
        statistics=kinds["BUFFER"],
        gradients=kinds["GRAD"],
        optimizer_state=kinds["OPT"],
        examples=kinds["OTH"],
        activations=kinds["ACT"] + kinds["TEMP"],
        peak=kinds["Total"],
    )


def _fake(network: Network) -> None:
    """Replaces the network's tensors by ones that are created inside the current fake mode, which refuses
    others."""
    for module in network.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = nn.Parameter(torch.empty(weight.shape))
        for name, statistic in module._buffers.items():
            if statistic is not None:
                module._buffers[name] = torch.empty(statistic.shape, dtype=statistic.dtype)


def _batch(graph: Graph, examples: int) -> tuple[Tensor, Tensor]:
    """A batch of zeros as training would load it; only its shape and layout matter."""
    read = torch.zeros(examples, *graph.input, dtype=getattr(torch, graph.head.input_type))
    targets = torch.zeros(examples, *graph.head.targets(graph.input), dtype=torch.int64)
    return (read.to(memory_format=torch.channels_last) if read.dim() == 4 else read), targets


class FirstBatch(Split):
    """A split whose sweep is cut to its first batch, so that a validation to be timed is short."""

    def __init__(self, split: Split, batch_size: int) -> None:
        """`batch_size` is the number of examples that are swept at most."""
        self._split = split
        self.num_examples = min(batch_size, split.num_examples)

    def stream(self, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        return self._split.stream(batch_size, seed, rank, ranks)

    def sweep(self, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        return islice(self._split.sweep(batch_size, rank, ranks), 1)
