"""A recorded step: its moments, its kinds of operations, and what a profile says of it. It was made up by
hand: a convolution, a ReLU and a classifier, on two ranks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from aiperf.wire.profile_records import Ceilings, Events, MeasuredMemory, PredictedMemory, Recorded
from analysis.exports.profile_text import profile_json, profile_text
from analysis.readings.profile import ROWS as TABLE
from analysis.readings.profile import Profile, kinds
from analysis.readings.profile_spans import Span, spans
from nas.graph import Graph, Node
from nas.layers import Add, Conv2d, Dense, GlobalPool
from nas.ops import TENSOR_OPS
from nas.record import graph_to_json
from tests.tables import ComesTo

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
LINES = Path(__file__).with_name("recorded_step.txt").read_text().splitlines()
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
NODES = [node.name for node in GRAPH.nodes]


def moments() -> dict[str, int]:
    rows: Counter[str] = Counter()
    for span in spans(events(), NODES):
        rows.update(dict(span.rows))
    return dict(sorted((+rows).items()))


def totals(by: str, phase: str = "") -> dict[str, int]:
    """Nanoseconds by the node or the operation, of one phase or of all."""
    counted: Counter[str] = Counter()
    for span in spans(events(), NODES):
        if phase in ("", span.phase):
            counted[getattr(span, by)] += span.nanoseconds
    return dict(sorted(counted.items()))


@st.composite
def nested(draw: st.DrawFn) -> Events:
    """Ranges in ranges, and collectives that lie anywhere."""
    length = draw(st.integers(20, 120))
    rows = [(0, length, "step")]
    edges = [(0, length)]
    for number in range(draw(st.integers(0, 12))):
        begin, end = draw(st.sampled_from(edges))
        cuts = sorted((draw(st.integers(begin, end)), draw(st.integers(begin, end))))
        if any(low < cuts[0] < high < cuts[1] or cuts[0] < low < cuts[1] < high for low, high in edges):
            continue  # neither within nor apart
        edges.append((cuts[0], cuts[1]))
        rows.append((cuts[0], cuts[1], draw(st.sampled_from(["phase: forward", f"aten::{number}"]))))
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, length - 1))
        rows.append((begin, draw(st.integers(begin, length)), "gloo:all_reduce"))
    names = tuple(dict.fromkeys(name for *_, name in rows))
    return Events(
        names=names,
        name=tuple(names.index(name) for *_, name in rows),
        begin=tuple(begin for begin, *_ in rows),
        end=tuple(end for _, end, _ in rows),
        sequence=(-1,) * len(rows),
        layers=(0,),
    )


@given(nested())
def test_nanosecond_by_nanosecond(found: Events) -> None:
    """Against the innermost event of every single nanosecond: the shortest that holds it."""
    named = [found.names[name] for name in found.name]
    ours = [i for i, name in enumerate(named) if not name.startswith("gloo:")]
    expected: Counter[tuple[int, bool]] = Counter()
    for moment in range(found.end[0]):
        lasting = [i for i in range(len(named)) if found.begin[i] <= moment < found.end[i]]
        shortest = min(found.end[i] - found.begin[i] for i in lasting if i in ours)
        expected[shortest, any(i not in ours for i in lasting)] += 1
    measured: Counter[tuple[int, bool]] = Counter()
    for span in spans(found, []):
        measured[0, True] += span.beside
        measured[0, False] += span.nanoseconds - span.beside
        assert {row for row, nanoseconds in span.rows if nanoseconds} <= {*TABLE}
    assert sum(measured.values()) == found.end[0]
    assert measured[0, True] == sum(count for (_, busy), count in expected.items() if busy)
    by_length: Counter[int] = Counter()
    lengths = {named[i]: found.end[i] - found.begin[i] for i in ours}
    if len(lengths) == len(ours) == len(set(lengths.values())):  # else a name does not say which it is
        for span in spans(found, []):
            by_length[lengths[span.operation]] += span.nanoseconds
        wanted: Counter[int] = Counter()
        for (length, _), count in expected.items():
            wanted[length] += count
        assert +by_length == +wanted


def kind(operation: str, phase: str = "backward", beside: int = 0) -> list[tuple[str, int]]:
    """Kinds of five nanoseconds of an operation, of which so many are beside a collective."""
    return list(kinds(Span(5, phase, "", operation, opens=True, beside=beside)))


def node_of(number: int) -> str:
    """The node of an operation of the backward pass with this number; between two it is the first one."""
    names = ("step", "autograd::engine::evaluate_function: XBackward0")
    (found,) = spans(Events(names, (0, 1), (0, 0), (5, 5), (-1, number), events().layers), NODES)
    return found.node


def test_the_kind_and_the_node_of_an_operation(comes_to_what_was_read: ComesTo) -> None:
    """Each moment has one row. A backward pass belongs to the node of its forward pass, and an operation is
    without those that it calls."""
    comes_to_what_was_read("kinds.txt", globals())
    alone = Events(("step",), (0,), (0,), (7,), (-1,), (0,))
    assert spans(alone, []) == [Span(7, "between phases", "", "step", opens=True, beside=0)]


FOUND = Profile.of(RECORDED)


def test_the_operations_of_the_nodes_are_all_that_a_step_counts() -> None:
    counted = [node for node in FOUND.nodes if node.operations is not None]
    assert sum(node.operations or 0 for node in counted) == 4 * GRAPH.operations
    tensor = 4 * GRAPH.cost.train.price(TENSOR_OPS)
    assert sum(node.tensor_operations or 0 for node in counted) == tensor
    names = ["conv", "add", "pool", "classifier", "loss", "sums of gradients"]
    assert [node.name for node in counted] == names


def test_the_text_is_as_it_was_read(as_it_was_read: Callable[[str, str], None]) -> None:
    as_it_was_read(profile_text([FOUND, FOUND], "seed made-up") + "\n", "profile.txt")
    (size,) = json.loads(json.dumps(profile_json([FOUND], "seed made-up"), allow_nan=False))["sizes"]
    assert [node["name"] for node in size["nodes"]][:4] == ["conv", "add", "pool", "classifier"]
    assert size["profiled_over_plain"] == 1.2
    assert size["memory"][-1] == {"name": "peak", "measured": 2000, "modelled": 1920, "predicted": 1720}
