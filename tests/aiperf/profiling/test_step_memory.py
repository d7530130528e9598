"""Steps that are profiled in the tests' own process, on generated examples: their memory, measured and
predicted; and marks, which put names around a step and change nothing of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import profile

from aiperf.conduct.actions import Keep
from aiperf.data import load
from aiperf.device import bind
from aiperf.errors import WorldError
from aiperf.parallel.parallel import Solo
from aiperf.profiling.rank_process import refuse_too_large
from aiperf.profiling.steps import (
    ALLOCATION,
    TrialSteps,
    marked_nodes,
    measure_memory,
    predict_memory,
    raw_events,
    run_rounds,
)
from aiperf.profiling.work import ProfileWork, of_seed
from aiperf.proposing.memory_model import step_parts, training_bytes
from aiperf.tasks.registry import task_of_graph
from aiperf.training.built_trial import Rank, build
from aiperf.training.kept_network import Kept
from aiperf.training.train import TrainedTrial
from aiperf.wire.profile_records import STEP, PredictedMemory
from aiperf.wire.trial import Trial
from analysis.readings.profile_spans import spans
from nas.graph import Graph, Node
from nas.head import NextSymbol
from nas.layers import Attention, Conv2d, Dense, Embedding, Experts, GlobalPool, Layer, Linear, ReLU
from nas.memory import forward_memory
from nas.modules import Network
from nas.morphisms.sites import replaced
from nas.record import graph_from_json
from nas.seeds import residual
from nas.text_seeds import gpt_4x128, llama_2x64
from nas.weights import initial
from tests.nas.grown import modern

IMAGES = residual((1, 16, 16))
TEXT = llama_2x64((16,))
NETWORKS = {"images": IMAGES, "text": TEXT}
BATCH = 4


def work_of(graph: Graph, format: str = "fp32", ranks: int = 1, examples: int = BATCH) -> ProfileWork:
    """`examples`: of each rank."""
    work = of_seed(task_of_graph(graph), graph, examples * ranks)
    return replace(work, training=replace(work.training, format=format), device="cpu", ranks=ranks, rounds=2)


def steps_of(graph: Graph, format: str = "fp32", examples: int = BATCH) -> TrialSteps:
    work = work_of(graph, format, examples=examples)
    device = bind("cpu", 0)
    torch.manual_seed(1)
    data = load(work.data, device.torch, work.random_seed)
    rank = Rank(device, data, work.training, Solo())
    own = graph_from_json(dict(work.graph))
    trial = Trial(0, None, (), work.hyper, round=1, epochs=1, seed=1)
    return TrialSteps(rank, build(rank, trial, 1, Kept(own, initial(own, 1), {})))


FP32 = 4
EXAMPLES = 16
"""So many that a step is not at its fullest inside a convolution, where oneDNN takes memory for one image and
thread that no model knows: with AMX, 13 % of a step of MODELLED's images on four of them."""


def lays_out_columns(graph: Graph, format: str) -> bool:
    """Whether convolutions are computed without oneDNN: with columns, which no model knows, and no weights
    laid out anew."""
    convolves = any(isinstance(node.layer, Conv2d) for node in graph.nodes)
    return convolves and format == "bf16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()


def test_a_network_whose_memory_is_known_by_hand() -> None:
    """Its backward pass needs what the second convolution reads, which is also what the ReLU needs, and what
    the classifier reads; the examples are there anyway."""
    graph = Graph(
        (1, 16, 16),
        (
            Node("first", Conv2d(8), ("input",)),
            Node("relu", ReLU(), ("first",)),
            Node("second", Conv2d(64, 7), ("relu",)),
            Node("pool", GlobalPool(), ("second",)),
            Node("classifier", Dense(3), ("pool",)),
        ),
    )
    found = measure_memory(steps_of(graph))
    weights = FP32 * graph.num_parameters
    assert (found.weights, found.gradients, found.optimizer_state) == (weights, weights, weights)
    assert (found.statistics, found.examples) == (0, BATCH * (FP32 * 256 + 8))
    kept = FP32 * BATCH * 8 * 256
    assert kept <= found.activations <= 1.1 * kept  # and some hundred numbers of the head
    assert found.gradients > 0.5 * kept  # which were there before: they must not be counted
    known = found.weights + found.gradients + found.optimizer_state + found.examples + found.activations
    output = FP32 * BATCH * 64 * 256  # of the second convolution; in its backward pass three such are there
    assert known + output <= found.peak <= known + 3.5 * output


def predicted_of(graph: Graph, format: str = "fp32") -> PredictedMemory | None:
    work = work_of(graph, format)
    return predict_memory(graph, work.training, work.hyper, bind("cpu", 0), EXAMPLES)


