"""A recorded step that was made up by hand: a convolution, a ReLU and a classifier, on two ranks."""

from __future__ import annotations

from pathlib import Path

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
# Begin, end, number, name. It numbers the operations of the nodes from 10, 12, 13, 14, of the loss from 16.
LINES = Path(__file__).with_suffix(".txt").read_text().splitlines()
ROWS = [line.partition("  # ")[0].split(maxsplit=3) for line in LINES]


def events(scale: int = 1) -> Events:
    names = tuple(dict.fromkeys(name for *_, name in ROWS))
    return Events(
        names=names,
        name=tuple(names.index(name) for *_, name in ROWS),
        begin=tuple(scale * int(begin) for begin, *_ in ROWS),
        end=tuple(scale * int(end) for _, end, *_ in ROWS),
        sequence=tuple(int(number) for *_, number, _ in ROWS),
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
