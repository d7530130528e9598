"""A run next to other machines, as bars.

Only what may be compared is drawn: one task, one class, one set of data, and VALID runs. Results that others
published are counted by other rules, so this run is counted by those rules beside them.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.errors import AiperfError
from aiperf.rules.ending import Answer
from aiperf.wording import rate
from analysis.comparing.comparability import refuse_twice
from analysis.comparing.published import Published
from analysis.pages.figures.bars import bars
from analysis.pages.figures.picture import Picture
from analysis.readings.judgement import Judged, refuse_two_tasks
from analysis.readings.run_tables import devices_and_hosts
from analysis.readings.score_figures import num_devices
from analysis.table import Cell, Table

NAME_SHOWN = 34
"""Most characters of a name next to a bar: longer ones would leave no room for the bars on a telephone."""
COLUMNS = ("machine", "devices", "OPS", "OPS per device")
"""Headings of the table, the same for both figures."""


def beside_others(own: tuple[str, Judged], others: Sequence[tuple[str, Judged]]) -> Picture:
    """Sustained OPS of one machine and of others. Raises AiperfError for runs that make no comparison."""
    _, run = own
    refuse_twice([run, *(other for _, other in others)])
    for _, other in others:
        _refuse(run, other)
    rows = [
        (name or devices_and_hosts(one.replay), num_devices(one.replay), one.score.ops_per_second)
        for name, one in (own, *others)
    ]
    return _picture(
        "beside",
        "Compared with other machines",
        f"Sustained OPS: {'; '.join(f'{name} {rate(ops)}' for name, _, ops in rows)}.",
        rows,
    )


def beside_published(name: str, run: Judged, others: Sequence[Published]) -> Picture | None:
    """Operations per device as AIPerf 1.0 would have counted this run, next to what its authors published.
    None for a run that did not train on images as theirs did. The count is the score's own
    (`aiperf1_ops_per_second`)."""
    data, old = run.replay.opened.config.data, run.score.aiperf1_ops_per_second
    devices = num_devices(run.replay)
    is_alike = (data.channels, data.size, data.classes) == (3, 224, 1000)
    if not (old and devices and is_alike and run.verdict.answer is Answer.VALID):
        return None
    rows = [(name or devices_and_hosts(run.replay), devices, old)]
    rows += [(one.system, one.devices, one.ops_per_second) for one in others]
    says = (
        "OPS per device as AIPerf 1.0 counted, not the score: the published results rest on its count of "
        "operations and its credit for whole epochs, so this run is counted the same way here. Its networks "
        f"and its search differ all the same. Source: {others[0].source}."
    )
    return _picture("published", "Compared with published results", says, rows, per_device=True)


def _picture(
    name: str, title: str, says: str, rows: Sequence[tuple[str, int, float]], per_device: bool = False
) -> Picture:
    """A bar per machine, from its name, its devices and its OPS. `per_device`: the bars are OPS per device;
    the table has both."""
    of_one = [ops / max(1, devices) for _, devices, ops in rows]
    values = of_one if per_device else [ops for _, _, ops in rows]
    cells: list[list[Cell]] = [
        [machine, (f"{devices:,}", devices), (rate(ops), ops), (rate(one), one)]
        for (machine, devices, ops), one in zip(rows, of_one)
    ]
    return bars(
        name,
        title,
        says,
        [_short(machine) for machine, _, _ in rows],
        {"OPS per device" if per_device else "sustained OPS": ("blue", values)},
        rate,
        Table.of(COLUMNS, cells, (False, True, True, True)),
    )


def _short(name: str) -> str:
    """The name as it is written next to a bar; a longer one is cut. The table has whole names."""
    return name if len(name) <= NAME_SHOWN else f"{name[: NAME_SHOWN - 1]}…"


def _refuse(run: Judged, other: Judged) -> None:
    """Refuses runs that cannot be in one figure: it has one task, one class and one set of data, as a list of
    a ranking."""
    refuse_two_tasks(run, other)
    for one in (run, other):
        if one.verdict.answer is not Answer.VALID:
            raise AiperfError(
                f"{one.files.directory} is {one.verdict.answer.value}: {one.verdict.cause}; only VALID runs "
                "are compared"
            )
    for what, mine, its in (
        ("class", *(one.verdict.run_class for one in (run, other))),
        ("data", *(one.replay.opened.config.data.name for one in (run, other))),
    ):
        if mine != its:
            said = [getattr(value, "value", value) for value in (its, mine)]
            raise AiperfError(
                f"{other.files.directory} has the {what} {said[0]} and {run.files.directory} {said[1]}; "
                "such runs are not compared"
            )
