"""A run as OpenMetrics text, for a site's Prometheus to collect from a file or from `serve`. Each call makes
a registry of its own: the library's default one is kept for the whole process."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, Info
from prometheus_client.openmetrics.exposition import generate_latest

from aiperf.journal.mark import Mark, mark_of
from aiperf.wording import plain
from analysis.readings.judgement import Judged
from analysis.readings.live import Snapshot
from analysis.readings.run_tables import verdict_word
from analysis.readings.score_figures import figures

METRICS = {
    "ops_per_second": "ops_per_second",
    "tensor_ops_per_second": "tensor_ops_per_second",
    "raw_ops_per_second": "raw_ops_per_second",
    "regulated_score": "regulated_ops_per_second",
    "mfu": "mfu_ratio",
    "span_seconds": "span_seconds",
    "devices": "devices",
    "validation_error": "validation_error_ratio",
    "error": "test_error_ratio",
}
"""Names by figure. The unit is at the end of the name, as OpenMetrics requires."""


def openmetrics_text(judged: Judged) -> str:
    """Gauges of the run so far; what is not known is left out. Units are in the names. Each sample of a run
    that was not measured has the label `origin`."""
    registry = CollectorRegistry()
    replay, score = judged.replay, judged.score
    # A mark is a label, so that no dashboard adds simulated rates to measured ones.
    run = _run(replay.opened.run_id, mark_of(replay.opened.origin))
    # Labels of one metric, so that a query can join them with any other metric of the run.
    about = {
        **run,
        "preset": replay.opened.config.preset,  # printable, or it was refused
        "program": plain(replay.opened.program),
        "format": replay.opened.config.training.format,
    }
    Info("aiperf_run", "What the run is.", registry=registry).info(about)
    found = figures(replay, score)
    values = {name: (found[key].help, found[key].value) for key, name in METRICS.items()}
    # A gauge is a number, so why a run is not valid is the label of another metric.
    values["valid"] = "1 where no rule of integrity failed.", 1.0
    if not judged.valid:
        answer = {**run, "answer": verdict_word(judged.verdict, judged.validated)}
        values["valid"] = "0 of a run that is not VALID; aiperf_verdict says what it is.", 0.0
        Info("aiperf_verdict", "What is said of the run.", registry=registry).info(answer)
    _set(registry, run, values, score.trials)
    labels = [*run, "group", "part"]
    groups = Gauge("aiperf_group_share_ratio", "Of a group's time.", labels, registry=registry)
    for share in score.shares:
        for part in ("train", "validate", "rest"):
            groups.labels(*run.values(), str(share.group), part).set(getattr(share, part))
    return str(generate_latest(registry).decode())  # type: ignore[no-untyped-call]


def live_openmetrics_text(now: Snapshot) -> str:
    """The gauges that can be told while the run goes on. Names are those of `openmetrics_text` where the
    figures are the same."""
    registry, run = CollectorRegistry(), _run(now.run, now.mark)
    Info("aiperf_run", "What the run is.", registry=registry).info({**run, "preset": now.preset})
    values = {
        "ops_per_second": ("Credited operations over the span so far.", now.ops_per_second),
        "span_seconds": ("So far.", now.span_seconds),
        "left_seconds": ("To the end.", now.left_seconds),
        "validation_error_ratio": ("Lowest so far.", None if now.best is None else now.best[1]),
        "groups_training": ("Groups at work.", float(sum(g.doing == "training" for g in now.groups))),
    }
    _set(registry, run, values, now.trials)
    return str(generate_latest(registry).decode())  # type: ignore[no-untyped-call]


def _run(run_id: str, mark: Mark | None) -> Mapping[str, str]:
    """Labels of every sample."""
    return {"run": plain(run_id), **({} if mark is None else {"origin": mark.word})}


def _set(
    registry: CollectorRegistry,
    run: Mapping[str, str],
    values: Mapping[str, tuple[str, float | None]],
    trials: Mapping[str, int],
) -> None:
    """Sets a gauge for each value that is known, by its name and with its help, and one for the trials. What
    is unknown is left out, because a gauge has no value for it."""
    for name, (text, value) in values.items():
        if value is not None:
            Gauge(f"aiperf_{name}", text, [*run], registry=registry).labels(*run.values()).set(value)
    gauge = Gauge("aiperf_trials", "Number of trials by state.", [*run, "state"], registry=registry)
    for state, num in trials.items():
        gauge.labels(*run.values(), state).set(num)
