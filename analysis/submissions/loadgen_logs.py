"""Whether the logs that LoadGen left of one scenario fit together: summary, detail log, answers, result.

Each figure is in several of them, or follows from others. Every comparison holds for any test that LoadGen
really made (version 6.0.17, results.cc and test_settings_internal.cc), whatever the machine, its load and the
number of samples that fit into memory.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from math import isclose, isfinite
from pathlib import Path
from typing import Any

from aiperf.errors import AiperfError
from aiperf.hardware.bound import ELEMENT_WISE, bound_of_device
from aiperf.journal import strict
from aiperf.rules.participants import processor_faults
from aiperf.scenarios.detail_log import Detail, LogEntry, detail_of
from aiperf.scenarios.exchange import Measured
from aiperf.scenarios.latencies import PERCENTILES, Latencies
from aiperf.scenarios.scenario import OFFLINE_SAMPLES, Scenario
from aiperf.tasks.images.known_sets import KnownSet
from aiperf.tasks.images.tally import Classified
from nas.bounded import read_text
from nas.frozen import frozen

ROUNDED = 1e-4
"""Relative difference of two figures that are equal: LoadGen writes rates with six digits."""
OUTSIDE = 0.05
"""Share by which the mean of our own stopwatch may exceed LoadGen's. It is inside of LoadGen's latencies, so
an honest one is below; the room is for a clock that is set during the test."""
LEAST_QUERIES = {"single-stream": 64, "multi-stream": 662, "offline": 1}
"""Queries that LoadGen's early stopping needs for the scenario's percentile; Offline has one query."""
ESTIMATES = {"single-stream": "early_stopping_latency_ss", "multi-stream": "early_stopping_latency_ms"}
"""The latency that a submission reports, by scenario."""
HEADLINES = {
    "single-stream": ("90.0th percentile latency (ns)", "result_90.00_percentile_latency_ns"),
    "multi-stream": ("99.0th percentile latency (ns)", "result_99.00_percentile_per_query_latency_ns"),
    "offline": ("Samples per second", "result_samples_per_second"),
}
"""First figure of the summary: its name there, and in the detail log."""
PARAMETERS = (
    *("samples_per_query", "min_query_count", "qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"),
    *("performance_sample_count", "accuracy_sample_count"),
)
"""Settings in the summary that are in the detail log as `effective_…`."""
OTHER_LETTERS = re.compile(r"[^\n\x20-\x7e]")
"""What LoadGen writes into no summary: a reader may see a line end, or nothing, where another does not."""
NO_ERRORS = "No errors encountered during test."
"""The line of a summary without errors."""
STARTED, ENDED = "generated_query_duration", "result_validity"
"""Entries that LoadGen logs just before its first query and after its last one."""
ONCE = ("effective_", "result_", "early_stopping_", "num_errors", "loadgen_version", "qsl_", "requested_")
"""Beginnings of the keys that LoadGen logs once per test."""
NANO = 1e-9
"""Seconds of a nanosecond, in which LoadGen logs times."""
MOST_BYTES = 50 << 20
"""Largest file in a submission, in bytes (repository_checks.sh of MLPerf Inference)."""


@frozen
class LeastWork:
    """Operations of one sample that no library can avoid."""

    products: int
    """Tensor operations."""
    elements: int = 0
    """Element-wise operations, which may overlap with the products."""


class Contradiction(AiperfError):
    """Two figures of the logs that cannot both be right, in words."""


@frozen
class Log:
    """The detail log of one test."""

    path: Path
    entries: Mapping[str, list[LogEntry]]
    """All entries of each key in their order: a key may be logged several times."""

    def last(self, key: str) -> Any:
        """The last value of a key; None if there is none."""
        return self.entries[key][-1].value if key in self.entries else None

    def value(self, key: str) -> Any:
        """The same. Raises Contradiction if there is none."""
        if key not in self.entries:
            raise Contradiction(f"{self.path}: {key} is missing")
        return self.last(key)

    def values(self, key: str) -> list[float]:
        """All values of a key, each a number. Raises Contradiction."""
        return [self._number(key, entry.value) for entry in self.entries.get(key, [])]

    def number(self, key: str) -> float:
        """The last value of a key, which must be a number. Raises Contradiction."""
        return self._number(key, self.value(key))

    def milliseconds(self, key: str) -> float:
        """When a key was logged last, since LoadGen began. Raises Contradiction."""
        self.value(key)
        return self._number(f"time_ms of {key}", self.entries[key][-1].milliseconds)

    def refuse_repeated(self) -> None:
        """Raises Contradiction if a figure or a setting is there twice: other readers may take the other."""
        for key, every in self.entries.items():
            if key.startswith(ONCE) and len(every) > 1:
                raise Contradiction(f"{self.path}: {key} is there {len(every)} times")

    def detail(self) -> Detail:
        """The figures of the test. Raises Contradiction for a log of which one is missing."""
        try:
            return detail_of({key: entries[-1].value for key, entries in self.entries.items()})
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise Contradiction(f"{self.path} is not LoadGen's log of a test that ended: {error}") from None

    def _number(self, what: str, value: Any) -> float:
        """The value, if it is a number that 64 bits can hold. Raises Contradiction, which names `what`."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**64:
            raise Contradiction(f"{self.path}: {what} is {value!r:.40}, not a number of that size")
        return value


