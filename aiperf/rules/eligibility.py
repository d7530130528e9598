"""What a valid run must be to be ranked. Anything else is smoke: complete, useful, comparable with itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiperf.config import BoundsConfig, Config
from aiperf.errors import ConfigError
from aiperf.proposing.plan import SEGMENT_SECONDS
from aiperf.rules import stalls
from aiperf.rules.measurements import doubts, mean_ceiling
from aiperf.rules.rule import NEVER_STARTED, Evidence, Seen, looked
from aiperf.tasks.known import task_of
from aiperf.tasks.task import RankedLimits
from aiperf.trial import State
from aiperf.wording import counted, percent
from nas.search import SEARCHES

LEAST_SPAN_SECONDS = 3600.0
ROUNDING_SECONDS = 1e-6  # the span is a difference of two times
LONGEST_SEGMENT_SECONDS = 600.0
SIXTEEN_BITS_OR_MORE = ("fp32", "tf32", "bf16", "fp16")
LEAST_SHARE_OF_AN_EPOCH = 1 / 8
"""Between two validations: a validation is credited, too, and a run may not consist of them."""


def unrankable(config: Config, manifest: Mapping[str, Any]) -> list[str]:
    """What stands in the way of a rank however long the run is."""
    data = list(_limits(config).data_faults(manifest))
    return _width(config) + data + _architecture(config) + _distance(config, manifest)


def foreseen(config: Config, manifest: Mapping[str, Any]) -> list[str]:
    """What already stands in the way of a rank before the clock starts."""
    minutes = config.limits.minutes
    short = (
        [f"the span is to be {minutes:g} minutes; 60 are needed"] if 60 * minutes < LEAST_SPAN_SECONDS else []
    )
    return unrankable(config, manifest) + short


def refuse_unrankable(config: Config, manifest: Mapping[str, Any]) -> None:
    """A run that is to be ranked is not let run for an hour in vain. Raises ConfigError."""
    if config.ranked and (wrong := foreseen(config, manifest)):
        raise ConfigError(f"ranked = true, but {'; '.join(wrong)}; change that or set ranked = false")


def complete(evidence: Evidence) -> Seen:
    replay = evidence.replay
    if not replay.released:
        return Seen(NEVER_STARTED, known=False)
    if replay.leg.ended is None:
        return Seen("", ["the run has not ended"])
    reason = replay.leg.ended.reason
    return Seen(f"it ended by its {reason}", [] if reason == "deadline" else [f"it ended by: {reason}"])


def span(evidence: Evidence) -> Seen:
    replay = evidence.replay
    minutes = replay.span_seconds / 60
    # A leg that never reached its release has no part in the span.
    legs = sum(leg.released is not None for leg in replay.legs)
    wrong = (
        [f"the span is {minutes:.2f} minutes; 60 are needed"]
        if legs and replay.span_seconds < LEAST_SPAN_SECONDS - ROUNDING_SECONDS
        else []
    )
    wrong += [f"it was made in {legs} legs, not in one"] if legs > 1 else []
    wrong += stalls.unwitnessed(evidence)
    return looked(legs, NEVER_STARTED, f"{minutes:.1f} minutes in one leg", wrong)


def width(evidence: Evidence) -> Seen:
    config = evidence.replay.opened.config
    return Seen(f"{config.training.format} has 16 bits or more", _width(config))


def data(evidence: Evidence) -> Seen:
    ranks = [event for leg in evidence.replay.legs for event in leg.ranks]
    limits = _limits(evidence.replay.opened.config)
    wrong = list(limits.data_faults(evidence.replay.manifest)) if ranks else []
    return looked(ranks, "no rank was ready", limits.data, wrong)


def error(evidence: Evidence) -> Seen:
    quality = evidence.score.quality
    if quality is None or quality.error is None:
        return Seen("no network was tested", known=False)
    most = _limits(evidence.replay.opened.config).most_error
    wrong = (
        [f"the error is {percent(quality.error, 1)}, above {percent(most, 0)}"]
        if quality.error > most
        else []
    )
    ended = evidence.replay.trials[quality.trial].attempts[-1].ended
    if ended is None or not ended.finished.weights:
        wrong.append("the weights of the tested network were not kept, so nobody can evaluate it again")
    return Seen(f"the error is {percent(quality.error, 1)}", wrong)


def trials(evidence: Evidence) -> Seen:
    """At least one for each group."""
    replay = evidence.replay
    if not replay.released:
        return Seen(NEVER_STARTED, known=False)
    groups = {attempt.group for attempt in replay.arrivals if attempt.state is State.COMPLETE}
    idle = sorted(set(range(replay.leg.groups)) - groups)
    return Seen(
        f"{counted(len(replay.arrivals), 'trial')} ended, at least one complete in each of "
        f"{counted(replay.leg.groups, 'group')}",
        [f"group {group} completed no trial" for group in idle],
    )


def architecture(evidence: Evidence) -> Seen:
    """The pinned seed, and the pinned bounds of candidates."""
    config = evidence.replay.opened.config
    return Seen(f"{_limits(config).seed} within the default bounds", _architecture(config))


def control(evidence: Evidence) -> Seen:
    """Timed on every device, before the release; its ceiling, too, beside which too much work would show."""
    task = task_of(evidence.replay.opened.config.data)
    network, size = task.control, task.ranked.control_size
    wrong = [
        f"rank {rank} of leg {leg.index} has no {what}"
        for leg in evidence.replay.legs
        if leg.released is not None
        for group in leg.began.groups
        for rank in group
        for what, measured in (("control", leg.controls), ("ceiling", leg.ceilings))
        if rank not in measured
    ]
    wrong += [
        f"the control of rank {rank} is of {network.examples_text.format(control.size)}, not "
        f"{network.size_text.format(size)}"
        for leg in evidence.replay.legs
        for rank, control in leg.controls.items()
        if control.size != size
    ]
    return looked(evidence.replay.released, NEVER_STARTED, "timed on every device", wrong)


def speed(evidence: Evidence) -> Seen:
    """What was done afterwards fits below the ceilings."""
    compared = len(evidence.replay.blocks) and mean_ceiling(evidence.replay) is not None
    text = "within what was measured before the span"
    return looked(compared, "no work stands beside a ceiling", text, doubts(evidence))


def segments(evidence: Evidence) -> Seen:
    """Credit is whole segments, so none may be long; nor short, but where time or a trial's end closed it."""
    replay = evidence.replay
    least = LEAST_SHARE_OF_AN_EPOCH * replay.manifest.get("training_examples", 0)
    examples = f"{task_of(replay.opened.config.data).example}s"
    closed = [v.segment for attempt in replay.attempts for v in attempt.validations]
    wrong = [
        f"{v.name} was validated after {v.segment.train_examples} {examples}, less than an eighth of an epoch"
        for attempt in replay.attempts
        for v in attempt.validations[:-1]
        if v.segment.train_examples + attempt.trial.hyper.batch_size <= least
        if v.segment.train_seconds < SEGMENT_SECONDS
    ]
    wrong += [
        f"trial {segment.trial}, segment {segment.index} took {segment.train_seconds:.0f} s"
        for segment in closed
        if segment.train_seconds > LONGEST_SEGMENT_SECONDS
    ]
    unhashed = sum(not v.logs for attempt in replay.attempts for v in attempt.validations)
    wrong += [f"{counted(unhashed, 'validation')} without a hash over the ranks' logs"] if unhashed else []
    text = f"none is longer than {LONGEST_SEGMENT_SECONDS:.0f} s"
    return looked(closed, "no segment was closed", text, wrong)


def _distance(config: Config, manifest: Mapping[str, Any]) -> list[str]:
    every, least = (
        config.training.validate_every_examples,
        LEAST_SHARE_OF_AN_EPOCH * manifest.get("training_examples", 0),
    )
    return (
        [f"validate_every_examples is {every}; {least:.0f} are an eighth of an epoch"]
        if every < least
        else []
    )


def _width(config: Config) -> list[str]:
    declared = config.training.format
    return [] if declared in SIXTEEN_BITS_OR_MORE else [f"{declared} has less than 16 bits"]


def _architecture(config: Config) -> list[str]:
    wrong = []
    if config.seed_architecture != (seed := _limits(config).seed):
        wrong.append(f"the seed is {config.seed_architecture}, not {seed}")
    if config.search.bounds != BoundsConfig():
        wrong.append("search.bounds are not the default ones")
    if config.search.name not in SEARCHES:
        wrong.append(f"the search {config.search.name!r} is another package's, not this program's")
    return wrong


def _limits(config: Config) -> RankedLimits:
    return task_of(config.data).ranked
