"""The pages and files of several runs: two compared, a scaling study, and what it took to reach an error.
`write_scaling` is the only one that writes files; the others return the text of a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.os_error import unwritable
from aiperf.wording import counted, rate
from analysis.comparing.characteristics import control_cost, trained
from analysis.comparing.comparison import Comparison
from analysis.comparing.cost import CostStudy, cost_table, cost_text, whole_table
from analysis.comparing.published import Published
from analysis.comparing.scaling import Scaling, csv_text, markdown_text, table
from analysis.pages.figures.characterisation import characterisation
from analysis.pages.figures.cost import cost_pictures
from analysis.pages.figures.picture import stamped
from analysis.pages.figures.scaling import weak_scaling
from analysis.pages.figures.svg import write_files
from analysis.pages.page import drawn, page
from analysis.readings.judgement import Judged
from analysis.readings.run_tables import devices_and_hosts, devices_text
from analysis.readings.score_figures import EXPLAINED, num_devices, task_of_run
from analysis.readings.trial_rows import rows
from analysis.table import Table


def comparison_html(found: Comparison) -> str:
    """The page of two runs with the differences that `compare` prints. EXPLAINED
    says what its terms mean."""
    return page("compare.html", found.mark, found=found, terms=EXPLAINED)


def scaling_html(found: Scaling, runs: Sequence[Judged], others: Sequence[Published]) -> str:
    """The page of a weak scaling study: its figure, its table and, if asked for, the published results of
    `others`. `runs` are those of the study, at least one."""
    config = runs[0].replay.opened.config
    largest = max(runs, key=lambda run: num_devices(run.replay))  # names the machine at its full size
    systems = [[one.system, rate(one.ops_per_second), one.source] for one in others]
    return page(
        "scaling.html",
        found.mark,
        title=_sizes(found),
        subject=found.subject,
        subtitle=f"preset {config.preset} · {config.training.format} · up to {devices_text(largest.replay)}",
        drawn=drawn(weak_scaling(found, others)),
        content=table(found),
        base=counted(found.base_devices, "device"),
        others=Table(("system", "OPS", "source"), systems, (False, True, False)) if systems else None,
    )


def _sizes(found: Scaling) -> str:
    """The title of a study: the smallest and the largest number of devices."""
    first, last = found.base_devices, found.points[-1].devices
    return f"{f'{first:,} to ' if first != last else ''}{counted(last, 'device')}"


def write_scaling(
    found: Scaling, runs: Sequence[Judged], others: Sequence[Published], folder: Path
) -> list[Path]:
    """scaling.html, .csv, .md, .svg and .png. Raises AiperfError where they cannot be written."""
    texts = {"html": scaling_html(found, runs, others), "csv": csv_text(found), "md": markdown_text(found)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"scaling.{ending}" for ending in texts]
        for path, text in zip(paths, texts.values()):
            path.write_text(text, encoding="utf-8", newline="")
        return paths + write_files(weak_scaling(found, others), folder)
    except OSError as error:
        raise AiperfError(unwritable(error, error.filename or folder)) from None


def cost_html(found: CostStudy, runs: Sequence[Judged]) -> str:
    """The page of the time, energy and money that runs needed to reach an error, with the trials of all runs
    by operations, parameters and epochs. Networks are drawn for the error that was asked for, not for each
    run's own best."""
    config = runs[0].replay.opened.config
    task = task_of_run(runs[0].replay)
    named = [(run.replay.opened.run_id, rows(run.replay, run.recount.counts)) for run in runs]
    placed = trained(named, found.error)
    control = control_cost(runs[0].replay)
    networks = stamped(characterisation(placed, found.error, task, control), found.mark)
    return page(
        "cost.html",
        found.mark,
        title=f"Error {found.error_text}",
        subtitle=f"preset {config.preset} · {config.training.format} · {devices_and_hosts(runs[0].replay)}",
        says=cost_text(found),
        content=cost_table(found),
        whole=whole_table(found),
        drawn=[drawn(picture) for picture in [*cost_pictures(found), networks]],
    )
