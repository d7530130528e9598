"""The memory of a training step: as torch allocates it, and as torch predicts it without a device."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.profiler import ProfilerActivity, profile, record_function

from aiperf.config import TrainingConfig
from aiperf.device import Device
from aiperf.engines.engine import Engine, Passes
from aiperf.profiling.steps import TrialSteps, raw_events
from aiperf.training.optimizers import make_optimizer
from aiperf.trial import HyperParameters
from aiperf.wire.profile_records import FORWARD, LOSS, PHASE, MeasuredMemory, PredictedMemory
from nas.graph import Graph
from nas.layers import Experts
from nas.modules import Network

ALLOCATION = "[memory]"
"""Name of the profiler's events for changes of allocated memory."""
SECOND = "second step"
STEPS = 2
"""Number of predicted steps: only from the second step on, gradients and optimizer state exist from the
start."""


def measure_memory(steps: TrialSteps) -> MeasuredMemory:
    """Memory of the second of two steps. Tensors that exist between steps are summed up one by one; temporary
    memory is derived from the profiler's record of allocations. Memory that libraries allocate without torch
    is not included."""
    attempt = steps.attempt
    tensors = attempt.network.tensors().values()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        steps.marked_step()
        gradients = sum(tensor.grad.nbytes for tensor in tensors if tensor.grad is not None)
        examples = sum(tensor.nbytes for tensor in attempt.batches.next)
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
    mixture of experts, where the number of rows of an expert depends on the examples."""
    if any(isinstance(node.layer, Experts) for node in graph.nodes):
        return None
    with torch.device("meta"):
        network = Network(graph)
    with FakeTensorMode():
        _fake(network)
        optimizer = make_optimizer(training.optimizer, network, hyper, device, training.format)
        scaler = torch.amp.GradScaler(device.kind, enabled=False)
        engine = Engine(Passes(network, device, training.format, scaler, hyper.label_smoothing))
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
    read = torch.zeros(examples, *graph.input, dtype=getattr(torch, graph.head.input_type))
    targets = torch.zeros(examples, *graph.head.targets(graph.input), dtype=torch.int64)
    return (read.to(memory_format=torch.channels_last) if read.dim() == 4 else read), targets
