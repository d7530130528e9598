"""A run as a log of MLPerf Training's open division, which the checker of the package mlperf-logging accepts.

Rule set 4.0.0 of MLPerf Training is the last with a task of ImageNet's classes, `resnet`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiperf.errors import AiperfError, ConfigError
from aiperf.journal.mark import refuse_marked
from aiperf.tasks.images.known_sets import IMAGENET_1K, known_set
from aiperf.tasks.images.task import IMAGES
from aiperf.tasks.task import differences
from analysis.exports.mllog import mllog_text
from analysis.readings.judgement import Judged
from analysis.readings.run_tables import verdict_text, verdict_word
from analysis.readings.score_figures import task_of_run

BENCHMARKS = ("resnet",)
DIVISIONS = ("open", "closed")
STATUSES = ("cloud", "onprem", "preview", "research")
"""Values that rule set 4.0.0 allows."""


@dataclass(frozen=True)
class MlperfEntry:
    """Who submits a run as what; the fields are the checker's `submission_…`."""

    benchmark: str
    division: str
    organization: str
    platform: str
    status: str

    def __post_init__(self) -> None:
        if self.division != "open":
            raise ConfigError(
                "MLPerf's closed division fixes the network and its hyper-parameters, and a search changes "
                "both; give --division open"
            )
        given = {"organization": self.organization, "platform": self.platform, "status": self.status}
        if missing := [f"--{option}" for option, text in given.items() if not text.strip()]:
            raise ConfigError(
                f"an MLPerf entry says who submits it, and which machine: give {', '.join(missing)}"
            )

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "submission_benchmark": self.benchmark,
            "submission_division": self.division,
            "submission_org": self.organization,
            "submission_platform": self.platform,
            "submission_status": self.status,
            "cache_clear": None,  # the key is required, and no journal says whether caches were cleared
        }


def mlperf_text(judged: Judged, entry: MlperfEntry) -> str:
    """The log. Raises AiperfError for a run that cannot be an entry, with the first reason."""
    refuse_other_data(judged, entry.benchmark, "be written as an MLPerf log")
    if judged.replay.num_legs != 1:
        raise AiperfError(
            f"{judged.files.directory} was made in {judged.replay.num_legs} legs; an MLPerf log has one "
            "run_start: give a run that was not resumed"
        )
    refuse_invalid(judged)
    return mllog_text(judged, entry.settings)


def refuse_other_data(judged: Judged, benchmark: str, what: str) -> None:
    """Raises AiperfError for a run that was not measured, and for one that is not of ImageNet-1k."""
    replay, directory = judged.replay, judged.files.directory
    refuse_marked(replay.opened.origin, directory, what)
    if (task := task_of_run(replay)) is not IMAGES:
        raise AiperfError(
            f"{directory} is a run of {task.name}; MLPerf's {benchmark} is of {IMAGENET_1K.title}"
        )
    if known_set(replay.manifest) is not IMAGENET_1K:
        why = differences(replay.manifest, IMAGENET_1K)
        name = f"data.name is {replay.manifest.get('name')!r}"
        raise AiperfError(
            f"{directory}: MLPerf's {benchmark} is of {IMAGENET_1K.title}, and {(why or [name])[0]}"
        )


def refuse_invalid(judged: Judged) -> None:
    if not judged.valid:
        word = verdict_word(judged.verdict, judged.validated)
        why = verdict_text(judged.verdict, judged.validated)
        raise AiperfError(f"{judged.files.directory} is {word}: {why}; it makes no MLPerf entry")
