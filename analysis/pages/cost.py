"""The page of what it took to reach an error."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.comparing.cost import CostStudy, cost_text
from analysis.comparing.cost_tables import cost_table, whole_table
from analysis.pages.figures.cost import cost_pictures
from analysis.pages.page import drawn, page
from analysis.readings.facts import devices_and_hosts
from analysis.readings.judged import Judged


def cost_html(found: CostStudy, runs: Sequence[Judged]) -> str:
    opened = runs[0].replay.opened
    config = opened.config
    return page(
        "cost.html",
        found.mark,
        title=f"Error {found.error_text}",
        subtitle=f"preset {config.preset} · {config.training.format} · {devices_and_hosts(runs[0].replay)}",
        says=cost_text(found),
        content=cost_table(found),
        whole=whole_table(found),
        drawn=[drawn(picture) for picture in cost_pictures(found)],
    )
