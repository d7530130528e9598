"""Model of the memory that training takes on a device, term by term. It is used by `run --dry-run`, by
`profile`, and to avoid batches that would not fit."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from aiperf.config import AUTO_STEP, TrainingConfig
from aiperf.proposing.plan import validated_at_once
from nas.graph import Graph
from nas.layers import MissingReading
from nas.matrices import hidden_matrices
from nas.memory import forward_memory, step_memory

ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
FP32_BYTES = ELEMENT_BYTES["fp32"]
PROCESSOR = "cpu"
GRAPHED, CAPTURING = ("graphed", "fused-graphed"), ("cuda",)
"""The engines that capture steps, and the kinds of device that can."""
CHECKED = 5
"""Copies of all gradients that the check of a captured step holds, at most: in 16 bits those of the eager
step, of one in fp32 and of an eager one of as many examples, the last two also averaged over a group."""


def training_bytes(
    graph: Graph, training: TrainingConfig, examples: int, ranks: int, kind: str = ""
) -> int | None:
    """Memory in bytes of a trial on one of `ranks` devices of a kind, with `examples` per step on that
    device: the step itself, and the copy of the best network so far that each rank holds, with its optimizer
    state; a graph, if steps are captured or may be. None: unknown, because a layer does not state its
    memory.

    A captured step takes the place of the eager ones, whose memory is returned before the capture. But only
    its replays may use its memory: what is done between them needs its own. The check of a capture comes
    before there is a best network.
    """
    parts = step_parts(graph, training, examples, ranks, kind)
    if parts is None:
        return None
    captured = training.step in GRAPHED or (training.step == AUTO_STEP and kind in CAPTURING)
    best = FP32_BYTES * (numbers_kept(graph, training) + _num_statistics(graph))
    if not captured:
        return sum(parts.values()) + best
    checked = CHECKED * parts["gradients"] + parts["examples"]
    besides = max(checked, best + _between_replays(graph, training, ranks))
    return sum(parts.values()) + _of_graph(parts) + besides


def graph_bytes(graph: Graph, training: TrainingConfig, examples: int, ranks: int) -> int | None:
    """Memory in bytes that a captured step takes in addition to an eager one: for the batch that its replays
    read, and for the gradients of the last pass before the capture."""
    parts = step_parts(graph, training, examples, ranks)
    return None if parts is None else _of_graph(parts)


def _of_graph(parts: Mapping[str, int]) -> int:
    return parts["gradients"] + parts["examples"]


def _between_replays(graph: Graph, training: TrainingConfig, ranks: int) -> int:
    """Temporary memory in bytes of what a rank does between steps: a validation, or the optimizer's step."""
    examples = -(-validated_at_once(graph, ranks) // ranks)
    answers = forward_memory(graph, ELEMENT_BYTES[training.format], examples)
    return max(answers + examples * graph.head.example_bytes(graph.input), _update_bytes(graph, training))


def step_parts(
    graph: Graph, training: TrainingConfig, examples: int, ranks: int, kind: str = ""
) -> dict[str, int] | None:
    """Memory in bytes of an eager step at its peak, by what it holds; the sum is the peak.

    The part of oneDNN exists on a CPU only. Memory that cuDNN and other libraries allocate is not included.
    None: unknown, because a layer does not state its memory.
    """
    weights = FP32_BYTES * graph.num_parameters
    try:
        step = step_memory(graph, ELEMENT_BYTES[training.format], examples, ranks)
    except MissingReading:
        return None
    highest = max(step.highest, step.gradients + _update_bytes(graph, training))
    by_onednn = {"onednn": max(0, step.highest_by_onednn - highest)} if kind == PROCESSOR else {}
    return {
        "weights": weights,
        "statistics": FP32_BYTES * _num_statistics(graph),
        "gradients": step.gradients,
        "optimizer_state": FP32_BYTES * numbers_kept(graph, training) - weights,
        "examples": examples * graph.head.example_bytes(graph.input),
        "activations": step.kept,
        "temporary": highest - step.gradients - step.kept,
        **by_onednn,
    }


def numbers_kept(graph: Graph, training: TrainingConfig) -> int:
    """Number of values in all weights and the optimizer state. Muon keeps one value, not two, for each weight
    of its matrices."""
    fewer = sum(map(prod, hidden_matrices(graph).values())) if training.optimizer == "muon" else 0
    return training.numbers_a_weight * graph.num_parameters - fewer


def _num_statistics(graph: Graph) -> int:
    return sum(map(prod, graph.statistics.values()))


def _update_bytes(graph: Graph, training: TrainingConfig) -> int:
    """Temporary memory in bytes of the optimizer's step, when the activations are freed already. SGD and
    AdamW work in place. For each matrix in turn, Muon holds the look-ahead gradient in fp32 (for a
    convolution a second time, as a matrix), and in the number format two iterates and two products of the
    matrix with itself."""
    if training.optimizer != "muon":
        return 0
    found, narrow = 0, ELEMENT_BYTES[training.format]
    for shape in hidden_matrices(graph).values():
        numbers, wide = prod(shape), FP32_BYTES * (2 if len(shape) == 4 else 1)
        rows = min(shape[0], numbers // shape[0]) if len(shape) == 4 else min(shape[-2:])
        grams = 2 * narrow * rows * rows * (shape[0] if len(shape) == 3 else 1)
        found = max(found, (wide + 2 * narrow) * numbers + grams)
    return found
