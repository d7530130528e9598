"""What `infer` found, in words: lines for a terminal, a table for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aiperf.scenarios.detail_log import Detail
from aiperf.scenarios.exchange import Accuracy
from aiperf.scenarios.latencies import Latencies
from aiperf.scenarios.scenario import RULE_SECONDS
from aiperf.wording import clock, figure, percent, rate, scaled
from analysis.exports.inference import DAWNBENCH_IMAGES, Inference
from analysis.table import Table
from launch.price import Price

WIDTH = 24
MOST_DIFFERENCE = 0.05
"""Largest relative difference between LoadGen's latencies and those of our own stopwatch."""
COLUMNS = (
    *("trial", "scenario", "LoadGen's verdict", "figure", "samples/s"),
    *("accuracy against the journal", "J/sample", "of the ceiling"),
)


def inference_text(inference: Inference, price: Price | None = None) -> str:
    """One scenario on a few lines; with a price what DAWNBench's 10,000 images cost, where it is known."""
    lines = [(inference.scenario, _verdict_text(inference)), *_lines(inference)]
    money = None if price is None else inference.dawnbench_cost(price)
    if price is not None and money is not None:
        amount = f"{figure(money)} {price.currency}".rstrip()
        each = f"{DAWNBENCH_IMAGES:,} {inference.example}s one at a time on one node"
        lines.append(("cost", f"{amount} for {each}, at {price}"))
    return "\n".join(f"{name:<{WIDTH}}{text}" for name, text in lines)


def inference_table(found: Sequence[Inference]) -> Table:
    """A row for each scenario of a trial."""
    rows = [
        [
            str(each.trial),
            each.scenario,
            _short_verdict(each),
            _figure_text(each),
            figure(each.measured.detail.samples_per_second) if each.measured.detail else "unknown",
            _against_journal(each.measured.accuracy) if each.measured.accuracy else "not measured",
            "unknown" if each.joules_per_sample is None else f"{each.joules_per_sample:.4g}",
            percent(each.share_of_ceiling, 1),
        ]
        for each in found
    ]
    return Table(COLUMNS, rows, (True, False, False, False, True, False, True, True))


def _verdict_text(inference: Inference) -> str:
    """LoadGen's own verdict, and whether the test was as long as MLPerf asks."""
    measured, detail = inference.measured, inference.measured.detail
    if detail is None:
        return measured.nothing
    length = f"{measured.test_seconds:g} s of the {RULE_SECONDS:g} s that MLPerf asks for"
    short = f", short: {length}" if inference.is_short else ""
    why = f"; {detail.reason}" if detail.reason else ""
    return f"{_word(detail)} by LoadGen {detail.version}{short}{why}"


def _short_verdict(inference: Inference) -> str:
    detail, seconds = inference.measured.detail, inference.measured.test_seconds
    short = f", short ({seconds:g} s)" if inference.is_short else ""
    return f"{_word(detail) if detail else 'no rate within the bound'}{short}"


def _word(detail: Detail) -> str:
    return "VALID" if detail.valid else "INVALID"


def _lines(inference: Inference) -> Iterator[tuple[str, str]]:
    measured, detail, example = inference.measured, inference.measured.detail, inference.example
    if detail is None or measured.stopwatch is None:
        return
    yield "figure", _figure_text(inference)
    if inference.scenario == "server":
        yield "bound", f"99 % of queries within {_seconds(measured.latency_seconds)}"
    yield "latencies", _distribution(detail.latencies)
    if detail.early_stopping_percentile is not None:
        text = f"{_seconds(detail.early_stopping_percentile)} with a confidence of 99 %"
        yield "early stopping", text
    yield "by our stopwatch", _stopwatch_text(inference, detail.latencies, measured.stopwatch)
    yield "throughput", f"{figure(detail.samples_per_second)} {example}s/s in {_queries(detail.queries)}"
    yield "of the ceiling", _ceiling_text(inference)
    yield "energy", _energy_text(inference)
    if measured.accuracy is not None:
        yield "accuracy", _accuracy_text(measured.accuracy)
        if inference.dawnbench_seconds is not None:
            yield "one at a time", _one_at_a_time(measured.accuracy, inference.dawnbench_seconds, example)
    threads = f", {measured.threads} thread{'' if measured.threads == 1 else 's'}" if measured.threads else ""
    yield "device", f"{measured.device}, {measured.format}{threads}"


