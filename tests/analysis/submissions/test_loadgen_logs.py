"""Logs of LoadGen that fit together, and such as cannot: one figure changed.

`loadgen` holds the log and the summary of three tests that LoadGen 6.0.17 made under `infer --seconds 1`,
of a tiny network; lists of samples and files are left out of the logs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.scenarios.detail_log import LogEntry, detail_of, read_entries
from aiperf.scenarios.exchange import Measured
from aiperf.scenarios.scenario import SCENARIOS
from aiperf.tasks.images.known_sets import KnownSet
from aiperf.tasks.images.tally import Classified
from aiperf.wire.messages import Processor
from analysis.submissions.loadgen_logs import (
    Contradiction,
    LeastWork,
    Log,
    refuse_contradictions,
    refuse_other_answers,
)

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
    own = detail.latencies
    measured = Measured(
        device=files.device,
        threads=1,
        format="fp32",
        software={},
        tensor_ops=files.operations,
        test_seconds=1.0,
        latency_seconds=1.0,
        detail=detail,
        stopwatch=replace(own, mean=files.stopwatch * own.mean),
        span=(0.0, 1.0),
        device_id="",
        queries_per_second=None,
        probes=(),
        nothing="",
        accuracy=None,
        processor=files.processor,
    )
    try:
        refuse_contradictions(
            SCENARIOS[files.name], measured, log, files.summary, LeastWork(files.operations, files.elements)
        )
    except Contradiction as error:
        return str(error).removeprefix(f"{path}: ")
    return ""


def key(name: str, value: object) -> Callable[[Files], Files]:
    """Another value in the log; None: the line is removed."""

    def changed(files: Files) -> Files:
        if value is None:
            log, times = re.subn(rf'^.*"key": "{re.escape(name)}".*\n', "", files.log, flags=re.MULTILINE)
        else:
            pattern = rf'(?<="key": "{re.escape(name)}", "value": )("[^"]*"|[^,]+)'
            log, times = re.subn(pattern, json.dumps(value), files.log)
        assert times == 1
        return replace(files, log=log)

    return changed


def at(name: str, milliseconds: float) -> Callable[[Files], Files]:
    """Another time in the log."""

    def changed(files: Files) -> Files:
        pattern = rf'("key": "{name}", "value": [^,]+, "time_ms": )[\d.]+'
        log, times = re.subn(pattern, rf"\g<1>{milliseconds}", files.log)
        assert times == 1
        return replace(files, log=log)

    return changed


BETTER = ':::MLLOG {"key": "result_samples_per_second", "value": 160000000}'


def begins(log: str = "", summary: str = "") -> Callable[[Files], Files]:
    return lambda files: replace(files, log=log + files.log, summary=summary + files.summary)


def a_figure_with_two_values(files: Files) -> Files:
    """Some readers take the first one."""
    name = '"result_samples_per_second", '
    assert files.log.count(name) == 1
    return replace(files, log=files.log.replace(name, f'{name}"value": 160000000, '))


def other(files: Files) -> Files:
    """The result of `infer` was read from the honest log."""
    return replace(files, read=False)


SINGLE, MULTI, OFFLINE = "single-stream", "multi-stream", "offline"
NO_QUERY = "not a number that"
FORGERIES: list[tuple[str, list[Callable[[Files], Files]], str]] = [
    (SINGLE, [key("result_query_count", 10**8)], NO_QUERY),
    (SINGLE, [key("result_query_count", 63)], NO_QUERY),
    (SINGLE, [key("generated_query_count", 16)], NO_QUERY),
    (OFFLINE, [key("result_query_count", 2)], NO_QUERY),
    (OFFLINE, [key("generated_samples_per_query", 7)], "is not effective_samples_per_query"),
    (OFFLINE, [key("effective_samples_per_query", 24_575)], "which Offline does not have"),
    (MULTI, [key("effective_samples_per_query", 16)], "which MultiStream does not have"),
    (MULTI, [key("effective_samples_per_query", "8"), other], "not LoadGen's log of a test that ended"),
    (SINGLE, [key("result_90.00_percentile_latency_ns", 40_000)], "do not rise"),
    (SINGLE, [key("num_errors", "many"), other], "not LoadGen's log of a test that ended"),
    (SINGLE, [key("result_min_latency_ns", 0)], "not those of a test"),
    (SINGLE, [key("result_mean_latency_ns", 30_000)], "the mean latency does not fit"),
    (MULTI, [key("result_mean_query_latency_ns", 400_000)], "the mean latency does not fit"),
    (SINGLE, [key("result_qps_with_loadgen_overhead", 160e6)], "at the stated rate take"),
    (SINGLE, [key("result_qps_without_loadgen_overhead", 160e6)], "is not 1 ÷ result_mean_latency_ns"),
    (OFFLINE, [key("result_samples_per_second", 160e6)], "is not the number of samples ÷ result_max"),
    (OFFLINE, [at("result_validity", 150.0)], "s passed, but the test takes 3.57"),
    (MULTI, [at("result_validity", 150.0)], "s passed, but the test takes 1.66"),
    (MULTI, [at("generated_query_duration", 1e7)], "s passed, but the test takes 1.66"),
    (MULTI, [key("effective_min_duration_ms", 600_000)], "s passed, but the test takes 600 s"),
    (
        OFFLINE,
        [key("effective_min_duration_ms", 600_000), at("result_validity", 700_000.0)],
        "the last sample was",
    ),
    (
        SINGLE,
        [key("effective_min_duration_ms", 600_000), at("result_validity", 700_000.0)],
        "at the stated rate",
    ),
    (SINGLE, [key("early_stopping_latency_ss", 40_000)], "is not between the percentile and the longest"),
    (MULTI, [key("early_stopping_latency_ms", 10**9)], "is not between the percentile and the longest"),
    (SINGLE, [key("result_max_latency_ns", 16_400_000)], "but its summary has"),
    (MULTI, [key("effective_qsl_rng_seed", 1)], "but its summary has"),
    (OFFLINE, [begins(f"{BETTER}\n")], "result_samples_per_second is there 2 times"),
    (
        SINGLE,
        [begins(BETTER.replace("result_samples_per_second", "loadgen_version") + "\n")],
        "is there 2 times",
    ),
    # What other readers find, as MLPerf's own does, which splits at a carriage return and strips spaces.
    *(
        (OFFLINE, [begins(BETTER.join(around))], "elsewhere than once at its beginning")
        for around in (("x\r", "\r\n"), (" ", "\n"), ("\u2028", "\n"), (f"{BETTER} ", "\n"))
    ),
    (OFFLINE, [begins(BETTER.replace("G {", "G{") + "\n")], "elsewhere than once at its beginning"),
    (OFFLINE, [a_figure_with_two_values], "value appears twice"),
    *(
        (OFFLINE, [begins(summary=f"{line}160000000\n")], "its summary has 'Samples per second' 2 times")
        for line in ("Samples per second: ", "SAMPLES  per second : ", "Samples per second = ")
    ),
    (OFFLINE, [begins(summary="\rSamples per second: 160000000\n")], "its summary contains '\\r'"),
    (OFFLINE, [begins(summary="Samples per\u00a0second: 160000000\n")], "its summary contains '\\xa0'"),
    (SINGLE, [key("effective_qsl_rng_seed", None)], "effective_qsl_rng_seed is missing"),
    (SINGLE, [lambda files: replace(files, summary="")], "that there were no errors"),
    (SINGLE, [lambda files: replace(files, summary=recorded(MULTI).summary)], "but its summary has"),
    (OFFLINE, [lambda files: replace(files, stopwatch=1.1)], "by our stopwatch, which measures inside"),
    (SINGLE, [key("early_stopping_result", ""), other], "is not the log from"),
    (SINGLE, [lambda files: replace(files, operations=10**8)], "4.82 times as fast as a processor can"),
    (OFFLINE, [lambda files: replace(files, elements=10**9)], "times as fast as a processor can"),
    (
        SINGLE,
        [lambda files: replace(files, operations=10**8, processor=replace(PROCESSOR, logical=10**6))],
        "it reports 1000000 processors",
    ),
    (MULTI, [lambda files: replace(files, operations=10**8)], "times as fast as a processor can"),
    (OFFLINE, [lambda files: replace(files, operations=10**8)], "times as fast as a processor can"),
]


@pytest.mark.parametrize(("name", "changes", "why"), FORGERIES)
def test_a_figure_that_does_not_fit_is_found(
    name: str, changes: list[Callable[[Files], Files]], why: str, tmp_path: Path
) -> None:
    files = recorded(name)
    for change in changes:
        files = change(files)
    assert why in contradiction(files, tmp_path)


@pytest.mark.parametrize("name", [SINGLE, MULTI, OFFLINE])
def test_what_loadgen_wrote_fits(name: str, tmp_path: Path) -> None:
    """Also if our stopwatch has less, as it must, and on a device that nobody knows."""
    files = recorded(name)
    for each in (files, replace(files, stopwatch=0.5), replace(files, device="Abacus 9", processor=None)):
        assert contradiction(each, tmp_path) == ""


TINY = KnownSet(
    "six",
    "six",
    "",
    1,
    classes=3,
    official_training_examples=9,
    test_examples=6,
    test_examples_per_class=(2, 2),
)
PARTS = [4, 2, 0, 1], [5, 3]
"""The order in which LoadGen loads the six, four at once."""
RIGHT = {place: place % 3 for place in range(6)}


def answers(classes: dict[int, int], extra: tuple[int, ...] = ()) -> str:
    places = [*PARTS[0], *PARTS[1], *extra]
    rows = [
        (place, classes[place].to_bytes(8, "little", signed=True).hex())
        for place in places
        if place in classes
    ]
    return json.dumps([{"seq_id": n, "qsl_idx": place, "data": data} for n, (place, data) in enumerate(rows)])


@pytest.mark.parametrize(
    ("scenario", "text", "correct", "why"),
    [
        (SINGLE, answers(RIGHT), 6, ""),
        (OFFLINE, answers(dict.fromkeys(RIGHT, 0)), 2, ""),
        (SINGLE, "[]", 0, "it has answers for 0 samples, not for each of 6"),
        (SINGLE, "", 0, "is not LoadGen's log of answers"),
        (SINGLE, '[{"qsl_idx": 0, "data": "00"}]', 0, "an answer has 1 bytes, not 8"),
        (SINGLE, answers(dict.fromkeys(range(5), 1)), 0, "it has answers for 5 samples"),
        (SINGLE, answers(RIGHT, (4, 4)), 6, "it has 8 answers, but LoadGen asked for 6"),
        (SINGLE, answers(RIGHT | {3: 3}), 6, "3 is not one of 3 classes"),
        (SINGLE, answers(dict.fromkeys(RIGHT, 0)), 3, "at most 2 of its answers can be right, but 3 were"),
    ],
)
def test_answers_are_counted(scenario: str, text: str, correct: int, why: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    path.write_text(text, encoding="utf-8")
    keys = ("loaded_qsl_set", "generated_query_count", "generated_samples_per_query")
    entries = {
        name: [LogEntry(0.0, part) for part in parts] for name, parts in zip(keys, (PARTS, (4, 2), (1, 1)))
    }
    log, counted = Log(path, entries), Classified(6, correct)
    with pytest.raises(Contradiction, match=why) if why else nullcontext():
        refuse_other_answers(log, path, counted, TINY, SCENARIOS[scenario])
