"""Training steps of a rank as a profiler recorded them, for those who read them without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STEP = "step"
PHASE, NODE = "phase: ", "node: "
"""What the names of ranges begin with: of a part of the step, of one layer's forward pass."""
LOAD, FORWARD, LOSS, BACKWARD, OPTIMIZER = "load", "forward", "loss", "backward", "optimizer"
PHASES = (LOAD, FORWARD, LOSS, BACKWARD, OPTIMIZER)
COLLECTIVES = ("gloo:", "nccl:", "xccl:", "hccl:")
"""What torch calls work that several ranks do together, in a thread beside the step."""


@dataclass(frozen=True)
class Events:
    """One profiled step by columns: every range and every operation that its thread did, and the collectives
    that ran beside it. Nanoseconds from the step's own beginning."""

    names: tuple[str, ...]
    """The different ones."""
    name: tuple[int, ...]
    """Of each event: its place in `names`."""
    begin: tuple[int, ...]
    end: tuple[int, ...]
    sequence: tuple[int, ...]
    """Torch's number of the operation that a backward pass belongs to; -1 where there is none."""
    layers: tuple[int, ...]
    """The number that torch gives next before each node of the graph computes, and after the last."""


@dataclass(frozen=True)
class MeasuredMemory:
    """Bytes of one rank in a training step, as torch allocated them."""

    weights: int
    statistics: int
    gradients: int
    optimizer_state: int
    examples: int
    """Of the batch and its targets."""
    activations: int
    """Kept from the forward pass and the loss for the backward pass."""
    peak: int
    """The most at any moment, all of the above included."""


@dataclass(frozen=True)
class PredictedMemory:
    """Of the same step at its peak, without a device: torch's MemTracker on tensors that have no memory."""

    weights: int
    statistics: int
    gradients: int
    optimizer_state: int
    examples: int
    activations: int
    """Temporary tensors among them."""
    peak: int


@dataclass(frozen=True)
class Ceilings:
    """Of this rank's share of the machine, measured by all ranks at once."""

    ops_per_second: float
    bytes_per_second: float


@dataclass(frozen=True)
class Recorded:
    """What the first rank of a group recorded for examples of one size."""

    graph: Mapping[str, Any]
    ranks: int
    examples: int
    """Of this rank, in a step."""
    format: str
    device: str
    threads: int
    memory_bytes: int
    """Of the device."""
    software: Mapping[str, str]
    plain_seconds: tuple[float, ...]
    """Of steps as training makes them, each timed before one under the profiler."""
    profiled_seconds: tuple[float, ...]
    """By the same stopwatch."""
    chosen: int
    """Of the profiled steps that of median length."""
    steps: tuple[Events, ...]
    """The profiled steps."""
    validated: int
    """Examples of the validation that was timed, without the profiler."""
    validate_seconds: float
    memory: MeasuredMemory
    modelled: Mapping[str, int]
    """Bytes by what they hold, by the model of `run --dry-run`; empty where a layer does not state its
    memory."""
    predicted: PredictedMemory | None = None
    """None where torch cannot tell without a device."""
    ceilings: Ceilings | None = None
    """None where they were not measured."""
    trace: str = ""
    """The file with the trace of the chosen step; empty where none was asked for."""
