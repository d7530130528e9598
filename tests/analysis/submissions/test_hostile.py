"""Journals of nonsense with a chain that fits: each is refused or shown, and none breaks a page or the watch.

A good journal's values are replaced by others of their type, its lines removed, repeated and cut off.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import AiperfError
from aiperf.journal.run_files import RunFiles
from analysis.exports.mllog import mllog_text
from analysis.exports.result import result
from analysis.exports.watch import watch_text
from analysis.pages.report import report_html
from analysis.readings.judgement import examine
from analysis.readings.live import Follower
from analysis.submissions.canonical import canonical
from nas.record import RecordError
from tests.analysis.thefts import rechained
from tests.journals import CIFAR, Machine, Scene, resized, told, write_run

Line = dict[str, Any]
WORDS = ("", "x" * 5000, "</script>", "\x00", "é", "2026-13-45", "-1", "0" * 64, "COMPLETE", "LOST")
INTEGERS = (0, -1, 1, 2**62, -(2**62), 10**6, 7)
FLOATS = (0.0, -1.0, 1e300, -1e300, 1e-300, 5e-324, 1e12)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    run = write_run(tmp_path_factory.mktemp("good") / "run", told(Scene(groups=4, minutes=0.05)))
    return [json.loads(line) for line in run.journal.read_text().splitlines()]


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


def spoilt(lines: list[Line], rng: random.Random) -> list[Line]:
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


def written(lines: list[Line], directory: Path) -> RunFiles:
    """With a chain that a forger computed."""
    files = RunFiles(directory)
    directory.mkdir(exist_ok=True)
    files.journal.write_text(rechained(lines))
    return files


def tried(seed: int, num: int, lines: list[Line], directory: Path) -> int:
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
def test_nonsense_is_refused_or_shown(seed: int, num: int, lines: list[Line], tmp_path: Path) -> None:
    """A chain that is computed again is the writer's: some of it is taken for a run."""
    assert 0 < tried(seed, num, lines, tmp_path / "run") < num


@pytest.mark.slow
def test_it_can_be_drawn(lines: list[Line], tmp_path: Path) -> None:
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
    text = run.journal.read_text().replace('"node0001"', json.dumps(host))
    judged = examine(written([json.loads(line) for line in text.splitlines()], run.directory))
    assert judged.verdict.valid
    assert result(judged)["energy"]["unknown_because"].startswith("no power of ")
    report_html(judged)
