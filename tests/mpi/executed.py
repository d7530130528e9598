"""What a run executed, summed without the counter of this project.

Steps and examples come from the ranks' own logs; operations of an example from torch's FlopCounterMode, which
watches the rebuilt network train and evaluate one batch. Of attention it counts T² pairs; those that are not
masked are (T + 1) / 2T of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from aiperf.journal.replay import Replay
from aiperf.score.lineage import rebuild
from nas.graph import Graph
from nas.modules import Network

BATCH = 2


def tensor_operations(replay: Replay, directory: Path) -> int:
    """Tensor operations of all credited segments: trained examples forward and backward, validated ones
    forward."""
    trained, validated = Counter[int](), Counter[int]()
    credited = set(_credited(replay))
    for path in directory.glob("logs/*.steps.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if (record["trial"], record["attempt"], record["segment"]) in credited:
                trained[record["trial"]] += record.get("examples", 0)
                validated[record["trial"]] += record.get("of", 0)
    total = 0
    for trial in trained:
        training, evaluation = example_operations(rebuild(replay, trial))
        total += training * trained[trial] + evaluation * validated[trial]
    return total


def example_operations(graph: Graph) -> tuple[int, int]:
    """Tensor operations of one image, or of one window: trained, evaluated."""
    of_text = len(graph.input) == 1
    with torch.device("meta"):
        network = Network(graph)
        examples = torch.zeros(BATCH, *graph.input, dtype=torch.int64 if of_text else torch.float32)
        right = torch.zeros(examples.shape if of_text else BATCH, dtype=torch.int64)
    with sdpa_kernel([SDPBackend.MATH]), _counter() as training:
        answers = network(examples)
        cross_entropy(answers.transpose(1, 2) if of_text else answers, right).backward()
    network.eval()
    with sdpa_kernel([SDPBackend.MATH]), _counter() as evaluation, torch.inference_mode():
        network(examples)
    return _of_one(training, graph), _of_one(evaluation, graph)


def _of_one(counter: FlopCounterMode, graph: Graph) -> int:
    found = counter.get_flop_counts()["Global"]
    pairs = found.pop(torch.ops.aten.bmm, 0)
    unmasked = Fraction(pairs * (graph.input[0] + 1), 2 * graph.input[0])
    operations = (sum(found.values()) + unmasked) / BATCH
    assert operations.denominator == 1
    return operations.numerator


def _credited(replay: Replay) -> Iterator[tuple[int, int, int]]:
    """Every segment that was validated before the deadline, the first time."""
    seen = set()
    for attempt in replay.attempts:
        for validation in attempt.validations:
            segment = validation.segment
            deadline = attempt.leg.deadline
            in_time = deadline is None or validation.end <= deadline
            if in_time and (segment.trial, segment.index) not in seen:
                seen.add((segment.trial, segment.index))
                yield segment.trial, segment.attempt, segment.index


def _counter() -> FlopCounterMode:
    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: _backward})


def _backward(
    gradient: tuple[int, ...],
    examples: tuple[int, ...],
    weight: tuple[int, ...],
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    output_padding: Any,
    groups: int,
    mask: tuple[bool, bool, bool],
    out_shape: Any = None,
) -> int:
    """torch 2.13.0 counts the weights' gradient of a grouped convolution `groups` times. Both gradients
    have as many multiply-accumulates as the convolution: outputs times inputs of one output."""
    outputs = gradient[0] * gradient[1] * gradient[2] * gradient[3]
    inputs = weight[1] * weight[2] * weight[3]
    return 2 * outputs * inputs * (int(mask[0]) + int(mask[1]))
