"""A run as MLPerf's log lines: `:::MLLOG` and a JSON object, with the keys of the package mlperf-logging.

What has no key there (operations, regulated score) stands in the metadata of `run_stop`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from math import log
from typing import Any

from aiperf.journal.attempts import Leg
from aiperf.journal.mark import refuse_marked
from aiperf.journal.replay import Replay
from aiperf.tally import Classified, Predicted, Tally
from analysis.exports.result import answered
from analysis.readings.judged import Judged
from analysis.readings.key import figures, task_of_run

START, END, POINT = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"
FIGURES = ("ops_per_second", "tensor_ops_per_second", "regulated_score", "span_seconds")
ACCURACY: Mapping[type[Tally], Callable[[Any], float]] = {
    Classified: lambda tally: tally.accuracy,
    Predicted: lambda tally: tally.bits_per_byte * log(2),
}
"""By the kind of task. Of language MLPerf gives the logarithm of the perplexity under this key, in nats."""
Line = tuple[float, str, str, Any, dict[str, Any]]
"""Milliseconds since 1970, event type, key, value, metadata."""


def mllog_text(judged: Judged) -> str:
    """All lines in the order of their times. Those of a leg follow its master's clock.

    Raises AiperfError for a run that was not measured: MLPerf has no key that would say so.
    """
    refuse_marked(judged.replay.opened.origin, judged.files.directory, "be written as an MLPerf log")
    lines = sorted(_lines(judged), key=lambda line: line[0])
    return "".join(f":::MLLOG {json.dumps(_record(line), allow_nan=False)}\n" for line in lines)


def _record(line: Line) -> dict[str, Any]:
    time, kind, key, value, metadata = line
    return {
        "namespace": "",
        "time_ms": round(time),
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": metadata,
    }


def _lines(judged: Judged) -> Iterator[Line]:
    replay = judged.replay
    if not replay.legs:
        return
    yield from _settings(replay)
    for leg in replay.legs:
        begin = _begin(leg)
        yield begin, START, "init_start", None, {}
        if leg.released is None:
            continue
        yield begin + 1000 * leg.released, END, "init_stop", None, {}
        yield begin + 1000 * leg.released, START, "run_start", None, {"leg": leg.index}
        yield begin + 1000 * leg.end, END, "run_stop", None, _outcome(judged, leg)
    yield from _trials(replay)
    if replay.tested is not None:
        last, tally = _begin(replay.leg) + 1000 * replay.leg.last, replay.tested.tally
        part = f"{task_of_run(replay).example}s"
        about = {"trial": replay.tested.trial, part: "test", "samples_count": tally.of}
        yield last, POINT, "eval_accuracy", ACCURACY[type(tally)](tally), about


def _settings(replay: Replay) -> Iterator[Line]:
    config, manifest = replay.opened.config, dict(replay.ranks[0].ready.data) if replay.ranks else {}
    values = {
        "submission_benchmark": "aiperf-hpc",
        "submission_platform": replay.opened.run_id,
        "seed": config.random_seed,
        "global_batch_size": config.training.batch_size,
        "train_samples": manifest.get("training_examples"),
        "eval_samples": manifest.get("validation_examples"),
        "opt_name": config.training.optimizer,
        "opt_base_learning_rate": config.training.learning_rate,
        "opt_weight_decay": config.training.weight_decay,
        "lowest_numerical_precision_in_linear": config.training.format,
    }
    for key, value in values.items():
        yield _begin(replay.legs[0]), POINT, key, value, {}


def _trials(replay: Replay) -> Iterator[Line]:
    part = f"{task_of_run(replay).example}s"
    for attempt in replay.attempts:
        if attempt.began is None:
            continue
        begin = _begin(attempt.leg)
        about = {"trial": attempt.trial.number, "attempt": attempt.number, "group": attempt.group}
        yield begin + 1000 * attempt.began.end, START, "block_start", None, about
        for closed in attempt.validations:
            tally = closed.segment.tally
            validated = {**about, part: "validation", "samples_count": tally.of}
            accuracy = ACCURACY[type(tally)](tally)
            yield begin + 1000 * closed.end, POINT, "eval_accuracy", accuracy, validated
        if attempt.ended is not None:
            ended = {**about, "state": attempt.state.value}
            yield begin + 1000 * attempt.ended.end, END, "block_stop", None, ended


def _outcome(judged: Judged, leg: Leg) -> dict[str, Any]:
    ended, score = leg.ended, judged.score
    found = figures(judged.replay, score)
    done = ended is not None and ended.reason in ("deadline", "trials", "target")
    return {
        "status": "success" if done else "aborted",
        "leg": leg.index,
        **{key: found[key].value for key in FIGURES},
        "trained_samples": score.goodput.trained_examples,
        **answered(judged.verdict),
    }


def _begin(leg: Leg) -> float:
    """When the leg's clock was 0. What is not a time of day is taken for 1970: the order still holds."""
    try:
        started = datetime.fromisoformat(leg.began.started)
    except ValueError:
        return 0.0
    aware = started if started.tzinfo else started.replace(tzinfo=timezone.utc)
    return 1000 * aware.timestamp()
