"""The result for machines: every one that the tests produce is of the published schema."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from aiperf.journal.events import Began, FellBack
from aiperf.wire.reports import Fallback
from analysis.exports.result import result
from analysis.exports.trial_table import csv_text
from analysis.readings.judgement import Judged, examine
from analysis.submissions.canonical import canonical, parse
from analysis.submissions.schema import SchemaError, check, schema
from tests.journals import Scene, Timed, told, within, write_run

SCHEMAS = ("result-1", "package-1", "system-1")
SCENES: dict[str, Scene | int] = {
    **{f"hardly begun, {lines} lines": lines for lines in (1, 2, 4, 6, 12, 40)},
    "one group": Scene(),
    "two ranks a group": Scene(groups=2, ranks_of_a_group=2),
    "no time": Scene(minutes=0.01),
    "out of memory": Scene(out_of_memory=frozenset({1, 2})),
    "a lost group": Scene(lost=((1, 20.0),)),
    "two legs": Scene(killed_at=25.0),
    "a number of trials": Scene(minutes=0, max_trials=3),
    "an unknown device": Scene(device="a device of my own"),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))
    assert schema(name)["$id"] == f"urn:aiperf-hpc:{name.replace('-', ':')}"


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_every_result_is_of_the_schema(scene: Scene | int, tmp_path: Path) -> None:
    timed = told(Scene())[:scene] if isinstance(scene, int) else told(scene)
    found = result(examine(write_run(tmp_path / "run", timed)))
    check("result-1", found, "the result")
    assert parse(canonical(found)) == json.loads(json.dumps(found))


def by_engines(timed: list[Timed]) -> Iterator[Timed]:
    """The same run with steps of the fused engine, which failed in one trial; another was never asked."""
    for t, event in timed:
        if not isinstance(event, Began) or event.started.trial == 2:
            yield t, event
            continue
        number, attempt = event.started.trial, event.started.attempt
        yield t, within(event, engine="fused", chosen="1.50 times as fast")
        if number == 1:
            yield t, FellBack(Fallback(number, attempt, "fused", "=SUM(A1)"))


def test_the_engines_of_the_steps_are_told(tmp_path: Path) -> None:
    timed = list(by_engines(told(Scene(changes=(("training.step", "auto"),)))))
    judged = examine(write_run(tmp_path / "run", timed))
    found, began = result(judged), sum(isinstance(event, Began) for _, event in timed)
    check("result-1", found, "the result")
    fused = {"engine": "fused", "because": "1.50 times as fast", "instead_of": "", "trials": began - 2}
    eager = {"engine": "eager", "because": "=SUM(A1)", "instead_of": "fused", "trials": 1}
    assert found["engines"] == [fused, eager]
    by_trial = {int(row["trial"]): row["engine"] for row in csv.DictReader(io.StringIO(csv_text(judged)))}
    assert [by_trial[number] for number in range(4)] == ["fused", "eager", "", "fused"]
    for path in leaves(found["engines"]):
        with pytest.raises(SchemaError, match="it: engines"):
            check("result-1", {**found, "engines": with_leaf(found["engines"], path, {"no": "value"})}, "it")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value that is neither an object nor a list; of a list the first and the last."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for index in dict.fromkeys((0, len(value) - 1) if value else ()):
            yield from leaves(value[index], (*path, index))
    else:
        yield path


def with_leaf(value: Any, path: tuple[Any, ...], leaf: Any) -> Any:
    changed = deepcopy(value)
    inside = changed
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = leaf
    return changed


def test_a_field_of_another_type_is_refused(judged: Judged) -> None:
    found = result(judged)
    found["score"]["shares"] = found["score"]["shares"][:1]
    free = ("data", "config")  # what these may hold is for their own readers to say
    for path in leaves(found):
        inside_morphism = path[:2] == ("best", "lineage") and "morphisms" in path
        if path[0] in free or inside_morphism:
            continue
        with pytest.raises(SchemaError):
            check("result-1", with_leaf(found, path, {"no": "such value"}), "it")


def test_a_fault_is_named_by_its_place_and_cut_to_a_line(judged: Judged) -> None:
    found = result(judged)
    found["score"]["mfu"] = 10**400
    with pytest.raises(SchemaError, match=r"^the result: score\.mfu: ") as raised:
        check("result-1", found, "the result")
    assert len(str(raised.value)) < 300
    found["score"]["mfu"] = None
    found["surprise"] = 1
    with pytest.raises(SchemaError, match="surprise"):
        check("result-1", found, "the result")
