"""A run as MLPerf's log lines: `:::MLLOG` and a JSON object, with the keys of the package mlperf-logging.

What has no key there (operations, regulated score) stands in the metadata of `run_stop`. A log for an entry
in the open division of MLPerf Training passes the checker of that package. Rule set 4.0.0 is the last with a
task of ImageNet's classes, `resnet`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from math import inf
from typing import Any

from aiperf.errors import AiperfError, ConfigError
from aiperf.journal.attempts import Attempt, Leg
from aiperf.journal.mark import refuse_marked
from aiperf.journal.replay import Replay
from aiperf.tasks.images.known_sets import IMAGENET_1K, known_set
from aiperf.tasks.images.task import IMAGES
from aiperf.tasks.tally import Tally
from aiperf.tasks.task import differences
from analysis.exports.result import answered
from analysis.readings.judgement import Judged
from analysis.readings.run_tables import verdict_text, verdict_word
from analysis.readings.score_figures import figures, task_of_run
from nas.frozen import frozen

BENCHMARKS = ("resnet",)
"""Benchmarks of MLPerf Training that a run can be an entry of."""
DIVISIONS = ("open", "closed")
"""Divisions of MLPerf Training."""
STATUSES = ("cloud", "onprem", "preview", "research")
"""Values that rule set 4.0.0 allows."""
START, END, POINT = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"
"""Event types of the package mlperf-logging."""
FIGURES = ("ops_per_second", "tensor_ops_per_second", "regulated_score", "span_seconds")
"""Figures in the metadata of `run_stop`, by their names in JSON."""
Line = tuple[float, str, str, Any, dict[str, Any]]
"""Milliseconds since 1970, event type, key, value, metadata."""


@frozen
class MlperfEntry:
    """Who submits a run as what; the fields are the checker's `submission_…`."""

    benchmark: str
    """One of BENCHMARKS."""
    division: str
    """One of DIVISIONS; only the open one can be entered."""
    organization: str
    """Who submits the run."""
    platform: str
    """The machine, as its owner calls it."""
    status: str
    """One of STATUSES."""

    def __post_init__(self) -> None:
        """Raises ConfigError for the closed division, and for a name that is missing."""
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
        """The first lines of the log by key."""
        return {
            "submission_benchmark": self.benchmark,
            "submission_division": self.division,
            "submission_org": self.organization,
            "submission_platform": self.platform,
            "submission_status": self.status,
            "cache_clear": None,  # the key is required, and no journal says whether caches were cleared
        }


def mllog_text(judged: Judged, entry: MlperfEntry | None = None) -> str:
    """All lines in the order of their times. Those of a leg follow its master's clock.

    The keys of an `entry` are at the beginning, added to those of the run, or in their place.

    Raises AiperfError for a run that was not measured: MLPerf has no key that would say so.
    """
    refuse_marked(judged.replay.opened.origin, judged.files.directory, "be written as an MLPerf log")
    # The checker wants rising times; lines of one time keep the order in which they are made.
    lines = sorted(_lines(judged, entry.settings if entry else {}), key=lambda line: line[0])
    return "".join(f":::MLLOG {json.dumps(_record(line), allow_nan=False)}\n" for line in lines)


def _record(line: Line) -> dict[str, Any]:
    """The JSON object of a line, with the keys that the checker requires."""
    time, *others = line
    names = ("event_type", "key", "value", "metadata")
    return {"namespace": "", "time_ms": round(time), **dict(zip(names, others, strict=True))}


def _lines(judged: Judged, settings: Mapping[str, Any]) -> Iterator[Line]:
    """All lines, in any order. Times are milliseconds of the master's time of day at the start of the leg,
    plus its monotonic clock, which no correction of the time of day moves."""
    replay = judged.replay
    if not replay.legs:
        return
    for key, value in {**_settings(replay), **settings}.items():
        yield _begin(replay.legs[0]), POINT, key, value, {}
    for leg in replay.legs:
        begin = _begin(leg)
        yield begin, START, "init_start", None, {}
        # Its clock never started, so there is no run to begin or end.
        if leg.released is None:
            continue
        yield begin + 1000 * leg.released, END, "init_stop", None, {}
        yield begin + 1000 * leg.released, START, "run_start", None, {"leg": leg.index}
        yield begin + 1000 * leg.end, END, "run_stop", None, _outcome(judged, leg)
    totals = replay.totals()
    for attempt in replay.attempts:
        if attempt.began is not None:
            blocks = totals.examples[totals.first[attempt.index] : totals.first[attempt.index + 1]]
            yield from _trained(replay, attempt, int(blocks[-1]))
    if replay.tested is not None:
        last, tested = _begin(replay.leg) + 1000 * replay.leg.last, replay.tested
        story = replay.trials.get(tested.trial)  # a hostile journal tests what never was
        done = _examples_of_best(story.attempts[-1]) if story else 0
        begin = last - 1000 * tested.seconds
        yield from _evaluated(replay, "test", tested.tally, begin, last, done, {"trial": tested.trial})


