"""LoadGen's `mlperf_log_detail.txt`: its verdict on a test, and its latencies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiperf.errors import AiperfError
from aiperf.os_error import unreadable
from aiperf.scenarios.latencies import PERCENTILES, Latencies
from nas.bounded import lines, opened
from nas.frozen import frozen

MARK = b":::MLLOG"
"""Begins a line with an entry, as in all logs of MLPerf."""
PREFIX = MARK + b" "
LONGEST_LINE = 1 << 26
"""Maximum length of a line in bytes; it is large because the list of all loaded samples is on one line."""
NANO = 1e-9


@frozen
class LogEntry:
    """One line of the log."""

    milliseconds: Any
    """Time since the log began, as it is in the file."""
    value: Any


TOO_SOON = "it ended too soon"


@frozen
class Detail:
    """A test as LoadGen judged it."""

    version: str
    valid: bool
    reason: str
    """Reason why it is not valid; empty if it is."""
    early_stopping: str
    """Result of early stopping in LoadGen's words; empty in a scenario without it."""
    queries: int
    latencies: Latencies
    """Latencies of queries, of one sample or of 8; in Offline, where all samples are in one query, of
    samples."""
    samples_per_second: float
    """Rate as LoadGen states it; in MultiStream, 8 divided by the mean latency of a query."""
    early_stopping_percentile: float | None
    """The scenario's percentile of the latency in seconds that holds with a confidence of 99 %, as early
    stopping estimates it; None if there is none."""
    errors: int
    """Number of errors that LoadGen itself logged."""

    @property
    def too_soon(self) -> bool:
        """Whether its queries were used up before the minimum duration."""
        return self.reason.startswith(TOO_SOON)


def read_detail(path: Path) -> Detail:
    """LoadGen's verdict from its log. Raises AiperfError if the log cannot be read, or is not that of a test
    that ended."""
    with _reading(path):
        return detail_of(read_values(path))


def read_values(path: Path) -> dict[str, Any]:
    """The last value of each key in the log. Raises AiperfError if it cannot be read."""
    return {key: entries[-1].value for key, entries in read_entries(path).items()}


def read_entries(path: Path) -> dict[str, list[LogEntry]]:
    """The entries of the log, by key. Raises AiperfError if it cannot be read."""
    with _reading(path), opened(path) as file:
        return _entries(lines(file, LONGEST_LINE))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """A context that turns errors of a file or of its content into one AiperfError with the path."""
    try:
        yield
    except OSError as error:
        raise AiperfError(unreadable(error, path, "run the test again")) from None
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise AiperfError(f"{path} is not LoadGen's log of a test that ended: {what}") from None


def detail_of(found: Mapping[str, Any]) -> Detail:
    """LoadGen's verdict from the values in its log. Raises KeyError if a key is missing."""
    scenario = found["effective_scenario"]
    per_query = "per_query_" if scenario == "MultiStream" else ""
    mean_key = f"result_mean_{'query_' if per_query else ''}latency_ns"
    queries, mean = int(found["result_query_count"]), NANO * found[mean_key]
    samples = queries * int(found["effective_samples_per_query"])
    latencies = Latencies(
        number=queries if per_query else samples,
        mean=mean,
        least=NANO * found[mean_key.replace("mean", "min")],
        most=NANO * found[mean_key.replace("mean", "max")],
        percentiles={
            name: NANO * found[f"result_{name}_percentile_{per_query}latency_ns"] for name in PERCENTILES
        },
    )
    valid = found["result_validity"] == "VALID"
    early = {"SingleStream": "early_stopping_latency_ss", "MultiStream": "early_stopping_latency_ms"}
    estimate = found[early[scenario]] if scenario in early else 0
    return Detail(
        version=str(found["loadgen_version"]).partition(" ")[0],
        valid=valid,
        reason="" if valid else _reason(found),
        early_stopping=_words(found.get("early_stopping_result", "")),
        queries=queries,
        latencies=latencies,
        samples_per_second=_rate(found, scenario, mean),
        early_stopping_percentile=NANO * estimate if estimate else None,
        errors=int(found["num_errors"]),
    )


def _entries(logged: Any) -> dict[str, list[LogEntry]]:
    """The entries by key. A key appears several times if the samples are loaded one part after the other."""
    found: dict[str, list[LogEntry]] = {}
    for line in logged:
        if len(line) > LONGEST_LINE:
            raise ValueError(f"a line has more than {LONGEST_LINE:,} bytes")
        # Other readers end a line elsewhere, or look for the mark further on; they must find nothing more.
        if MARK in line and not (line.startswith(PREFIX) and line.count(MARK) == 1):
            raise ValueError(f"a line has {MARK.decode()} elsewhere than once at its beginning")
        if line.startswith(PREFIX):
            record = json.loads(line[len(PREFIX) :], object_pairs_hook=_once)
            found.setdefault(record["key"], []).append(LogEntry(record.get("time_ms"), record["value"]))
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError for a name that appears twice in an entry: other readers may take the other value."""
    if twice := [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]:
        raise ValueError(f"{twice[0]:.40} appears twice")
    return dict(pairs)


def _rate(found: Mapping[str, Any], scenario: str, mean: float) -> float:
    """The rate that is reported of a scenario. LoadGen states it under another key for each, and not at all
    for MultiStream."""
    if scenario == "MultiStream":
        return float(found["effective_samples_per_query"] / mean)
    keys = {
        "SingleStream": "result_qps_with_loadgen_overhead",
        "Server": "result_completed_samples_per_sec",
        "Offline": "result_samples_per_second",
    }
    return float(found[keys[scenario]])


def _reason(found: Mapping[str, Any]) -> str:
    """Why a test is not valid, in words. LoadGen's own text is only advice; which conditions were not met is
    in separate keys."""
    unmet = [
        text
        for key, text in (
            ("result_min_duration_met", TOO_SOON),
            ("result_min_queries_met", "it had too few queries"),
            ("result_perf_constraints_met", "the latency is above the bound"),
            ("early_stopping_met", "early stopping is not met"),
        )
        if not found.get(key, True)
    ]
    advice = _words(found.get("result_invalid_reason", ""))
    return ", ".join(unmet) + (f" (LoadGen: {advice})" if advice else "")


def _words(text: Any) -> str:
    """LoadGen's text on one line, without the stars of its lists."""
    return " ".join(str(text).replace("*", " ").split())