def _figure_text(inference: Inference) -> str:
    detail, of = inference.measured.detail, inference.of
    if detail is None:
        return "none"
    if of.percentile is None:
        return f"{figure(detail.samples_per_second)} {inference.example}s/s"
    latency = f"{_seconds(detail.latencies.percentiles[of.percentile])} ({of.percentile[:2]}th percentile)"
    if inference.scenario == "server":
        asked = figure(inference.measured.queries_per_second or 0.0)
        how = "the highest rate found" if inference.measured.probes else "the rate asked for"
        return f"{asked} queries/s, {how}; {latency}"
    return latency


def _distribution(latencies: Latencies) -> str:
    found = latencies.percentiles
    shown = ", ".join(f"{name[:2]}th {_seconds(found[name])}" for name in ("50.00", "90.00", "99.00"))
    ends = f"{_seconds(latencies.least)} to {_seconds(latencies.most)}"
    return f"mean {_seconds(latencies.mean)}, percentiles {shown}; {ends}"


def _stopwatch_text(inference: Inference, loadgen: Latencies, own: Latencies) -> str:
    """The figure's percentile by both, or the mean where the scenario has none."""
    name = inference.of.percentile
    ours, theirs = (own.percentiles[name], loadgen.percentiles[name]) if name else (own.mean, loadgen.mean)
    difference = ours / theirs - 1 if theirs else 0.0
    what = f"{name[:2]}th percentile" if name else "mean"
    says = "agrees" if abs(difference) <= MOST_DIFFERENCE else "DISAGREES"
    change = f"{100 * difference:+.2f} %".replace("-", "−")
    return f"{what} {_seconds(ours)} from issue to completion, {change} of LoadGen's: {says}"


def _queries(number: int) -> str:
    return f"{number:,} quer{'y' if number == 1 else 'ies'}"


def _ceiling_text(inference: Inference) -> str:
    share, ceiling = inference.share_of_ceiling, inference.ceiling_ops_per_second
    if share is None or ceiling is None:
        return "unknown (the run measured no such device in this format)"
    return f"{percent(share, 1)} of {rate(ceiling)}, the fastest work that the run saw; tensor operations"


def _energy_text(inference: Inference) -> str:
    if not inference.measured.device_id:
        return "unknown (no supported energy sensor)"
    if inference.joules is None or inference.joules_per_sample is None:
        return "unknown (its power is not known over the whole test)"
    each = f"{inference.joules_per_sample:.4g} J/{inference.example}"
    return f"{each}; {scaled(inference.joules, 'J')}, the device only"


def _accuracy_text(accuracy: Accuracy) -> str:
    recorded = f", {accuracy.recorded.text()}" if accuracy.recorded not in (None, accuracy.found) else ""
    return f"{accuracy.found.text()} in the test part; {_against_journal(accuracy)}{recorded}"


def _against_journal(accuracy: Accuracy) -> str:
    """A device, a thread count or another number of samples at once adds in another order."""
    if accuracy.recorded is None:
        return "not tested in the journal"
    if accuracy.found == accuracy.recorded:
        return "equal to the journal's"
    return f"{'agrees with' if accuracy.found.agrees(accuracy.recorded) else 'DIFFERS from'} the journal's"


def _one_at_a_time(accuracy: Accuracy, seconds: float, example: str) -> str:
    """DAWNBench's latency: the mean of all test examples, and of 10,000 of them the time."""
    known = "" if accuracy.latencies.number >= DAWNBENCH_IMAGES else f", from {accuracy.latencies.number:,}"
    each = _seconds(accuracy.latencies.mean)
    return f"{each} per {example}; {DAWNBENCH_IMAGES:,} take {clock(seconds)}{known}"


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.4g} ms" if seconds < 1 else f"{seconds:.4g} s"
