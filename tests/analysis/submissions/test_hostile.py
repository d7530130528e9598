"""Journals of nonsense with a chain that fits: each is refused or shown, and none breaks a page or the watch.

A good journal's values are replaced by others of their type, its lines removed, repeated and cut off.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from aiperf.config import to_toml
from aiperf.errors import AiperfError
from analysis.exports.mllog import mllog_text
from analysis.exports.result import result
from analysis.exports.watch import watch_text
from analysis.pages.report import report_html
from analysis.readings.judgement import examine
from analysis.readings.live import Follower
from analysis.submissions.canonical import canonical
from analysis.submissions.ranking import rank
from nas.graph import Graph
from nas.morphisms import DeepenBasic, EnlargeKernel, Morphism, Skip
from nas.record import RecordError, encode
from tests.analysis.packages import Record, contents, make, packed, rechained, records_of, resealed, written
from tests.journals import CIFAR, Machine, Scene, resized, told, write_run
from tests.tables import ComesTo

WORDS = ("", "x" * 5000, "</script>", "\x00", "é", "2026-13-45", "-1", "0" * 64, "COMPLETE", "LOST")
INTEGERS = (0, -1, 1, 2**62, -(2**62), 10**6, 7)
FLOATS = (0.0, -1.0, 1e300, -1e300, 1e-300, 5e-324, 1e12)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    run = write_run(tmp_path_factory.mktemp("good") / "run", told(Scene(groups=4, minutes=0.05)))
    return records_of(run)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values inside, however deep, without that of the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths(item, (*path, key))


def nonsense(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((*INTEGERS, value + 1))
    if isinstance(value, float):
        return rng.choice((*FLOATS, value * 2))
    if isinstance(value, str):
        return rng.choice(WORDS)
    if isinstance(value, list):
        return rng.choice(([], value + value, value[:1], value[::-1]))
    return rng.choice(({}, {"a": 1}, None, 0))


def spoilt(lines: list[Record], rng: random.Random) -> list[Record]:
    found = deepcopy(lines)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place, kind = rng.randrange(len(found)), rng.random()
        if kind < 0.75:
            *path, last = rng.choice(list(paths(found[place])))
            inside = found[place]
            for step in path:
                inside = inside[step]
            inside[last] = nonsense(inside[last], rng)
        elif kind < 0.85 and len(found) > 1:
            del found[place]
        elif kind < 0.95:
            found.insert(rng.randrange(len(found)), deepcopy(found[place]))
        else:
            found = found[: place + 1]
    return found


def tried(seed: int, num: int, lines: list[Record], directory: Path) -> int:
    """How many were refused."""
    rng, refused = random.Random(seed), 0
    for _ in range(num):
        files = written(spoilt(lines, rng), directory)
        try:
            follower = Follower(files)
            if follower.update():
                watch_text(follower.snapshot(), 80, 24)
            judged = examine(files)
            report_html(judged)
            canonical(result(judged))
            mllog_text(judged)
        except (AiperfError, RecordError):
            refused += 1
    return refused


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("seed", "num"), [(1, 20), pytest.param(2, 60, marks=pytest.mark.slow)])
def test_nonsense_is_refused_or_shown(seed: int, num: int, lines: list[Record], tmp_path: Path) -> None:
    """A chain that is computed again is the writer's: some of it is taken for a run."""
    assert 0 < tried(seed, num, lines, tmp_path / "run") < num


@pytest.mark.slow
def test_it_can_be_drawn(lines: list[Record], tmp_path: Path) -> None:
    assert tried(7, 8, lines, tmp_path / "run") < 8


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "host", ["\0", "x" * 5000, "../../elsewhere", "/absent"], ids=["nul", "long", "up", "root"]
)
def test_a_host_may_be_called_anything_and_no_other_file_is_read(host: str, tmp_path: Path) -> None:
    machine = Machine(groups=1, devices_per_group=1, watts=300.0)
    run = write_run(tmp_path / "a" / "run", resized(CIFAR, 0.2), machine)
    (recorded,) = run.telemetry_directory.iterdir()
    recorded.rename(tmp_path / "a" / "elsewhere.jsonl")
    run.journal.write_text(run.journal.read_text().replace('"node0001"', json.dumps(host)))
    judged = examine(written(records_of(run), run.directory))
    assert judged.verdict.valid
    assert result(judged)["energy"]["unknown_because"].startswith("no power of ")
    report_html(judged)


Theft = Callable[[list[Record]], None]
BILLIONS = 2**31 - 1
MOST_NODES = 1_000_000
"""Nodes of all graphs that are made while one of these packages is checked."""
SEED_CONV, STAGE = "stem.conv", "stage3.block1.relu"


def with_morphisms(*morphisms: Morphism, trials: int = 1) -> Theft:
    """These morphisms, each with its own seed, are said to have made the last trials."""

    def theft(records: list[Record]) -> None:
        for record in [record for record in records if record["type"] == "Dispatched"][-trials:]:
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
