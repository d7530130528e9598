"""Marks put names around a step and change nothing of it; its backward pass is given to the right nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aiperf.profiling.steps import marked_nodes, run_rounds
from aiperf.wire.profile_records import STEP
from analysis.readings.profile_spans import spans
from nas.head import NextSymbol
from nas.modules import Network
from nas.weights import initial
from tests.aiperf.profiling.trials import BATCH, NETWORKS, steps_of


@pytest.mark.contract
@pytest.mark.parametrize("name", NETWORKS)
def test_a_marked_step_learns_what_a_plain_one_learns(name: str) -> None:
    learnt = []
    for marked in (False, True):
        steps = steps_of(NETWORKS[name])
        for _ in range(3):
            steps.marked_step() if marked else steps.plain_step()
        learnt.append({key: value.clone() for key, value in steps.attempt.network.tensors().items()})
    plain, other = learnt
    assert plain.keys() == other.keys()
    assert [key for key in plain if not torch.equal(plain[key], other[key])] == []
    first = initial(NETWORKS[name], 1)
    assert any(not torch.equal(plain[key], torch.from_numpy(first[key])) for key in plain)


def reached(output: Tensor, stops: Iterable[Any]) -> set[int]:
    """The numbers of all operations from an output back to its inputs, by torch's own graph."""
    found, waiting, seen = set[int](), [output.grad_fn], set(stops)
    while waiting:
        function = waiting.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        if "AccumulateGrad" not in function.name():
            found.add(function._sequence_nr())
        waiting += [each for each, _ in function.next_functions]
    return found


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("format", ["fp32", "bf16"])
def test_every_operation_of_the_backward_pass_has_the_number_of_its_node(name: str, format: str) -> None:
    """Against a walk through torch's graph, from each module's output to what it read."""
    graph = NETWORKS[name]
    network = Network(graph)
    network.load(initial(graph, 1))
    walked: list[set[int]] = []
    before: list[Any] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        before[:] = [value.grad_fn for value in inputs]  # an operation in place replaces them

    def walk(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        walked.append(reached(output, before))

    for module in network.layers:
        module.register_forward_pre_hook(note)
        module.register_forward_hook(walk)
    symbols = torch.zeros(BATCH, *graph.input, dtype=torch.int64)
    examples = symbols if isinstance(graph.head, NextSymbol) else torch.randn(BATCH, *graph.input)
    numbers: list[int] = []
    with torch.autocast("cpu", torch.bfloat16, enabled=format == "bf16"), marked_nodes(network, numbers):
        network(examples)
    by_node: list[set[int]] = [set() for _ in graph.nodes]
    for each in set[int]().union(*walked):
        by_node[bisect_right(numbers, each) - 1].add(each)
    assert by_node == walked
    assert sum(map(len, walked)) >= len(graph.weights) / 2  # there is something to compare


@pytest.mark.parametrize("name", NETWORKS)
def test_a_profiled_step_names_every_node_in_both_passes(name: str) -> None:
    graph = NETWORKS[name]
    rounds = run_rounds(steps_of(graph), 1)
    names = [node.name for node in graph.nodes]
    found = spans(rounds.steps[0], names)
    passes = {(span.phase, span.node) for span in found}
    trained = [node.name for node in graph.nodes if node.name in graph.trained]
    assert {("forward", node) for node in names} <= passes
    assert {("backward", node) for node in [*trained, "loss", "sums of gradients"]} <= passes
    events = rounds.steps[0]
    whole = events.name.index(events.names.index(STEP))
    length = events.end[whole] - events.begin[whole]
    assert sum(span.nanoseconds for span in found) == pytest.approx(length)
    assert 1e-9 * length < rounds.profiled_seconds[0]
