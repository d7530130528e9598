"""A run as OpenMetrics text, for a site's Prometheus to collect from a file or from `serve`."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge, Info
from prometheus_client.openmetrics.exposition import generate_latest

from aiperf.wording import plain
from analysis.readings.judged import Judged
from analysis.readings.key import num_devices
from analysis.readings.live import Snapshot


def openmetrics_text(judged: Judged) -> str:
    """Gauges of the run so far; what is not known is left out. Units are in the names."""
    registry = CollectorRegistry()
    replay, score = judged.replay, judged.score
    run = plain(replay.opened.run_id)
    about = {
        "run": run,
        "preset": replay.opened.config.preset,  # printable, or it was refused
        "program": plain(replay.opened.program),
        "format": replay.opened.config.training.format,
    }
    Info("aiperf_run", "What the run is.", registry=registry).info(about)
    values = {
        "ops_per_second": ("Sustained OPS: credited operations over the span.", score.ops_per_second),
        "tensor_ops_per_second": (
            "Multiply-accumulates, two each, over the span.",
            score.tensor_ops_per_second,
        ),
        "raw_ops_per_second": ("All operations that were done, over the span.", score.raw_ops_per_second),
        "regulated_ops_per_second": ("-ln(test error) times sustained OPS.", score.regulated_score),
        "mfu_ratio": ("Tensor OPS over the dense peak.", score.mfu),
        "span_seconds": ("Of all legs together.", score.span_seconds),
        "devices": ("Ranks that train.", float(num_devices(replay))),
        "validation_error_ratio": (
            "Lowest so far.",
            None if score.quality is None else score.quality.validation_error,
        ),
        "test_error_ratio": (
            "Of the best network.",
            None if score.quality is None else score.quality.error,
        ),
        "valid": ("1 where no rule of integrity failed.", float(judged.verdict.valid)),
    }
    _set(registry, run, values)
    _set_trials(registry, run, score.trials)
    groups = Gauge(
        "aiperf_group_share_ratio", "Of a group's time.", ["run", "group", "part"], registry=registry
    )
    for share in score.shares:
        for part in ("train", "validate", "rest"):
            groups.labels(run, str(share.group), part).set(getattr(share, part))
    return str(generate_latest(registry).decode())  # type: ignore[no-untyped-call]


def live_openmetrics_text(now: Snapshot) -> str:
    """The gauges that can be told while the run goes on."""
    registry, run = CollectorRegistry(), plain(now.run)
    Info("aiperf_run", "What the run is.", registry=registry).info({"run": run, "preset": now.preset})
    values = {
        "ops_per_second": ("Credited operations over the span so far.", now.ops_per_second),
        "span_seconds": ("So far.", now.span_seconds),
        "left_seconds": ("To the end.", now.left_seconds),
        "validation_error_ratio": ("Lowest so far.", None if now.best is None else now.best[1]),
        "groups_training": ("Groups at work.", float(sum(g.doing == "training" for g in now.groups))),
    }
    _set(registry, run, values)
    _set_trials(registry, run, now.trials)
    return str(generate_latest(registry).decode())  # type: ignore[no-untyped-call]


def _set(registry: CollectorRegistry, run: str, values: Mapping[str, tuple[str, float | None]]) -> None:
    for name, (text, value) in values.items():
        if value is not None:
            Gauge(f"aiperf_{name}", text, ["run"], registry=registry).labels(run).set(value)


def _set_trials(registry: CollectorRegistry, run: str, trials: Mapping[str, int]) -> None:
    gauge = Gauge("aiperf_trials", "Number of trials by state.", ["run", "state"], registry=registry)
    for state, num in trials.items():
        gauge.labels(run, state).set(num)