def refuse_contradictions(
    scenario: Scenario, measured: Measured, performance: Log, summary: str, work: LeastWork
) -> None:
    """Compares the log of the performance test with its summary, with the result of `infer` and with what the
    device can do. `work` is that of one sample.

    Raises Contradiction.
    """
    performance.refuse_repeated()
    detail = performance.detail()
    if detail != measured.detail:
        raise Contradiction(f"{performance.path} is not the log from which the result of `infer` was read")
    for text in chain(
        _counts(scenario, performance, detail),
        _out_of_order(detail.latencies),
        _times(scenario, performance, detail),
        _summarised(scenario, performance, summary),
        _beyond_stopwatch(detail.latencies, measured.stopwatch),
        _beyond_bound(scenario, measured, work),
    ):
        raise Contradiction(f"{performance.path}: {text}")


def share_of_bound(scenario: Scenario, measured: Measured, work: LeastWork) -> float | None:
    """The share of the most that the device can do which the answers took, at the fastest; None if it has no
    known bound."""
    shares = []
    for format, operations in ((measured.format, work.products), (ELEMENT_WISE, work.elements)):
        bound = bound_of_device(measured.device, measured.processor, format)
        if bound is None or measured.detail is None:
            return None
        latencies = measured.detail.latencies
        answered = [((scenario.samples_per_query or 1), latencies.least)]
        if not scenario.samples_per_query:
            answered.append((latencies.number, latencies.most))
        shares += [
            operations * samples / (seconds * bound) if seconds else 2.0 for samples, seconds in answered
        ]
    return max(shares)


def refuse_other_answers(
    log: Log, path: Path, counted: Classified, known: KnownSet, scenario: Scenario
) -> None:
    """Compares the log of answers with the detail log of its test and with the answers that were counted.

    Raises Contradiction.
    """
    log.refuse_repeated()
    try:
        logged = [
            (entry["qsl_idx"], _class(entry["data"]))
            for entry in json.loads(read_text(path, MOST_BYTES), object_pairs_hook=strict.once)
        ]
        answers = dict(logged)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Contradiction(f"{path} is not LoadGen's log of answers: {error}"[:300]) from None
    for text in _answered(log, logged, answers, counted, known, scenario):
        raise Contradiction(f"{path}: {text}")


def _class(data: str) -> int:
    """The class that was answered: a whole number of 64 bits."""
    if len(content := bytes.fromhex(data)) != 8:
        raise ValueError(f"an answer has {len(content)} bytes, not 8")
    return int.from_bytes(content, "little", signed=True)


