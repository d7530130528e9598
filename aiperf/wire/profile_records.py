"""Training steps of a rank as a profiler recorded them: plain records that can be read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nas.frozen import frozen

STEP = "step"
PHASE, NODE = "phase: ", "node: "
"""Prefixes of the names of ranges: a phase of the step, and the forward pass of one node of the graph."""
LOAD, FORWARD, LOSS, BACKWARD, OPTIMIZER = "load", "forward", "loss", "backward", "optimizer"
PHASES = (LOAD, FORWARD, LOSS, BACKWARD, OPTIMIZER)
COLLECTIVES = ("gloo:", "nccl:", "xccl:", "hccl:")
"""Prefixes of torch's names of collective operations, which run in a thread of their own next to the step."""


@frozen
class Events:
    """One profiled step in columns, with one entry per event: the ranges and operations of the step's thread,
    and the collectives that ran next to it. Times are nanoseconds since the beginning of the step."""

    names: tuple[str, ...]
    """The distinct names of events."""
    name: tuple[int, ...]
    """Name of each event, as an index into `names`."""
    begin: tuple[int, ...]
    end: tuple[int, ...]
    sequence: tuple[int, ...]
    """Sequence number that torch gives to a forward operation and to its backward pass, which links the two;
    -1 without one."""
    layers: tuple[int, ...]
    """The next free sequence number of torch before each node of the graph computes, and after the last node.
    An operation belongs to the node within whose numbers its own lies."""


@frozen
class MeasuredMemory:
    """Memory of one rank in a training step in bytes, as torch allocated it."""

    weights: int
    statistics: int
    gradients: int
    optimizer_state: int
    examples: int
    """The batch and its targets."""
    activations: int
    """Tensors that the forward pass and the loss keep for the backward pass."""
    peak: int
    """Highest use at any moment, all of the above included."""


@frozen
class PredictedMemory:
    """Predicted memory of the same step at its peak in bytes, without a device: torch's MemTracker applied to
    fake tensors, which have a shape but no memory."""

    weights: int
    statistics: int
    gradients: int
    optimizer_state: int
    examples: int
    activations: int
    """Activations and temporary tensors together."""
    peak: int


@frozen
class Ceilings:
    """Ceilings of one rank's share of the machine, measured by all ranks at the same time."""

    ops_per_second: float
    bytes_per_second: float


@frozen
class Recorded:
    """The record of the first rank of a group, for examples of one size."""

    graph: Mapping[str, Any]
    ranks: int
    examples: int
    """Training examples of this rank per step."""
    format: str
    device: str
    threads: int
    memory_bytes: int
    """Memory of the device in bytes."""
    software: Mapping[str, str]
    plain_seconds: tuple[float, ...]
    """Times in seconds of steps without the profiler. Plain and profiled steps alternate, so that both see
    the same disturbances and their difference is the profiler's cost."""
    profiled_seconds: tuple[float, ...]
    """Times in seconds of steps under the profiler, by the same stopwatch."""
    chosen: int
    """Index of the profiled step of median length, which is the one shown."""
    steps: tuple[Events, ...]
    """The profiled steps."""
    validated: int
    """Number of examples of the validation that was timed, without the profiler."""
    validate_seconds: float
    memory: MeasuredMemory
    modelled: Mapping[str, int]
    """Memory in bytes by what it holds, as the model of `run --dry-run` computes it; empty where a layer does
    not state its memory."""
    predicted: PredictedMemory | None = None
    """None if torch cannot predict the step without a device."""
    ceilings: Ceilings | None = None
    """None if they were not measured."""
    trace: str = ""
    """Name of the file with the trace of the chosen step; empty if no trace was requested."""
