"""What others reached under the rules of AIPerf 1.0."""

from __future__ import annotations

import json
from importlib import resources

from aiperf.errors import AiperfError
from analysis.readings.judgement import Judged
from analysis.readings.score_figures import task_of_run
from nas.frozen import frozen


@frozen
class Published:
    """A result of others, under the rules of AIPerf 1.0."""

    system: str
    """Name of the machine."""
    nodes: int
    devices: int
    ops_per_second: float
    source: str
    """Where the result was published."""


def published(run: Judged) -> list[Published]:
    """Published results to compare this run with. Raises AiperfError if AIPerf 1.0 did not have its task."""
    task = task_of_run(run.replay)
    if not task.in_aiperf1:
        raise AiperfError(
            f"{run.files.directory} is a run of the task {task.name}, but the published points of AIPerf "
            f"1.0 are for images; omit --published"
        )
    record = json.loads(
        (resources.files("analysis.comparing") / "published.json").read_text(encoding="utf-8")
    )
    return [Published(**point) for point in record["points"]]