def _answered(
    log: Log,
    logged: list[tuple[int, int]],
    answers: Mapping[int, int],
    counted: Classified,
    known: KnownSet,
    scenario: Scenario,
) -> Iterator[str]:
    """Contradictions between the answers, what LoadGen asked for, and how many were counted as right."""
    total = known.test_examples
    if set(answers) != set(range(total)):
        yield f"it has answers for {len(answers):,} samples, not for each of {total:,}"
    asked = zip(log.values("generated_query_count"), log.values("generated_samples_per_query"))
    if (queried := sum(queries * samples for queries, samples in asked)) != len(logged):
        yield f"it has {len(logged):,} answers, but LoadGen asked for {queried:,}"
    if len(logged) != len(answers) and scenario.name != "multi-stream":  # its last query is filled up
        yield "it has several answers for one sample"
    loaded = [entry.value for entry in log.entries.get("loaded_qsl_set", [])]
    if not all(isinstance(part, list) for part in loaded) or set(chain(*map(_hashable, loaded))) != set(
        answers
    ):
        yield "it has answers for other samples than LoadGen loaded"
    if outside := [each for each in answers.values() if not 0 <= each < known.classes]:
        yield f"{outside[0]} is not one of {known.classes:,} classes"
    per_class = known.test_examples_per_class[1]
    most = sum(min(count, per_class) for count in Counter(answers.values()).values())
    if counted.correct > most:
        yield f"at most {most:,} of its answers can be right, but {counted.correct:,} were counted"


def _hashable(part: list[Any]) -> Iterable[Any]:
    """The samples of a log; anything else in their place becomes None, which is no sample."""
    return (each if isinstance(each, int) else None for each in part)


def _out_of_order(latencies: Latencies) -> Iterator[str]:
    """Percentiles rise, and leave room for their mean."""
    number, values = latencies.number, [latencies.percentiles[name] for name in PERCENTILES]
    steps = [latencies.least, *values, latencies.most]
    if number < 1 or not all(isfinite(each) and each > 0 for each in steps):
        yield "the latencies are not those of a test"
        return
    if any(one > other for one, other in pairwise(steps)):
        yield "the percentiles of the latency do not rise"
    places = [0, *(int(number * share) for share in PERCENTILES.values()), number]
    widths = [following - place for place, following in pairwise(places)]
    least, most = (sum(width * s for width, s in zip(widths, of)) for of in (steps, steps[1:]))
    room = len(places) * (latencies.most - latencies.least) + NANO * number  # the mean is rounded down
    if not least - room <= number * latencies.mean <= most + room:
        yield "the mean latency does not fit to the percentiles"


def _counts(scenario: Scenario, log: Log, detail: Detail) -> Iterator[str]:
    """Numbers of queries and samples that the scenario does not have."""
    queries, each = detail.queries, log.number("effective_samples_per_query")
    least_samples = 1 if scenario.samples_per_query else OFFLINE_SAMPLES
    if each != (scenario.samples_per_query or each) or each < least_samples:
        yield f"effective_samples_per_query is {each:,}, which {scenario.loadgen} does not have"
    if log.number("generated_samples_per_query") != each:
        yield "generated_samples_per_query is not effective_samples_per_query"
    if not LEAST_QUERIES[scenario.name] <= queries <= log.number("generated_query_count"):
        yield f"result_query_count is {queries:,}, not a number that {scenario.loadgen} can have"
    if scenario.name == "offline" and queries != 1:
        yield f"result_query_count is {queries:,}, but Offline has one query"


