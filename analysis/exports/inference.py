"""What `infer` found on a network of a run, and its words: lines for a terminal, a table for a page.

It is kept next to the journal, one file per trial and scenario.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from aiperf.errors import AiperfError
from aiperf.journal import strict
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.scenarios.detail_log import Detail
from aiperf.scenarios.exchange import TELEMETRY, Accuracy, Measured
from aiperf.scenarios.latencies import Latencies
from aiperf.scenarios.scenario import RULE_SECONDS, SCENARIOS, Scenario
from aiperf.tasks.registry import task_of
from aiperf.wording import clock, counted, figure, percent, rate, scaled
from analysis.readings.limits import limits_of
from analysis.readings.usage import use_over
from analysis.table import Table
from launch.price import Price
from nas.bounded import read_bytes
from nas.frozen import frozen
from nas.record import RecordError, decode, encode

FORM = "aiperf-hpc/inference/1"
"""Name and version of the form of the files."""
SINGLE, MULTI = "single-stream", "multi-stream"
"""Names of two scenarios, as LoadGen spells them."""
DAWNBENCH_IMAGES = 10_000
"""Number of images for which DAWNBench states latency and cost (Coleman et al., 2017)."""
WIDTH = 24
"""Columns of a line's name."""
MOST_DIFFERENCE = 0.05
"""Largest relative difference between LoadGen's latencies and those of our own stopwatch."""
COLUMNS = (
    *("trial", "scenario", "LoadGen's verdict", "figure", "samples/s"),
    *("accuracy against the journal", "J/sample", "of the ceiling"),
)
"""Headings of `inference_table`."""


@frozen
class Inference:
    """One network in one scenario."""

    run_id: str
    begin_chain: str
    """Hash of the line that began the run's first leg: it tells the run from all others."""
    trial: int
    """Number of the trial whose network was measured."""
    example: str
    """What a sample is: "image", or "window" of a text."""
    scenario: str
    """Name of the scenario, such as server."""
    measured: Measured
    """What the process that ran LoadGen answered."""
    joules: float | None
    """Energy of the device over the test; None: not known."""
    ceiling_ops_per_second: float | None
    """Ceiling of matrix products that the run measured on such a device in this format; None if it did
    not."""
    form: str = FORM

    @property
    def of(self) -> Scenario:
        """The scenario with its rules."""
        return SCENARIOS[self.scenario]

    @property
    def is_short(self) -> bool:
        """Whether the test was shorter than MLPerf's rules require: its percentiles are then rough."""
        return self.measured.test_seconds < RULE_SECONDS

    @property
    def latency_seconds(self) -> float | None:
        """The percentile that the scenario is about, by LoadGen."""
        detail, percentile = self.measured.detail, self.of.percentile
        return detail.latencies.percentiles[percentile] if detail and percentile else None

    @property
    def joules_per_sample(self) -> float | None:
        """Joules of the device per sample; a query of `multi-stream` has several. None if the energy is not
        known."""
        detail = self.measured.detail
        if detail is None or self.joules is None:
            return None
        samples = detail.latencies.number * (self.of.samples_per_query if self.scenario == MULTI else 1)
        return self.joules / samples

    @property
    def share_of_ceiling(self) -> float | None:
        """Tensor operations of the answered samples per second, as a share of the ceiling; None if
        unknown."""
        detail, ceiling = self.measured.detail, self.ceiling_ops_per_second
        if detail is None or ceiling is None:
            return None
        return detail.samples_per_second * self.measured.tensor_ops / ceiling

    @property
    def dawnbench_seconds(self) -> float | None:
        """Seconds for DAWNBench's 10,000 images, one at a time; None without the accuracy pass of
        `single-stream`."""
        accuracy = self.measured.accuracy
        if accuracy is None or self.scenario != SINGLE:
            return None
        return DAWNBENCH_IMAGES * accuracy.latencies.mean

    def dawnbench_cost(self, price: Price) -> float | None:
        """Cost of those images on one node that does nothing else; None if their time is not known."""
        seconds = self.dawnbench_seconds
        return None if seconds is None else price.money(seconds / 3600)


def found(files: RunFiles, replay: Replay, trial: int, scenario: str, measured: Measured) -> Inference:
    """The measurement with the energy that the sensors recorded and the ceiling that the run measured."""
    # The ceiling is the run's, so it only counts for a device of the same name in the same format.
    file, limits = files.inference_logs(trial, scenario) / TELEMETRY, limits_of(replay)
    alike = limits is not None and (limits.device, limits.format) == (measured.device, measured.format)
    return Inference(
        run_id=replay.opened.run_id,
        begin_chain=replay.begin_chain,
        trial=trial,
        example=task_of(replay.opened.config.data).example,
        scenario=scenario,
        measured=measured,
        joules=use_over(file, measured.device_id, measured.span).joules if measured.device_id else None,
        ceiling_ops_per_second=limits.ops_per_second if limits is not None and alike else None,
    )


