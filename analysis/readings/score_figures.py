"""The figures of a score: the name, the value, the unit and the words of each, for all who print them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from aiperf.journal.mark import Mark, mark_of, marked
from aiperf.journal.replay import Replay
from aiperf.score.score import Score, error_bound
from aiperf.tasks.registry import task_of
from aiperf.tasks.task import Task
from aiperf.wording import clock, counted, figure, hundredths, percent, rate, rates, scaled
from analysis.readings.fabric import coupled_reading
from analysis.readings.hosts import control_reading
from analysis.table import Cell
from nas.frozen import frozen

TERMS: Mapping[str, str] = {
    "ops_per_second": "Credited operations over the whole span, idle time included. In the stable window "
    "at least 95 % of the groups work.",
    "tensor_ops_per_second": "What data sheets state: two operations for each multiply-accumulate.",
    "raw_ops_per_second": "All operations that were done, over the span.",
    "regulated_score": "Sustained OPS, weighted by how well the best network has learnt.",
    "mfu": "How much of the hardware is used: tensor OPS over the dense peak of the data sheet.",
    "span_seconds": "Of all legs together; a leg lasts from a start, or a resumption, to the next stop.",
    "devices": "Ranks that train.",
    "ops_per_second_per_device": "Sustained OPS over the number of devices.",
    "validation_error": "Lowest so far.",
    "error": "Of the best network; test examples are used once, after the span.",
    "control_examples_per_second": "A fixed network, trained before the span: no search changes it.",
    "coupled_share": "The rate of the control with gradients averaged over all devices, over the sum of the "
    "rates that each has by itself.",
    "goodput": "Uncredited work was cut off or lost.",
    "ops_per_joule": "Sustained OPS per watt of electric power. What that includes is shown next to it: "
    "devices only (level L0), nodes (L1), or nodes, network and storage (L2). Levels are not compared.",
    "aiperf1_ops_per_second": "What the program of 2021 would count: other operations, whole epochs only.",
}
"""What each figure is, in a sentence or two that are true of every run; by key."""


EXPLAINED = (
    ("sustained OPS", TERMS["ops_per_second"]),
    ("regulated score", TERMS["regulated_score"]),
    ("MFU", TERMS["mfu"]),
    ("OPS/W", TERMS["ops_per_joule"]),
    ("control", TERMS["control_examples_per_second"]),
    ("coupled", TERMS["coupled_share"]),
)
"""Names and explanations for pages that show these figures in the heads of a table."""


LEAST_CHANGE = 1e-7
"""A smaller change comes from sums that were rounded otherwise, and is shown as 0.00."""


@frozen
class Unit:
    """How a value is written, and how far two are apart."""

    text: Callable[[float], str]
    is_share: bool = False
    """The difference of two shares is stated in percentage points, any other in per cent of the first."""

    def change(self, first: float | None, second: float | None) -> str:
        """From the first to the second; empty where one is not known."""
        if first is None or second is None or not (first or self.is_share):
            return ""
        change, unit = (second - first, "points") if self.is_share else (second / first - 1, "%")
        if abs(change) < LEAST_CHANGE:
            return f"0.00 {unit}"
        return f"{'−' if change < 0 else '+'}{hundredths(abs(change))} {unit}"


COUNT = Unit("{:,.0f}".format)
ERROR = Unit(percent, is_share=True)
PER_JOULE = Unit(partial(scaled, unit="OPS/W"))
RATE = Unit(rate)
OF_UNCOUPLED = Unit("{:.2f} of uncoupled".format, is_share=True)
SECONDS = Unit(clock)
SHARE = Unit(partial(percent, digits=1), is_share=True)


@frozen
class Figure:
    """One number of a run."""

    name: str
    """What it is called in tables."""
    value: float | None
    """The value in basic units: OPS, seconds, a share; None if it is not known."""
    unit: Unit
    """How the value is written."""
    aside: str = ""
    """What it rests on, in a few words."""
    unknown: str = "unknown"
    """Text that is shown if there is no value."""
    help: str = ""
    """Explanation of the figure, from `TERMS`."""
    mark: Mark | None = None
    """Mark of a run that was not measured; None of a measured one."""

    @property
    def label(self) -> str:
        """The name, with the mark where there is one."""
        return marked(self.name, self.mark)

    @property
    def text(self) -> str:
        """The value with its unit."""
        return self.unknown if self.value is None else self.unit.text(self.value)

    @property
    def cell(self) -> Cell:
        """A cell that is sorted by the value."""
        return self.text, self.value

    @property
    def line(self) -> str:
        """The value with what it rests on."""
        return f"{self.text} ({self.aside})" if self.aside else self.text


def figures(replay: Replay, score: Score) -> Mapping[str, Figure]:
    """The figures by key, which is their name in JSON and CSV."""
    mark = mark_of(replay.opened.origin)
    return {key: replace(one, mark=mark, help=TERMS[key]) for key, one in _figures(replay, score).items()}


def _figures(replay: Replay, score: Score) -> Mapping[str, Figure]:
    """The figures without marks and explanations."""
    devices, task = num_devices(replay), task_of_run(replay)
    return {
        "ops_per_second": Figure("sustained OPS", score.ops_per_second, RATE, _stable(score)),
        "tensor_ops_per_second": Figure(
            "tensor OPS", score.tensor_ops_per_second, RATE, f"multiply-accumulates of {task.products}"
        ),
        "raw_ops_per_second": Figure("raw OPS", score.raw_ops_per_second, RATE),
        "regulated_score": _regulated(replay, score),
        "mfu": _mfu(score),
        "span_seconds": Figure("span", score.span_seconds, SECONDS),
        "devices": Figure("devices", devices, COUNT),
        "ops_per_second_per_device": Figure(
            "OPS per device",
            score.ops_per_second / devices if devices else None,
            RATE,
            counted(devices, "device") if devices else "no rank was ready",
        ),
        **_errors(score, task),
        "control_examples_per_second": _control(replay, score),
        "coupled_share": _coupled(replay),
        "goodput": Figure(
            "goodput",
            score.goodput.operations / score.raw.operations if score.raw.operations else None,
            SHARE,
            "of the operations done were credited; "
            f"{score.goodput.trained_examples:,} training {task.example}s",
            "none",
        ),
        "aiperf1_ops_per_second": Figure(
            "as AIPerf 1.0 counted",
            score.aiperf1_ops_per_second,
            RATE,
            "the same run by the rules of 2021; not a score"
            if task.in_aiperf1
            else "AIPerf 1.0 trained on images only",
        ),
    }


def task_of_run(replay: Replay) -> Task:
    """What the run learned."""
    return task_of(replay.opened.config.data)


def num_devices(replay: Replay) -> int:
    """Ranks of the run; each has one device."""
    return max((len(leg.devices) for leg in replay.counted_legs), default=0)


def _stable(score: Score) -> str:
    """The span, and the rate in its stable window, with the interval."""
    line, over = score.timeline, f"over {clock(score.span_seconds)}"
    if line.stable_interval is None or line.stable_ops_per_second is None:
        return f"{over}; no stable window"
    stable = f"in the stable window {rate(line.stable_ops_per_second)}"
    return f"{over}; {stable}, 95 % interval {rates(*line.stable_interval)}"


def _regulated(replay: Replay, score: Score) -> Figure:
    """With the formula, so that no reader takes it for a rate of the hardware."""
    aside = "−ln(test error) × sustained OPS"
    if score.regulated_score is None:
        aside = "no network was tested"
    elif score.quality and (bound := error_bound(replay, score.quality)):
        aside += f"; no test example was wrong, so {bound.floor_text} = {bound.floor:.6g} is the error here"
    return Figure("regulated score", score.regulated_score, RATE, aside, "none")


def _mfu(score: Score) -> Figure:
    """Its peak is that of a data sheet, so it is unknown for a device that is not listed."""
    peak = score.peak_ops_per_second
    aside = "no listed peak for this device" if score.span_seconds > 0 else "nothing was timed"
    if peak is not None:
        aside = f"of {rate(peak)} dense peak"
    return Figure("MFU", score.mfu, SHARE, aside)


def _errors(score: Score, task: Task) -> Mapping[str, Figure]:
    """The errors of the network that was best on validation; the search chose by that error, so only the test
    error is a result."""
    quality, unknown, aside = score.quality, "none", "no trial was validated"
    if quality is not None:
        unknown = "not tested"
        aside = f"{task.error_text(quality.validation_error)} on validation, trial {quality.trial}"
        if quality.test is not None:
            aside = f"{quality.test.text()}; {aside}"
    validation, test = (quality.validation_error, quality.error) if quality else (None, None)
    return {
        "validation_error": Figure("validation error", validation, ERROR, unknown="none"),
        "error": Figure("test error", test, ERROR, aside, unknown),
    }


def _control(replay: Replay, score: Score) -> Figure:
    """The control in the task's unit of rates."""
    name, control, task = "control", control_reading(replay), task_of_run(replay)
    unit = Unit(lambda value: f"{figure(value)} {task.amount.name}/s")
    if control is None:
        return Figure(name, None, unit, f"{task.control.name}, before the span", "not measured")
    aside = control.network
    if score.control is not None and score.control.devices > 1:
        aside += f"; slowest {control.slowest:.4g} on {control.slowest_host}"
    return Figure(name, control.per_second, unit, aside)


def _coupled(replay: Replay) -> Figure:
    """The share of the coupled control; without one there is nothing to say of it."""
    found = coupled_reading(replay)
    if found is None:
        return Figure("coupled", None, OF_UNCOUPLED, "several ranks, before the span", unknown="not measured")
    return Figure("coupled", found.share, OF_UNCOUPLED, found.aside)