@pytest.mark.parametrize(("name", "format"), [("images", "bf16"), ("text", "fp32")])
def test_the_prediction_without_a_device_is_near(name: str, format: str) -> None:
    graph = NETWORKS[name]
    predicted = predicted_of(graph, format)
    measured = measure_memory(steps_of(graph, format, EXAMPLES))
    assert predicted is not None
    assert (predicted.weights, predicted.statistics) == (measured.weights, measured.statistics)
    assert predicted.optimizer_state == measured.optimizer_state
    if lays_out_columns(graph, format):
        assert predicted.peak < measured.peak
    else:
        assert predicted.peak == pytest.approx(measured.peak, rel=0.25)


def windowed(graph: Graph) -> Graph:
    """With a window and a norm in each attention, and its embedding and its output tied."""
    attentions = [node for node in graph.nodes if isinstance(node.layer, Attention)]
    layers = {node.name: replace(node.layer, window=16, head_norm=True) for node in attentions}
    return replaced(graph, {**layers, "symbols": Linear(graph.classes, tied=True)})


MODELLED = {
    "images": residual((3, 32, 32), widths=(8, 16)),
    "modern images": modern(32),
    "weights": residual((3, 8, 8), widths=(64, 256)),
    "text": llama_2x64((64,)),
    "other text": gpt_4x128((32,)),
    "windowed text": windowed(llama_2x64((64,))),
}

MORE = {"modern images": 4 * EXAMPLES}
"""With fewer a step of it is at its fullest inside a convolution."""


@pytest.mark.parametrize("format", ["fp32", "bf16"])
@pytest.mark.parametrize("name", MODELLED)
def test_the_model_of_the_dry_run_is_what_is_measured(name: str, format: str) -> None:
    graph, examples = MODELLED[name], MORE.get(name, EXAMPLES)
    measured = measure_memory(steps_of(graph, format, examples))
    modelled = step_parts(graph, work_of(graph, format).training, examples, 1, "cpu")
    for kind in ("weights", "statistics", "gradients", "examples"):
        assert modelled[kind] == getattr(measured, kind), kind
    steps = FP32 * len(graph.weights)  # AdamW counts the steps of each tensor
    assert measured.optimizer_state - modelled["optimizer_state"] in (0, steps)
    assert modelled["activations"] == pytest.approx(measured.activations, rel=0.02)
    if lays_out_columns(graph, format):
        assert sum(modelled.values()) - modelled["temporary"] - modelled["onednn"] < measured.peak
    else:
        assert sum(modelled.values()) == pytest.approx(measured.peak, rel=0.02)


@pytest.mark.parametrize("name", ["images", "text", "other text"])
def test_a_validation_takes_what_the_model_says(name: str) -> None:
    attempt = steps_of(MODELLED[name], examples=4 * EXAMPLES).attempt
    with torch.inference_mode(), profile(profile_memory=True) as profiler:
        attempt.network.eval()(attempt.batches.next[0])
    changes = sorted((e.start_ns(), e.nbytes()) for e in raw_events(profiler) if e.name() == ALLOCATION)
    modelled = forward_memory(MODELLED[name], FP32, 4 * EXAMPLES)
    assert modelled == pytest.approx(max(accumulate(amount for _, amount in changes)), rel=0.02)


def test_only_what_is_known_not_to_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = residual()
    with pytest.raises(WorldError, match=r"use a smaller --batch$"):
        refuse_too_large(seed, work_of(seed), device_bytes=1)
    monkeypatch.setattr(ReLU, "footprint", Layer.footprint)
    refuse_too_large(seed, work_of(seed), device_bytes=1)


def test_experts_are_not_predicted() -> None:
    nodes = (
        Node("embedding", Embedding(256, 8), ("input",)),
        Node("experts", Experts(4, 2, 16), ("embedding",)),
        Node("symbols", Linear(256), ("experts",)),
    )
    graph = Graph((16,), nodes, head=NextSymbol())
    assert predicted_of(graph) is None
    assert measure_memory(steps_of(graph)).peak > 0


def test_a_rank_holds_the_best_network_as_the_model_says() -> None:
    steps = steps_of(IMAGES)
    steps.plain_step()
    trial = TrainedTrial(steps.rank, steps.attempt, lambda event: None)
    trial.do(Keep(0))
    kept = trial.kept()
    assert kept is not None
    held = [array for arrays in (kept.weights, *kept.state.values()) for array in arrays.values()]
    work = work_of(IMAGES)
    more = training_bytes(IMAGES, work.training, 4, 1) - sum(step_parts(IMAGES, work.training, 4, 1).values())
    assert more == sum(array.nbytes for array in held)


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
