"""A recorded step that was made up by hand: a convolution, a ReLU and a classifier, on two ranks."""

from __future__ import annotations

from aiperf.wire.profile_records import Ceilings, Events, MeasuredMemory, PredictedMemory, Recorded
from nas.graph import Graph, Node
from nas.layers import Add, Conv2d, Dense, GlobalPool
from nas.record import graph_to_json

GRAPH = Graph(
    (1, 4, 4),
    (
        Node("conv", Conv2d(2), ("input",)),
        Node("add", Add(), ("conv", "conv")),
        Node("pool", GlobalPool(), ("add",)),
        Node("classifier", Dense(3), ("pool",)),
    ),
)
E = "autograd::engine::evaluate_function: "
# Name, begin, end, number. It numbers the operations of the nodes from 10, 12, 13, 14, of the loss from 16.
ROWS = (
    ("step", 0, 10_000, -1),
    ("phase: load", 0, 500, -1),
    ("aten::index_select", 100, 400, 10),
    ("phase: forward", 600, 3_000, -1),
    ("node: conv", 700, 1_700, -1),
    ("aten::conv2d", 800, 1_600, 10),
    ("aten::mkldnn_convolution", 900, 1_500, -1),
    ("node: add", 1_700, 2_000, -1),
    ("aten::add_", 1_700, 1_900, 12),
    ("node: pool", 2_000, 2_300, -1),
    ("aten::mean", 2_000, 2_300, 13),
    ("node: classifier", 2_300, 2_900, -1),
    ("aten::addmm", 2_400, 2_800, 14),
    ("phase: loss", 3_000, 3_300, -1),
    ("aten::_log_softmax", 3_000, 3_200, 16),
    ("phase: backward", 3_300, 8_300, -1),
    (f"{E}LogSoftmaxBackward0", 3_400, 3_600, 16),
    ("LogSoftmaxBackward0", 3_450, 3_600, 16),
    (f"{E}AddmmBackward0", 3_600, 4_100, 14),
    ("aten::mm", 3_700, 4_000, -1),
    (f"{E}torch::autograd::AccumulateGrad", 4_100, 4_300, -1),
    (f"{E}AddBackward0", 4_300, 4_500, 12),
    ("aten::add", 4_400, 4_500, -1),
    (f"{E}ConvolutionBackward0", 4_500, 6_500, 10),
    ("aten::convolution_backward", 4_600, 6_400, -1),
    ("c10d::allreduce_", 6_600, 6_700, -1),
    ("gloo:all_reduce", 4_200, 5_200, -1),  # beside the backward pass
    ("gloo:all_reduce", 6_800, 8_200, -1),  # the step waits for it
    ("gloo:all_reduce", 8_000, 8_250, -1),  # two at once
    ("phase: optimizer", 8_400, 9_900, -1),
    ("Optimizer.step#SGD.step", 8_400, 9_900, -1),
    ("aten::_fused_sgd_", 8_500, 9_800, -1),
)


def events(scale: int = 1) -> Events:
    names = tuple(dict.fromkeys(name for name, *_ in ROWS))
    return Events(
        names=names,
        name=tuple(names.index(name) for name, *_ in ROWS),
        begin=tuple(scale * begin for _, begin, _, _ in ROWS),
        end=tuple(scale * end for _, _, end, _ in ROWS),
        sequence=tuple(number for *_, number in ROWS),
        layers=(10, 12, 13, 14, 16),
    )


RECORDED = Recorded(
    graph=graph_to_json(GRAPH),
    ranks=2,
    examples=4,
    format="fp32",
    device="AMD EPYC",
    threads=1,
    memory_bytes=1 << 30,
    software={"torch": "2.13.0"},
    plain_seconds=(10e-6, 8e-6, 8e-6),
    profiled_seconds=(12e-6, 10e-6, 9e-6),
    chosen=1,
    steps=(events(2), events(), events()),
    validated=4,
    validate_seconds=4e-6,
    memory=MeasuredMemory(116, 0, 116, 116, 288, 1_000, 2_000),
    modelled={
        "weights": 116,
        "statistics": 0,
        "gradients": 116,
        "optimizer_state": 116,
        "examples": 288,
        "activations": 1_072,
        "temporary": 200,
        "onednn": 12,
    },
    predicted=PredictedMemory(116, 0, 0, 116, 288, 1_200, 1_720),
    ceilings=Ceilings(1e9, 1e9),
    trace="trace-4.json",
)
