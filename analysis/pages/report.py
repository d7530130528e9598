"""The report of one run: a page that stands alone, and its figures as files.

Its order is that of a reader's questions: is it good and can it be trusted (the head), how did it go
(throughput, quality, search), where did the time go, what is it worth (rules), on what was it measured.
Nothing is computed here: every number comes from `analysis.readings` or from the score, whose words the
terminal has too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from aiperf.config import preset_names
from aiperf.errors import AiperfError, JournalError
from aiperf.journal.events import Origin
from aiperf.os_error import unwritable
from aiperf.rules.ending import Answer
from aiperf.score.lineage import line_of_graphs
from aiperf.wording import duration, moment
from analysis.comparing.characteristics import control_cost, trained
from analysis.comparing.published import published
from analysis.exports.inference import inference_table, load_all
from analysis.exports.trial_table import trial_table, trial_tip, trials_text
from analysis.pages.figures.architecture import architecture_picture
from analysis.pages.figures.characterisation import characterisation
from analysis.pages.figures.layers import operations_by_layer
from analysis.pages.figures.lineage import lineage
from analysis.pages.figures.occupancy import gantt, time_shares
from analysis.pages.figures.other_machines import beside_others, beside_published
from analysis.pages.figures.pareto import pareto
from analysis.pages.figures.picture import Picture, stamped
from analysis.pages.figures.progress import error_over_time, regulated_over_time, throughput
from analysis.pages.figures.svg import write_files
from analysis.pages.figures.telemetry import telemetry
from analysis.pages.figures.trial_dots import TRIALS_SHOWN, names_of
from analysis.pages.page import Drawn, drawn, page
from analysis.pages.report_head import NOTHING_MORE, About, head
from analysis.readings import run_tables
from analysis.readings.architecture import architecture
from analysis.readings.conclusion import losses_text
from analysis.readings.device_checks import device_check_text
from analysis.readings.devices import (
    DeviceReadings,
    choice_text,
    device_table,
    energy_rows,
    look,
    roofline_share_text,
    slow_text,
    threads_text,
)
from analysis.readings.disturbance import others_over_time
from analysis.readings.fabric import fabric_text
from analysis.readings.hosts import hosts
from analysis.readings.judgement import Judged
from analysis.readings.occupancy import occupancy
from analysis.readings.progress import progress
from analysis.readings.run_tables import engines_text
from analysis.readings.score_figures import task_of_run
from analysis.readings.telemetry import read_telemetry
from analysis.readings.trial_rows import TrialRow, line_of_descent, median_error, most_telling, rows
from analysis.table import Table
from nas.frozen import frozen
from nas.ops import OPS, TENSOR_OPS, Ops

FIRST = "throughput-section"
"""The section on the first screen."""


@frozen
class Section:
    """A part of the page with a heading: a table of facts, figures, and tables that a reader opens."""

    anchor: str
    """Its id in the page, to which the navigation links."""
    title: str
    drawn: Sequence[Drawn]
    facts: Table | None = None
    tables: Sequence[tuple[str, Table]] = ()
    """Tables with their captions."""


def report_html(judged: Judged, about: About = NOTHING_MORE) -> str:
    """The whole page. Raises AiperfError where it is to be compared with runs that cannot be."""
    replay = judged.replay
    opened, devices = replay.opened, look(judged.files, replay)
    found, task = rows(replay, judged.recount.counts), task_of_run(replay)
    shown = most_telling(found, TRIALS_SHOWN)
    sections = _sections(judged, found, shown, devices)
    started = moment(replay.legs[0].began.started) if replay.legs else "not started"
    if opened.origin is Origin.SIMULATED:  # its clock begins at a moment of no meaning
        started = "on a virtual clock"
    return page(
        "report.html",
        judged.verdict.mark,
        about=about,
        head=head(judged, about, devices),
        subtitle=f"{run_tables.devices_text(replay)} · {opened.config.training.format} · {started} · "
        f"{duration(replay.span_seconds)}",
        # Next to the score, on the first screen; without figures for a run that has no result.
        first=next((one for one in sections if one.anchor == FIRST), Section(FIRST, "", [])),
        sections=[*_beside(judged, about), *(one for one in sections if one.anchor != FIRST)],
        rules_text=_rules_text(judged),
        rules=run_tables.rules(judged.verdict),
        machine=run_tables.machine(replay),
        hosts=hosts(replay),
        changes=run_tables.changes(opened.config),
        configuration=run_tables.configuration(opened.config),
        configuration_text=_configuration_text(judged),
        trials=trial_table(task, shown),
        trials_text=trials_text(judged.score, found, shown),
        tips={row.number: trial_tip(task, row) for row in _hovered(found, shown)},
        footer=_footer(judged),
    )


def write_figures(judged: Judged, folder: Path) -> list[Path]:
    """Each figure as NAME.svg and NAME.png. Raises AiperfError where they cannot be written. They are
    the pictures of the page, at the width of a desk."""
    found = rows(judged.replay, judged.recount.counts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [path for _, picture in pictures(judged, found) for path in write_files(picture, folder)]
    except OSError as error:
        raise AiperfError(unwritable(error, error.filename or folder)) from None


def pictures(judged: Judged, found: Sequence[TrialRow]) -> Iterator[tuple[str, Picture]]:
    """Every figure that there is, with the anchor of its section."""
    for anchor, picture in _pictures(judged, found):
        yield anchor, stamped(picture, judged.verdict.mark)


def _pictures(judged: Judged, found: Sequence[TrialRow]) -> Iterator[tuple[str, Picture]]:
    """The figures without the mark of a run that was not measured, each with the anchor of its section. What
    one part of them is drawn from is let go before the next: of a long run, it is much."""
    if judged.verdict.answer is not Answer.NO_RESULT:  # its figures would be of nothing
        yield from _over_time(judged)
    yield from _of_the_search(judged, found)
    yield from _of_the_groups(judged)
    measured = read_telemetry(judged.files, judged.replay)
    if measured is not None:
        yield "telemetry-section", telemetry(measured)
    yield from _of_the_best_network(judged)


def _over_time(judged: Judged) -> Iterator[tuple[str, Picture]]:
    score, so_far = judged.score, progress(judged.replay, judged.score)
    yield FIRST, throughput(score, others_over_time(judged.replay))
    yield "quality", error_over_time(so_far, score)
    yield "quality", regulated_over_time(so_far, score)


def _of_the_search(judged: Judged, found: Sequence[TrialRow]) -> Iterator[tuple[str, Picture]]:
    replay = judged.replay
    best = replay.best  # None if no trial was validated: then what is about a best network is left out
    shown = most_telling(found, TRIALS_SHOWN)
    yield "search", lineage(shown, len(found), best.number if best else None, replay.span_seconds)
    task, error = task_of_run(replay), median_error(found)
    by_number = {row.number: row for row in found}
    names = names_of(line_of_descent(by_number, best.number)) if best else {}
    pointed_at = {row.number for row in _hovered(found, shown)}
    yield "search", pareto(found, task, names, pointed_at)
    placed = trained([("", found)], error or 0.0)
    why, control = ", the median of the trials' lowest errors", control_cost(replay)
    yield "search", characterisation(placed, error, task, control, why, names)


def _of_the_groups(judged: Judged) -> Iterator[tuple[str, Picture]]:
    busy = occupancy(judged.replay, judged.credit)
    yield "time-section", gantt(busy)
    yield "time-section", time_shares(busy)


def _of_the_best_network(judged: Judged) -> Iterator[tuple[str, Picture]]:
    best = judged.replay.best
    if best is None:
        return
    try:
        line = line_of_graphs(judged.replay, best.number)
    except JournalError:  # the rule "operations" says so
        return
    yield "architecture-section", architecture_picture(architecture(line), best.number)
    yield "operations", operations_by_layer(line[-1][1], judged.layers)


def _beside(judged: Judged, about: About) -> list[Section]:
    """Other machines, where any are known that this one may be compared with. The figure of published results
    is only for tasks that AIPerf 1.0 had."""
    found = [beside_others((about.system, judged), about.others)] if about.others else []
    if task_of_run(judged.replay).in_aiperf1 and (
        old := beside_published(about.system, judged, published(judged))
    ):
        found.append(old)
    return [Section("others", "Other machines", [drawn(one) for one in found])] if found else []


def _sections(
    judged: Judged, found: Sequence[TrialRow], shown: Sequence[TrialRow], devices: DeviceReadings
) -> list[Section]:
    """The sections in the order of the page, each with its figures; a section without figures is left out.
    `found` are all trials, `shown` those with lines to their ancestors."""
    parents = {row.number: row.parent for row in shown}
    by_section: dict[str, list[Drawn]] = {}
    for anchor, picture in pictures(judged, found):
        by_section.setdefault(anchor, []).append(drawn(picture, parents))
    titles = {
        FIRST: "Throughput",
        "quality": "Quality",
        "search": "Search",
        "architecture-section": "Architecture",
        "time-section": "Time",
        "operations": "Operations",
        "telemetry-section": "Telemetry",
    }
    return [
        Section(
            anchor,
            title,
            by_section[anchor],
            tables=[("Operations of the run by kind", _kinds(judged))] if anchor == "operations" else [],
        )
        for anchor, title in titles.items()
        if anchor in by_section
    ] + [_devices(judged, devices), *_inference(judged)]


def _devices(judged: Judged, devices: DeviceReadings) -> Section:
    """Limits, energy, who was slow and who was lost."""
    replay, score = judged.replay, judged.score
    rows = [
        ("matrix products", threads_text(replay)),
        ("threads", choice_text(replay)),
        ("roofline", roofline_share_text(replay)),
        *energy_rows(devices.energy, score),
        *(("device check", text) for text in device_check_text(replay) if not judged.verdict.mark),
        *(("slow", text) for text in slow_text(devices.slow, replay)),
        *zip(("steps", *[""] * len(replay.trials)), engines_text(replay)),
        *(("lost", text) for text in losses_text(replay)),
        *(("fabric", text) for text in fabric_text(replay)),
    ]
    facts = Table(("", ""), [row for row in rows if row[1]], (False, False))
    tables = [("Devices over the span", device_table(devices.usage))] if devices.usage.devices else []
    return Section("devices", "Devices", [], facts=facts, tables=tables)


def _inference(judged: Judged) -> list[Section]:
    """The section on inference, if `infer` measured a network of the run."""
    kept = load_all(judged.files, judged.replay)
    return [Section("inference", "Inference", [], facts=inference_table(kept))] if kept else []


def _kinds(judged: Judged) -> Table:
    """Goodput and raw work, kind by kind."""
    good, raw = judged.score.goodput.kinds, judged.score.raw.kinds
    rows = [
        [name, str(price), str(tensor), f"{a:,}", f"{b:,}"]
        for name, price, tensor, a, b in zip(Ops._fields, OPS, TENSOR_OPS, good, raw)
    ]
    rows.append(["OPS", "", "", f"{good.price(OPS):,}", f"{raw.price(OPS):,}"])
    rows.append(["tensor OPS", "", "", f"{good.price(TENSOR_OPS):,}", f"{raw.price(TENSOR_OPS):,}"])
    return Table(
        ("kind", "price in OPS", "price in tensor OPS", "credited", "all"), rows, (False, *[True] * 4)
    )


def _rules_text(judged: Judged) -> str:
    """The sentence above the rules: what they ask, and whether the architectures were recounted."""
    by = "Rules that need the architectures recounted are shown as unknown."
    if judged.validated:
        by = "Every architecture in the journal was recounted for this."
    return f"Two questions: is the result valid, and if so, does it meet the rules of the ranking? {by}"


def _configuration_text(judged: Judged) -> str:
    """How the settings of the run differ from those of its preset."""
    config = judged.replay.opened.config
    if config.preset not in preset_names():
        return f"Read from a file with the preset name {config.preset}."
    changed = len(run_tables.changed_settings(config))
    if not changed:
        return f"The settings of the preset {config.preset}."
    return f"{changed} {'setting differs' if changed == 1 else 'settings differ'} from the preset."


def _hovered(found: Sequence[TrialRow], shown: Sequence[TrialRow]) -> Sequence[TrialRow]:
    """Trials of which a figure can tell more than the number: all where they are not too many."""
    return found if len(found) <= 3 * TRIALS_SHOWN else shown


def _footer(judged: Judged) -> str:
    """What the page was made from, so that a reader can make it again."""
    replay = judged.replay
    return (
        f"Made from {replay.lines:,} lines of a journal with a last hash that begins with "
        f"{replay.last_chain[:16]}. "
        "Anyone with the journal can make this page again; `aiperf-hpc validate` checks it."
    )