def _settings(replay: Replay) -> dict[str, Any]:
    """What was searched with. The hyper-parameters are those of the configuration; a trial may have
    others."""
    config, manifest = replay.opened.config, replay.manifest
    return {
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


def _trained(replay: Replay, attempt: Attempt, unvalidated: int) -> Iterator[Line]:
    """A block for the steps before each validation, and one for those after the last, where there are any."""
    assert attempt.began is not None
    zero = _begin(attempt.leg)
    about = {"trial": attempt.trial.number, "attempt": attempt.number, "group": attempt.group}
    ended = {} if attempt.ended is None else {"state": attempt.state.value}
    begin, done = zero + 1000 * attempt.began, 0
    for closed in attempt.validations:
        segment, end = closed.segment, zero + 1000 * closed.end
        validated = max(begin, end - 1000 * segment.validate_seconds)
        last = {} if unvalidated or segment.index < attempt.num_closed - 1 else ended
        yield from _block(replay, begin, validated, done, segment.train_examples, {**about, **last})
        done += segment.train_examples
        yield from _evaluated(replay, "validation", segment.tally, validated, end, done, about)
        begin = end
    if attempt.ended is not None and (unvalidated or not attempt.num_closed):
        end = zero + 1000 * attempt.ended
        yield from _block(replay, begin, end, done, unvalidated, {**about, **ended})


def _block(
    replay: Replay, begin: float, end: float, done: int, examples: int, about: Mapping[str, Any]
) -> Iterator[Line]:
    """MLPerf counts epochs from 1; here a trial has its own, and a block can be a part of one."""
    count = {"epoch_count": _epochs(replay, examples)} if examples else {}  # MLPerf has none of 0 epochs
    about = {**about, "first_epoch_num": 1 + _epochs(replay, done), **count, "samples_count": examples}
    yield begin, START, "block_start", None, about
    yield end, END, "block_stop", None, about


def _evaluated(
    replay: Replay, part: str, tally: Tally, begin: float, end: float, done: int, about: Mapping[str, Any]
) -> Iterator[Line]:
    """The lines of one evaluation. `part` is that of the data, and `done` counts the examples trained until
    then."""
    examples = f"{task_of_run(replay).example}s"
    about = {**about, "epoch_num": _epochs(replay, done), examples: part, "samples_count": tally.of}
    yield begin, START, "eval_start", None, about
    yield end, POINT, "eval_accuracy", tally.logged_accuracy, about
    yield end, END, "eval_stop", None, about


def _examples_of_best(attempt: Attempt) -> int:
    """Number of training examples until the validation whose network was tested."""
    best = attempt.best_validation
    return sum(row.train_examples for row in attempt.rows if best and row.end <= best.end)


def _epochs(replay: Replay, examples: int) -> float:
    """Passes over the training examples; 0 where their number is not known. It is a
    fraction where a validation comes within an epoch."""
    return examples / (replay.manifest.get("training_examples") or inf)


def _outcome(judged: Judged, leg: Leg) -> dict[str, Any]:
    """The metadata of `run_stop`: what MLPerf has no keys for, and whether the leg ended as it was meant
    to."""
    ended, score = leg.ended, judged.score
    found = figures(judged.replay, score)
    # Any other end, such as an interrupt, is one that nobody planned.
    done = ended is not None and ended.reason in ("deadline", "trials", "target")
    return {
        "status": "success" if done else "aborted",
        "leg": leg.index,
        **{key: found[key].value for key in FIGURES},
        "trained_samples": score.goodput.trained_examples,
        **answered(judged),
    }


def _begin(leg: Leg) -> float:
    """When the leg's clock was 0. What is not a time of day is taken for 1970: the order still holds.
    The unit is milliseconds since 1970."""
    try:
        started = datetime.fromisoformat(leg.began.started)
    except ValueError:
        return 0.0
    aware = started if started.tzinfo else started.replace(tzinfo=timezone.utc)
    return 1000 * aware.timestamp()


def mlperf_text(judged: Judged, entry: MlperfEntry) -> str:
    """The log. Raises AiperfError for a run that cannot be an entry, with the first reason."""
    refuse_other_data(judged, entry.benchmark, "be written as an MLPerf log")
    if judged.replay.num_legs != 1:
        raise AiperfError(
            f"{judged.files.directory} was made in {judged.replay.num_legs} legs; an MLPerf log has one "
            "run_start: give a run that was not resumed"
        )
    refuse_invalid(judged)
    return mllog_text(judged, entry)


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


def refuse_invalid(judged: Judged, entry: str = "MLPerf entry") -> None:
    """Raises AiperfError for a run that is not VALID, because it makes no `entry`."""
    if not judged.valid:
        word = verdict_word(judged.verdict, judged.validated)
        why = verdict_text(judged.verdict, judged.validated)
        raise AiperfError(f"{judged.files.directory} is {word}: {why}; it makes no {entry}")