def _times(scenario: Scenario, log: Log, detail: Detail) -> Iterator[str]:
    """The test took as long as its queries, and at least as long as it was asked to."""
    latencies, least = detail.latencies, 1e-3 * log.number("effective_min_duration_ms")
    passed = 1e-3 * (log.milliseconds(ENDED) - log.milliseconds(STARTED))
    busy = latencies.most if scenario.name == "offline" else detail.queries * latencies.mean
    lengths = {f"from {STARTED} to {ENDED} {passed:.6g} s passed": passed}
    if scenario.name == "offline":
        lengths[f"the last sample was answered after {latencies.most:.6g} s"] = latencies.most
        if not isclose(detail.samples_per_second * latencies.most, latencies.number, rel_tol=ROUNDED):
            yield "result_samples_per_second is not the number of samples ÷ result_max_latency_ns"
    if scenario.name == "single-stream":
        issued = (detail.queries - 1) / max(detail.samples_per_second, NANO)
        lengths[f"{detail.queries:,} queries at the stated rate take {issued:.6g} s"] = (
            issued + latencies.most
        )
        without = log.number("result_qps_without_loadgen_overhead")
        if not isclose(without * latencies.mean, 1.0, rel_tol=ROUNDED):
            yield "result_qps_without_loadgen_overhead is not 1 ÷ result_mean_latency_ns"
    for text, seconds in lengths.items():
        if seconds < (1 - ROUNDED) * max(least, busy):
            yield f"{text}, but the test takes {max(least, busy):.6g} s"
    if key := ESTIMATES.get(scenario.name):
        percentile = latencies.percentiles[str(scenario.percentile)]
        if not percentile <= NANO * log.number(key) * (1 + ROUNDED) <= latencies.most * (1 + 2 * ROUNDED):
            yield f"{key} is not between the percentile and the longest latency"


def _summarised(scenario: Scenario, log: Log, summary: str) -> Iterator[str]:
    """Contradictions between the summary and the detail log, whose figures it repeats for human readers."""
    if other := OTHER_LETTERS.search(summary):
        yield f"its summary contains {other[0]!a}"
    told = dict(re.findall(r"^ *([^\n:]+?) *: *(.*?) *$", summary, re.MULTILINE))
    times = Counter(_read_as(re.split("[:=]", line)[0]) for line in summary.splitlines())
    per_query = "per_query_" if scenario.name == "multi-stream" else ""
    ends = "query_" if per_query else ""
    wanted = dict([HEADLINES[scenario.name]])
    wanted |= {
        f"{n} percentile latency (ns)": f"result_{n}_percentile_{per_query}latency_ns" for n in PERCENTILES
    }
    wanted |= {f"{n.title()} latency (ns)": f"result_{n}_{ends}latency_ns" for n in ("min", "max", "mean")}
    wanted |= {name: f"effective_{name}" for name in PARAMETERS}
    wanted |= {"min_duration (ms)": "effective_min_duration_ms", "Scenario": "effective_scenario"}
    wanted |= {"Mode": "effective_test_mode", "Result is": "result_validity"}
    if NO_ERRORS not in summary:
        yield "its summary does not say that there were no errors"
    for name, key in wanted.items():
        if times[_read_as(name)] > 1:
            yield f"its summary has {name!r} {times[_read_as(name)]} times"
        if not _same(told.get(name), log.value(key)):
            yield f"{key} is {log.value(key)!r:.40}, but its summary has {told.get(name, 'no value')!r:.40}"


def _read_as(name: str) -> str:
    """The name of a figure as a person reads it."""
    return " ".join(name.casefold().split())


def _same(text: str | None, value: Any) -> bool:
    """Whether the summary shows this value: whole numbers exactly, a rate with six digits."""
    if text is None or isinstance(value, str) or text == str(value):
        return bool(text == str(value))
    if isinstance(value, int) and text.isdecimal():
        return False
    try:
        return isclose(float(text), value, rel_tol=ROUNDED)
    except (ValueError, TypeError, OverflowError):
        return False


def _beyond_stopwatch(latencies: Latencies, own: Latencies | None) -> Iterator[str]:
    """Latencies that are shorter than those that this program measured inside of them."""
    if own is None or own.number != latencies.number:
        yield f"it has {latencies.number:,} latencies, and our stopwatch {own.number if own else 0:,}"
    elif own.mean > (1 + OUTSIDE) * latencies.mean:
        yield (
            f"its mean latency is {latencies.mean:.6g} s, but by our stopwatch, which measures inside of it, "
            f"{own.mean:.6g} s"
        )


def _beyond_bound(scenario: Scenario, measured: Measured, work: LeastWork) -> Iterator[str]:
    """Answers that came faster than the device can compute them."""
    yield from processor_faults(measured.processor) if measured.processor else ()
    share = share_of_bound(scenario, measured, work)
    if share is not None and share > 1:
        yield f"the samples were answered {share:.3g} times as fast as {measured.device} can"