def save(files: RunFiles, inference: Inference) -> None:
    """Raises OSError where the directory cannot be written."""
    text = json.dumps(encode(inference), indent=1) + "\n"
    path = files.inference(inference.trial, inference.scenario)
    new = path.with_suffix(".new")  # an earlier one stays whole, should the disk be full
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def load_all(files: RunFiles, replay: Replay) -> list[Inference]:
    """The results on networks of this run, by trial and in the order of the scenarios.

    Raises AiperfError for a file that is damaged, or of another run. The files are not part of the journal,
    so anybody may have changed them.
    """
    loaded = []
    for path in files.inference_directory.glob("*.json"):
        try:
            inference = decode(Inference, strict.parsed(read_bytes(path)))
        except (OSError, ValueError, RecordError, RecursionError) as error:
            raise AiperfError(f"{path} is not an output of `infer` ({error}); remove it") from None
        if inference.begin_chain != replay.begin_chain or inference.scenario not in SCENARIOS:
            raise AiperfError(f"{path} is of another run; remove it")
        loaded.append(inference)
    # The order of a folder's files is that of the file system.
    order = list(SCENARIOS)
    return sorted(loaded, key=lambda each: (each.trial, order.index(each.scenario)))


def inference_text(inference: Inference, price: Price | None = None) -> str:
    """One scenario on a few lines; with a price what DAWNBench's 10,000 images cost, where it is known. The
    price is that of a node-hour."""
    lines = [(inference.scenario, _verdict_text(inference)), *_lines(inference)]
    # Only of `single-stream` with its accuracy pass is the time of DAWNBench's images known.
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
    """The verdict for a cell of a table."""
    detail, seconds = inference.measured.detail, inference.measured.test_seconds
    short = f", short ({seconds:g} s)" if inference.is_short else ""
    return f"{_word(detail) if detail else 'no rate within the bound'}{short}"


def _word(detail: Detail) -> str:
    """LoadGen's verdict in one word."""
    return "VALID" if detail.valid else "INVALID"


def _lines(inference: Inference) -> Iterator[tuple[str, str]]:
    """Names and texts of the lines below the verdict; none if no rate was found within the bound of
    latency."""
    measured, detail, example = inference.measured, inference.measured.detail, inference.example
    if detail is None or measured.stopwatch is None:
        return
    yield "figure", _figure_text(inference)
    if inference.scenario == "server":
        yield "bound", f"99 % of queries within {_seconds(measured.latency_seconds)}"
    yield "latencies", _distribution(detail.latencies)
    if detail.early_stopping_percentile is not None:
        yield "early stopping", f"{_seconds(detail.early_stopping_percentile)} with a confidence of 99 %"
    yield "by our stopwatch", _stopwatch_text(inference, detail.latencies, measured.stopwatch)
    queries = f"{detail.queries:,} quer{'y' if detail.queries == 1 else 'ies'}"
    yield "throughput", f"{figure(detail.samples_per_second)} {example}s/s in {queries}"
    yield "of the ceiling", _ceiling_text(inference)
    yield "energy", _energy_text(inference)
    if measured.accuracy is not None:
        yield "accuracy", _accuracy_text(measured.accuracy)
        if inference.dawnbench_seconds is not None:
            yield "one at a time", _one_at_a_time(measured.accuracy, inference.dawnbench_seconds, example)
    threads = f", {counted(measured.threads, 'thread')}" if measured.threads else ""
    yield "device", f"{measured.device}, {measured.format}{threads}"


def _figure_text(inference: Inference) -> str:
    """The figure that the scenario is about: a latency, a rate, or for `server` both."""
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
    """The latencies by LoadGen."""
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


def _ceiling_text(inference: Inference) -> str:
    """How much of the ceiling the samples used; only the tensor operations are compared, as the ceiling is of
    those."""
    share, ceiling = inference.share_of_ceiling, inference.ceiling_ops_per_second
    if share is None or ceiling is None:
        return "unknown (the run measured no such device in this format)"
    return f"{percent(share, 1)} of {rate(ceiling)}, the fastest work that the run saw; tensor operations"


def _energy_text(inference: Inference) -> str:
    """The energy of a sample, and that of the whole test."""
    if not inference.measured.device_id:
        return "unknown (no supported energy sensor)"
    if inference.joules is None or inference.joules_per_sample is None:
        return "unknown (its power is not known over the whole test)"
    each = f"{inference.joules_per_sample:.4g} J/{inference.example}"
    return f"{each}; {scaled(inference.joules, 'J')}, the device only"


def _accuracy_text(accuracy: Accuracy) -> str:
    """The accuracy of all test examples, and the journal's if it is another."""
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
    """Milliseconds below one second, four digits."""
    return f"{1000 * seconds:.4g} ms" if seconds < 1 else f"{seconds:.4g} s"
