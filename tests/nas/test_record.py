"""Graphs to JSON and back, and every kind of damage on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import nan
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings

from nas.graph import Graph
from nas.head import NextSymbol
from nas.layers import Conv2d, Dense, GlobalPool, Layer
from nas.ops import Ops
from nas.record import RecordError, decode, encode, graph_from_json, graph_to_json
from nas.seeds import SEEDS, residual
from nas.text_seeds import TEXT_SEEDS
from tests.nas.graphs import SAMPLES, chain, graphs
from tests.nas.text.samples import TEXT_SAMPLES, texts
from tests.tables import ComesTo


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    rate: float
    note: str | None = None


@dataclass(frozen=True)
class Outer:
    inner: Inner
    colour: Colour
    pair: tuple[int, str]
    several: tuple[Inner, ...] = ()
    words: Mapping[str, int] | None = None
    anything: Any = 0


@given(graphs() | texts())
@settings(max_examples=80)
def test_a_graph_comes_back_from_its_text(graph: Graph) -> None:
    back = graph_from_json(json.dumps(graph_to_json(graph), allow_nan=False))
    assert back == graph
    assert (back.key, back.cost, back.shapes) == (graph.key, graph.cost, graph.shapes)


@pytest.mark.parametrize("build", [*SEEDS.values(), *TEXT_SEEDS.values()])
def test_a_seed_comes_back_from_its_text(build: Callable[[], Graph]) -> None:
    """Records of images are as before there were heads."""
    graph = build()
    record = graph_to_json(graph)
    assert record.pop("head", None) == (
        {"type": "NextSymbol"} if isinstance(graph.head, NextSymbol) else None
    )
    assert list(record) == ["input", "nodes"]
    assert graph_from_json(json.dumps(graph_to_json(graph))) == graph
    assert graph_from_json({**record, "head": {"type": type(graph.head).__name__}}) == graph


@pytest.mark.parametrize(
    "layer", [layer for layer, _ in [*SAMPLES.values(), *TEXT_SAMPLES.values()]], ids=str
)
def test_a_layer_comes_back(layer: Layer) -> None:
    assert decode(Layer, json.loads(json.dumps(encode(layer)))) == layer
    assert decode(type(layer), encode(layer)) == layer


OUTER = Outer(Inner(0.5), Colour.BLUE, (1, "x"), (Inner(1.0, "n"), Inner(2.0)), {"a": 1}, [1, {"b": None}])
GOOD = {"inner": {"rate": 1}, "colour": "red", "pair": [1, "x"]}


def hostile(place: str, value: object) -> Graph:
    """A graph of this value at a key of its record, or of its second node."""
    record = graph_to_json(residual(widths=(4,)))
    key, _, field = place.partition(".")
    if field:
        record[key][1][field] = value
    else:
        record[key] = value
    return graph_from_json(record)


def unknown(named: object, key: str = "nodes.layer") -> str:
    """What is said of a layer or head of this type, with the first of those that there are."""
    with pytest.raises(RecordError) as raised:
        hostile(key, {"type": named})
    return str(raised.value).partition(",")[0]


def test_every_kind_of_field_is_written_and_read_and_what_is_wrong_is_named_with_its_place(
    comes_to_what_was_read: ComesTo,
) -> None:
    """A layer leaves out its defaults; a named tuple is a list of as many items. A member that is not known
    is named with those that are: a task that is installed may have its own."""
    names = {"nan": nan, "Dense": Dense, "Ops": Ops, "Layer": Layer, "json": json}
    built = {"chain": chain, "Conv2d": Conv2d, "GlobalPool": GlobalPool, "encode": encode}
    for table in ("records.txt", "refused_records.txt"):
        comes_to_what_was_read(table, globals() | names | built)


@pytest.mark.parametrize("record", ["", "{", f'{{"input": {"9" * 5000}}}'])
def test_a_text_that_is_no_json_is_refused_in_the_words_of_each_python(record: str) -> None:
    with pytest.raises(RecordError, match=r"^not valid JSON: .*$"):
        graph_from_json(record)


def test_two_members_of_one_name_are_refused() -> None:
    """Else the one that is imported later would be counted, silently."""

    @dataclass(frozen=True)
    class Family:
        pass

    members: list[type] = [dataclass(frozen=True)(type("Member", (Family,), {})) for _ in range(2)]
    with pytest.raises(RecordError, match=r"two classes are named Member, in .*; rename one"):
        decode(Family, {"type": members[0].__name__})


def test_a_broken_package_of_layers_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "nas.reader.import_layers_of_others", Mock(side_effect=ImportError("the layers of own fail"))
    )
    with pytest.raises(RecordError, match="the layers of own fail"):
        decode(Layer, {"type": "Unheard"})
