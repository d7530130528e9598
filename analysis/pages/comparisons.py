"""The pages and files of comparisons between runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.os_error import unwritable
from aiperf.wording import rate
from analysis.comparing.comparison import Comparison
from analysis.comparing.published import Published
from analysis.comparing.scaling import Scaling, csv_text, markdown_text, table
from analysis.pages.figures.scaling import weak_scaling
from analysis.pages.figures.svg import write_files
from analysis.pages.page import drawn, page
from analysis.readings.judgement import Judged
from analysis.readings.run_tables import devices_text
from analysis.readings.score_figures import EXPLAINED, num_devices
from analysis.table import Table


def comparison_html(found: Comparison) -> str:
    return page("compare.html", found.mark, found=found, terms=EXPLAINED)


def scaling_html(found: Scaling, runs: Sequence[Judged], others: Sequence[Published]) -> str:
    config = runs[0].replay.opened.config
    largest = max(runs, key=lambda run: num_devices(run.replay))
    beside = Table(
        ("system", "OPS", "source"),
        [[one.system, rate(one.ops_per_second), one.source] for one in others],
        (False, True, False),
    )
    return page(
        "scaling.html",
        found.mark,
        title=_sizes(found),
        subtitle=f"preset {config.preset} · {config.training.format} · up to {devices_text(largest.replay)}",
        drawn=drawn(weak_scaling(found, others)),
        content=table(found),
        base=found.base_devices,
        others=beside if others else None,
    )


def _sizes(found: Scaling) -> str:
    first, last = found.base_devices, found.points[-1].devices
    sizes = f"{first:,}" if first == last else f"{first:,} to {last:,}"
    return f"{sizes} device{'' if last == 1 else 's'}"


def write_scaling(
    found: Scaling, runs: Sequence[Judged], others: Sequence[Published], folder: Path
) -> list[Path]:
    """scaling.html, .csv, .md, .svg and .png. Raises AiperfError where they cannot be written."""
    texts = {
        "html": scaling_html(found, runs, others),
        "csv": csv_text(found),
        "md": markdown_text(found),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for ending, text in texts.items():
            (folder / f"scaling.{ending}").write_text(text, encoding="utf-8", newline="")
        figures = write_files(weak_scaling(found, others), folder)
    except OSError as error:
        raise AiperfError(unwritable(error, error.filename or folder)) from None
    return [*(folder / f"scaling.{ending}" for ending in texts), *figures]
