"""The page of what it took to reach an error."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.comparing.characteristics import control_cost, trained
from analysis.comparing.cost import CostStudy, cost_table, cost_text, whole_table
from analysis.pages.figures.characterisation import characterisation
from analysis.pages.figures.cost import cost_pictures
from analysis.pages.figures.picture import stamped
from analysis.pages.page import drawn, page
from analysis.readings.judgement import Judged
from analysis.readings.run_tables import devices_and_hosts
from analysis.readings.score_figures import task_of_run
from analysis.readings.trial_rows import rows

TRIALS_SHOWN = 2_000
"""Most trials in the figure of the trials of all runs."""


def cost_html(found: CostStudy, runs: Sequence[Judged]) -> str:
    opened = runs[0].replay.opened
    config = opened.config
    task = task_of_run(runs[0].replay)
    named = [(run.replay.opened.run_id, rows(run.replay, run.recount.counts)) for run in runs]
    placed = trained(named, found.error)
    control = control_cost(runs[0].replay)
    networks = stamped(characterisation(placed, found.error, task, control, TRIALS_SHOWN), found.mark)
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
