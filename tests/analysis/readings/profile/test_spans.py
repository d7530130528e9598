"""Each moment of a step stands in one row, by its phase, its node and what runs beside it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.wire.recorded import Events
from analysis.readings.profile.spans import Span, spans
from tests.analysis.readings.profile.recorded import GRAPH, events

NODES = [node.name for node in GRAPH.nodes]


def totals(found: list[Span], by: str) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for span in found:
        counted[getattr(span, by)] += span.nanoseconds
    return dict(counted)


def test_each_moment_has_one_row() -> None:
    rows: Counter[str] = Counter()
    for span in spans(events(), NODES):
        for row, nanoseconds in span.rows:
            rows[row] += nanoseconds
    assert {row: nanoseconds for row, nanoseconds in rows.items() if nanoseconds} == {
        "load": 500,
        "forward": 2_400,
        "loss": 300,
        "backward": 3_400 - 1_000 + 50,  # 8,250 to 8,300 with neither
        "backward beside all-reduce": 1_000,
        "all-reduce": 100 + 1_450,
        "optimizer": 1_500,
        "between phases": 300,
    }
    assert sum(rows.values()) == 10_000


def test_a_backward_pass_belongs_to_the_node_of_its_forward_pass() -> None:
    backward = [span for span in spans(events(), NODES) if span.phase == "backward"]
    assert totals(backward, "node") == {
        "loss": 200,
        "classifier": 500 + 200,  # with the gradient that is put in its place
        "add": 100,
        "sums of gradients": 100,
        "conv": 2_000,
        "": 100 + 100 + 100 + 1_600,
    }
    forward = [span for span in spans(events(), NODES) if span.phase == "forward"]
    assert totals(forward, "node") == {"": 200, "conv": 1_000, "add": 300, "pool": 300, "classifier": 600}


def test_an_operation_is_without_those_that_it_calls() -> None:
    found = totals(spans(events(), NODES), "operation")
    assert (found["aten::conv2d"], found["aten::mkldnn_convolution"]) == (200, 600)


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


def test_what_has_no_range_around_it_is_refused_by_nobody() -> None:
    """A step without any event but itself."""
    alone = Events(("step",), (0,), (0,), (7,), (-1,), (0,))
    assert spans(alone, []) == [Span(7, "between phases", "", "step", opens=True, beside=0)]


@pytest.mark.parametrize(("number", "node"), [(9, ""), (11, "conv"), (15, "classifier"), (16, "loss")])
def test_a_number_between_two_nodes_is_the_first_ones(number: int, node: str) -> None:
    one = replace(
        events(),
        names=("step", "autograd::engine::evaluate_function: XBackward0"),
        name=(0, 1),
        begin=(0, 0),
        end=(5, 5),
        sequence=(-1, number),
    )
    (found,) = spans(one, NODES)
    assert found.node == node
