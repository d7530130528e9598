"""Packages that would keep whoever checks a list busy for hours: each is refused by name, or judged as any
other, after a counted amount of work."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from aiperf.config import to_toml
from analysis.submissions.ranking import rank
from nas.graph import Graph
from nas.morphisms import DeepenBasic, EnlargeKernel, Morphism, Skip
from nas.record import encode
from tests.analysis.packages import contents, make, packed, resealed
from tests.analysis.thefts import rechained
from tests.journals import Scene, told, write_run
from tests.tables import ComesTo

Record = dict[str, Any]
Theft = Callable[[list[Record]], None]
BILLIONS = 2**31 - 1
MOST_NODES = 1_000_000
"""Nodes of all graphs that are made while one of these packages is checked."""
SEED_CONV, STAGE = "stem.conv", "stage3.block1.relu"


def of_kind(records: list[Record], kind: str) -> list[Record]:
    return [record for record in records if record["type"] == kind]


def with_morphisms(*morphisms: Morphism, trials: int = 1) -> Theft:
    """These morphisms, each with its own seed, are said to have made the last trials."""

    def theft(records: list[Record]) -> None:
        for record in of_kind(records, "Dispatched")[-trials:]:
            record["trial"]["morphisms"] = [encode(morphism) for morphism in morphisms]

    return theft


def with_seed(change: Callable[[dict[str, Any]], object]) -> Theft:
    """Another seed graph, of which the counts know nothing."""
    return lambda records: change(records[0]["seed_graph"])


def a_kernel_of_billions(graph: dict[str, Any]) -> None:
    layer = next(node["layer"] for node in graph["nodes"] if node["name"] == SEED_CONV)
    layer.update(kernel=BILLIONS, stride=3, padding=BILLIONS // 2)


def a_tower(graph: dict[str, Any]) -> None:
    """More ReLUs than an architecture may have layers."""
    last = graph["nodes"].pop()
    reads = last["inputs"][0]
    for number in range(20_000):
        graph["nodes"].append({"name": f"r{number}", "layer": {"type": "ReLU"}, "inputs": [reads]})
        reads = f"r{number}"
    graph["nodes"].append({**last, "inputs": [reads]})


def a_drawn_out_search(records: list[Record]) -> None:
    records[0]["config"]["search"]["morphisms"] = 10**9


def narrow_bounds(records: list[Record]) -> None:
    """No child has the operations of its seed to one in a million, so a proposal tries all that it may."""
    bounds = records[0]["config"]["search"]["bounds"]
    bounds.update(min_operations=1.0, max_operations=1.000001, max_parameters=1.0)


SIZES: dict[str, Theft] = {
    "kernel": with_seed(a_kernel_of_billions),
    "grown-kernel": with_morphisms(EnlargeKernel("stage3.block1.2.conv", BILLIONS)),
    "block-of-billions": with_morphisms(DeepenBasic(STAGE, BILLIONS, 1, BILLIONS)),
    "morphisms": with_morphisms(*[Skip("stem.relu", "stem.bn", number) for number in range(20_000)]),
    "many-trials": with_morphisms(*[DeepenBasic(STAGE, 4, number) for number in range(500)], trials=8),
    "tower": with_seed(a_tower),
    "search": a_drawn_out_search,
    "bounds": narrow_bounds,
}


def hostile(path: Path, theft: Theft, good: Mapping[str, bytes]) -> Path:
    name = "runs/run/journal.jsonl"
    records = [json.loads(line) for line in good[name].splitlines()]
    theft(records)
    return packed(path, resealed({**good, name: rechained(records).encode()}))


@pytest.mark.usefixtures("undrawn")
def test_hostile_sizes_end_after_counted_work_and_the_others_are_ranked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    run = write_run(tmp_path / "run", told(Scene(minutes=0.1)))
    run.config.write_text(to_toml(Scene(minutes=0.1).config), encoding="utf-8")
    good = make(tmp_path / "good.tar.gz", run)
    packages = [hostile(tmp_path / f"{name}.tar.gz", theft, contents(good)) for name, theft in SIZES.items()]
    built, nodes, package = Graph.__post_init__, Counter[str](), ""

    def counting(graph: Graph, parent: Graph | None) -> None:
        nodes[package] += len(graph.nodes)
        built(graph, parent)

    def show(text: str) -> None:
        nonlocal package
        package = text.partition(",")[0]

    monkeypatch.setattr(Graph, "__post_init__", counting)
    standing = rank([*packages, good], {}, lambda name, text: None, show)
    assert [entry.run for entry in standing.entries] == ["simulated"]
    reasons = {one.package.removesuffix(".tar.gz"): one.reasons[-1] for one in standing.refused}
    assert reasons.keys() == SIZES.keys()
    comes_to_what_was_read("hostile_sizes.txt", {"refused": reasons})
    assert {name: num for name, num in nodes.items() if num > MOST_NODES} == {}
