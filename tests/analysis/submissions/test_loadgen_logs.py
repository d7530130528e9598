"""Logs of LoadGen that fit together, and such as cannot: one figure changed.

`loadgen` holds the log and the summary of three tests that LoadGen 6.0.17 made under `infer --seconds 1`,
of a tiny network; lists of samples and files are left out of the logs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.scenarios.detail_log import LogEntry, detail_of, read_entries
from aiperf.scenarios.scenario import SCENARIOS
from aiperf.tasks.images.known_sets import DIGITS
from aiperf.tasks.images.tally import Classified
from aiperf.wire.reports import Processor
from analysis.submissions.loadgen_logs import (
    Contradiction,
    LeastWork,
    Log,
    refuse_contradictions,
    refuse_other_answers,
)
from tests.analysis.exports.test_inference import measured
from tests.tables import ComesTo

LOGS = Path(__file__).parent / "loadgen"
OPERATIONS = 3_000
PROCESSOR = Processor("x86_64", logical=2, top_hertz=3e9, flags=("avx2", "fma"))
"""Its bound is 192 GOPS."""


@dataclass(frozen=True)
class Files:
    """What a forger writes: both files of LoadGen, as text, and what `infer` found."""

    name: str
    log: str
    summary: str
    stopwatch: float = 1.0
    """Our latencies ÷ LoadGen's."""
    device: str = "a processor"
    processor: Processor | None = PROCESSOR
    operations: int = OPERATIONS
    elements: int = 0
    read: bool = True
    """Whether the result of `infer` was read from this log."""


def recorded(name: str) -> Files:
    log, summary = (LOGS / f"{name}.{kind}.txt" for kind in ("detail", "summary"))
    return Files(name, log.read_text(encoding="utf-8"), summary.read_text(encoding="utf-8"))


def contradiction(files: Files, folder: Path) -> str:
    """The first one, without the path; empty if there is none."""
    path = folder / "log.txt"
    path.write_text(files.log, encoding="utf-8", newline="")
    try:
        log = Log(path, read_entries(path))
    except AiperfError as error:
        return str(error)
    real = Log(path, read_entries(LOGS / f"{files.name}.detail.txt"))
    detail = detail_of({key: every[-1].value for key, every in (log if files.read else real).entries.items()})
    stopwatch = replace(detail.latencies, mean=files.stopwatch * detail.latencies.mean)
    found = measured(
        files.name,
        device=files.device,
        format="fp32",
        tensor_ops=files.operations,
        detail=detail,
        stopwatch=stopwatch,
        processor=files.processor,
    )
    try:
        refuse_contradictions(
            SCENARIOS[files.name], found, log, files.summary, LeastWork(files.operations, files.elements)
        )
    except Contradiction as error:
        return str(error).removeprefix(f"{path}: ")
    return ""


def replaced(pattern: str, text: str) -> Callable[[Files], Files]:
    """Another text behind the group of the pattern, which the log has once."""

    def changed(files: Files) -> Files:
        log, times = re.subn(pattern, lambda found: found[1] + text, files.log, flags=re.MULTILINE)
        assert times == 1
        return replace(files, log=log)

    return changed


def key(name: str, value: object) -> Callable[[Files], Files]:
    """Another value in the log; None: the line is removed."""
    if value is None:
        return replaced(rf'^().*"key": "{re.escape(name)}".*\n', "")
    return replaced(rf'("key": "{re.escape(name)}", "value": )(?:"[^"]*"|[^,]+)', json.dumps(value))


def at(name: str, milliseconds: float) -> Callable[[Files], Files]:
    """Another time in the log."""
    return replaced(rf'("key": "{name}", "value": [^,]+, "time_ms": )[\d.]+', f"{milliseconds}")


TWO_VALUES = replaced('("result_samples_per_second", )', '"value": 160000000, ')
"""A figure of which some readers take the first value."""
BETTER = ':::MLLOG {"key": "result_samples_per_second", "value": 160000000}'


def begins(log: str = "", summary: str = "") -> Callable[[Files], Files]:
    return lambda files: replace(files, log=log + files.log, summary=summary + files.summary)


def other(files: Files) -> Files:
    """The result of `infer` was read from the honest log."""
    return replace(files, read=False)


SINGLE, MULTI, OFFLINE = "single-stream", "multi-stream", "offline"


@pytest.mark.parametrize("name", [SINGLE, MULTI, OFFLINE])
def test_what_loadgen_wrote_fits(name: str, tmp_path: Path) -> None:
    """Also if our stopwatch has less, as it must, and on a device that nobody knows."""
    files = recorded(name)
    for each in (files, replace(files, stopwatch=0.5), replace(files, device="Abacus 9", processor=None)):
        assert contradiction(each, tmp_path) == ""


TINY = replace(DIGITS, classes=3, test_examples=6, test_examples_per_class=(2, 2))
PARTS = [4, 2, 0, 1], [5, 3]
"""The order in which LoadGen loads the six, four at once."""
RIGHT = {place: place % 3 for place in range(6)}


def answers(classes: dict[int, int], extra: tuple[int, ...] = ()) -> str:
    places = [*PARTS[0], *PARTS[1], *extra]
    data = {place: each.to_bytes(8, "little", signed=True).hex() for place, each in classes.items()}
    found = [{"qsl_idx": place, "data": data[place]} for place in places if place in data]
    return json.dumps([{"seq_id": number, **each} for number, each in enumerate(found)])


def test_a_figure_that_does_not_fit_is_found_and_answers_are_counted(
    tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    def forged(name: str, *changes: Callable[[Files], Files]) -> str:
        files = reduce(lambda files, change: change(files), changes, recorded(name))
        return contradiction(files, tmp_path).replace(f"{tmp_path}/", "")

    def counted(scenario: str, text: str, correct: int) -> None:
        path = tmp_path / "answers.json"
        path.write_text(text, encoding="utf-8")
        found = {
            "loaded_qsl_set": PARTS,
            "generated_query_count": (4, 2),
            "generated_samples_per_query": (1, 1),
        }
        entries = {name: [LogEntry(0.0, part) for part in parts] for name, parts in found.items()}
        log = Log(Path("log.txt"), entries)
        try:
            refuse_other_answers(log, path, Classified(6, correct), TINY, SCENARIOS[scenario])
        except Contradiction as error:
            raise Contradiction(str(error).replace(f"{tmp_path}/", "")) from None

    comes_to_what_was_read("loadgen_logs.txt", {**globals(), "forged": forged, "counted": counted})
