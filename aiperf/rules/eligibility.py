"""What a valid run needs to be ranked. Anything else is smoke: complete, useful, comparable with its like. No
rule here asks whether the figures are true; that is done by the rules of integrity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aiperf.config import BoundsConfig, Config
from aiperf.errors import ConfigError
from aiperf.hardware.bound import no_bound_text
from aiperf.proposing.plan import SEGMENT_SECONDS
from aiperf.rules.controls import coupled_doubt
from aiperf.rules.rule import LEAST_SPAN_SECONDS, NEVER_STARTED, Evidence, Inspection, inspection_of, unknown
from aiperf.score.deviation import agreement
from aiperf.score.disturbance import MOST_OTHERS, disturbances
from aiperf.score.fabric import coupled_share, is_known
from aiperf.tasks.registry import task_of
from aiperf.tasks.task import RankedLimits
from aiperf.wire.trial import State
from aiperf.wording import counted, first_few, percent
from nas.search import SEARCHES

LONGEST_SEGMENT_SECONDS = 600.0
"""Longest training time of a segment in seconds. A group closes a segment after nine minutes."""
SIXTEEN_BITS_OR_MORE = ("fp32", "tf32", "bf16", "fp16")
"""Formats that a ranked run may multiply in."""
LEAST_SHARE_OF_AN_EPOCH = 1 / 8
"""Minimum distance between two validations, because validation is credited too, and a run must not consist of
validations alone."""
NO_LIMITS = unknown("the task has no limits of a ranked run")
"""The answer for a task that is never ranked, as one of another package."""


def unrankable(config: Config, manifest: Mapping[str, Any]) -> list[str]:
    """What prevents a ranking, however long the run is. `manifest` describes the data. One sentence for each
    thing, without a remedy."""
    every = config.training.validate_every_examples
    least = LEAST_SHARE_OF_AN_EPOCH * manifest.get("training_examples", 0)
    wrong = _width(config) + _data(config, manifest) + _architecture(config) + _random_seed(config)
    if every < least:
        wrong.append(f"validate_every_examples is {every}, less than an eighth of an epoch ({least:.0f})")
    return wrong


def foreseen(config: Config, manifest: Mapping[str, Any], unbounded: Sequence[str] = ()) -> list[str]:
    """What is known to prevent a ranking before the clock starts. `unbounded`: the devices without a known
    bound, whose work nobody can check. These are the faults of `unrankable`, a time limit below an hour, and
    devices without a bound."""
    wrong, minutes = unrankable(config, manifest), config.limits.minutes
    if 60 * minutes < LEAST_SPAN_SECONDS:
        wrong.append(f"limits.minutes is {minutes:g}; at least 60 are required")
    if unbounded:
        wrong.append(no_bound_text(unbounded, config.training.format))
    return wrong


def refuse_unrankable(config: Config, manifest: Mapping[str, Any], unbounded: Sequence[str] = ()) -> None:
    """Stops a run that cannot be ranked before it wastes an hour. Raises ConfigError."""
    if config.ranked and (wrong := foreseen(config, manifest, unbounded)):
        by_list = "; a list that knows the peak ranks such a run with --peaks" if unbounded else ""
        remedy = f"change that or set ranked = false{by_list}"
        raise ConfigError(f"ranked = true, but {'; '.join(wrong)}; {remedy}")


def complete(evidence: Evidence) -> Inspection:
    """The run used all of its time."""
    replay = evidence.replay
    if not replay.released:
        return unknown(NEVER_STARTED)
    if replay.leg.ended is None:
        return Inspection("", ["the run has not ended"])
    reason = replay.leg.ended.reason
    wrong = [] if reason == "deadline" else [f"the run did not end at a deadline: {reason}"]
    return Inspection("the run ended at its deadline", wrong)


def width(evidence: Evidence) -> Inspection:
    """The format of the multiplications has at least 16 bits."""
    return Inspection(f"{evidence.config.training.format} has at least 16 bits", _width(evidence.config))


def data(evidence: Evidence) -> Inspection:
    """The data are those that the task demands of a ranked run, whole."""
    replay, limits = evidence.replay, evidence.task.ranked
    ranks = [event for leg in replay.counted_legs for event in leg.ranks]
    wrong = _data(evidence.config, replay.manifest) if ranks else []
    return inspection_of(ranks, "no rank was ready", "" if limits is None else limits.data, wrong)


def error(evidence: Evidence) -> Inspection:
    """The best network is good enough for the task, and can be evaluated again."""
    quality = evidence.score.quality
    if quality is None or quality.error is None:
        return unknown("no network was tested")
    limits = evidence.task.ranked
    if limits is None:
        return NO_LIMITS
    text, wrong = f"the error is {percent(quality.error, 1)}", list[str]()
    if quality.error > limits.most_error:
        wrong.append(f"{text}, above the limit of {percent(limits.most_error, 0)}")
    if not evidence.replay.trials[quality.trial].attempts[-1].weights:
        wrong.append("the weights of the tested network were not kept, so it cannot be evaluated again")
    return Inspection(text, wrong)


def trials(evidence: Evidence) -> Inspection:
    """Every group completed at least one trial."""
    replay = evidence.replay
    if not replay.released:
        return unknown(NEVER_STARTED)
    groups = {attempt.group for attempt in replay.arrivals if attempt.state is State.COMPLETE}
    idle = sorted(set(range(replay.counted_legs[-1].groups)) - groups)
    return Inspection(
        f"{counted(len(replay.arrivals), 'trial')} ended; every group completed at least one",
        [f"group {group} completed no trial" for group in idle],
    )


def architecture(evidence: Evidence) -> Inspection:
    """The run used the required seed, and the default bounds of candidates."""
    limits = evidence.task.ranked
    if limits is None:
        return NO_LIMITS
    return Inspection(f"{limits.seed} within the default bounds", _architecture(evidence.config))


def random_seed(evidence: Evidence) -> Inspection:
    """The run used the random seed that is fixed for the season, so that nobody can choose a lucky one."""
    limits = evidence.task.ranked
    if limits is None:
        return NO_LIMITS
    return Inspection(f"{limits.random_seed}, this season's", _random_seed(evidence.config))


def disturbance(evidence: Evidence) -> Inspection:
    """Other programs used little of each host's processors while the run was timed."""
    found = disturbances(evidence.replay)
    if not_seen := [each.host for each in found if not each.known]:
        return unknown(f"how the processors of {first_few(not_seen)} were used was not reported")
    wrong = [
        f"{percent(each.others, 1)} of the CPU time of {each.host} went to other programs; at most "
        f"{percent(MOST_OTHERS, 0)} is allowed"
        for each in found
        if each.others > MOST_OTHERS
    ]
    most = max((each.others for each in found), default=0.0)
    told = f"at most {percent(most, 1)} of a host's CPU time went to other programs"
    return inspection_of(found, NEVER_STARTED, told, wrong)


def devices(evidence: Evidence) -> Inspection:
    """No device computed other bits than its equals, or after the span other bits than before it. Of what
    cannot be compared, as one device of each kind, nothing is known, which costs nothing."""
    found = agreement(evidence.replay)
    wrong = [deviation.text for deviation in found.deviations]
    wrong += [
        f"rank {rank} has no device check in leg {leg.index}, though others have"
        for leg in evidence.replay.timed_legs
        for rank in leg.began.ranks
        if leg.checks and rank not in leg.checks  # without any check the leg is unknown
    ]
    if found.unknown:
        return unknown(first_few(found.unknown), wrong)
    return Inspection(found.agreed_text, wrong)


def fabric(evidence: Evidence) -> Inspection:
    """What lies between several hosts was measured, by the ranks that trained. No figure of it convicts."""
    wrong, unmeasured, told = list[str](), list[str](), "all ranks are on one host"
    for leg in evidence.replay.timed_legs:
        hosts, found = {ready.host for ready in leg.devices.values()}, leg.fabric
        if len(hosts) < 2:
            continue
        told = f"measured between {len(hosts):,} hosts before the clock started"
        if found is None or not is_known(found):
            nodes = [node.host for node in found.nodes if node.reason] if found else []
            waited = f": the others waited for {first_few(nodes)}" if nodes else ""
            unmeasured.append(f"the fabric between {len(hosts):,} hosts was not measured{waited}")
        elif {node.host for node in found.nodes} != hosts or found.ranks != len(leg.began.ranks):
            wrong.append(
                f"the fabric was measured by {found.ranks:,} ranks on {len(found.nodes):,} hosts, and "
                f"{len(leg.began.ranks):,} ranks on {len(hosts):,} hosts trained, not all the same"
            )
    if unmeasured and not wrong:
        return unknown(unmeasured[0])
    return inspection_of(evidence.replay.timed_legs, NEVER_STARTED, told, wrong)


def coupled(evidence: Evidence) -> Inspection:
    """How fast the devices of several hosts train together was measured. No figure of it convicts; one that
    other measurements contradict is not known."""
    unmeasured, told = list[str](), "all ranks are on one host"
    for leg in evidence.replay.timed_legs:
        hosts = {ready.host for ready in leg.devices.values()}
        if len(hosts) < 2:
            continue
        share = coupled_share(leg.fabric) if leg.fabric is not None else None
        if leg.fabric is None or share is None:
            why = leg.fabric.coupled.reason if leg.fabric and leg.fabric.coupled else ""
            unmeasured.append("the coupled control was not measured" + (f": {why}" if why else ""))
        elif doubt := coupled_doubt(leg, evidence.task.control):
            unmeasured.append(doubt)
        else:
            told = f"measured between {len(hosts):,} hosts: {share:.2f} of uncoupled"
    if unmeasured:
        return unknown(unmeasured[0])
    return inspection_of(evidence.replay.timed_legs, NEVER_STARTED, told)


def control(evidence: Evidence) -> Inspection:
    """Every device has a control, measured before the clock started, and a ceiling for its work."""
    task = evidence.task
    if task.ranked is None:
        return NO_LIMITS
    network, size = task.control, task.ranked.control_size
    wrong = [
        f"rank {rank} has no {what} in leg {leg.index}"
        for leg in evidence.replay.timed_legs
        for rank in leg.began.ranks
        for what, measured in (("control", leg.controls), ("ceiling", leg.ceilings))
        if rank not in measured
    ]
    controls = [control for leg in evidence.replay.timed_legs for _, control in sorted(leg.controls.items())]
    wrong += [
        f"the control of rank {control.rank} used {network.named(control.network).short}, not {network.short}"
        if control.network
        else f"the control of rank {control.rank} used {network.examples_text.format(control.size)}, not "
        f"{network.size_text.format(size)}"
        for control in controls
        if control.network or control.size != size
    ]
    wrong = list(dict.fromkeys(wrong))  # the same in each leg
    return inspection_of(evidence.replay.released, NEVER_STARTED, "measured on every device", wrong)


def segments(evidence: Evidence) -> Inspection:
    """Credit is given for whole segments, so none may be long, and only the last of a trial may be short."""
    replay = evidence.replay
    least = LEAST_SHARE_OF_AN_EPOCH * replay.manifest.get("training_examples", 0)
    example, closed = evidence.task.example, replay.validations
    attempts, seconds = closed.ordered("attempt"), closed.ordered("train_seconds")
    batch = np.array([attempt.trial.hyper.batch_size for attempt in replay.attempts], dtype=np.int64)
    is_last = np.diff(attempts, append=-1) != 0
    # Whole steps: a segment may lack up to a batch of an eighth.
    few = closed.ordered("train_examples") <= least - batch[attempts]
    short = [closed.row(place) for place in closed.by_attempt[few & (seconds < SEGMENT_SECONDS) & ~is_last]]
    wrong = [
        f"{replay.name_of(row)} was validated after {row.train_examples} {example}s, "
        "less than an eighth of an epoch"
        for row in short
    ]
    wrong += [
        f"{replay.name_of(row)} took {row.train_seconds:.0f} s"
        for row in map(closed.row, closed.by_attempt[seconds > LONGEST_SEGMENT_SECONDS])
    ]
    # Without the hash a later change of a log would not show.
    unhashed = int((~closed.logs.known).sum())
    wrong += [f"no hash of the rank logs at {counted(unhashed, 'validation')}"] if unhashed else []
    text = f"no segment is longer than {LONGEST_SEGMENT_SECONDS:.0f} s"
    return inspection_of(len(closed), "no segment was closed", text, wrong)


def _width(config: Config) -> list[str]:
    """What is wrong with the format of multiplications; empty if nothing."""
    declared = config.training.format
    return [] if declared in SIXTEEN_BITS_OR_MORE else [f"{declared} has fewer than 16 bits"]


def _architecture(config: Config) -> list[str]:
    """What is wrong with the seed, the bounds, the layers and the search; empty if nothing."""
    wrong, limits = [], _limits(config)
    if limits is not None and config.seed_architecture != limits.seed:
        wrong.append(f"the seed is {config.seed_architecture}, not {limits.seed}")
    if config.search.bounds != BoundsConfig():
        wrong.append("search.bounds are not the defaults")
    if config.search.omit:
        wrong.append(f"search.omit leaves out {', '.join(config.search.omit)}")
    if config.search.name not in SEARCHES:
        wrong.append(f"the search {config.search.name!r} comes from another package")
    return wrong


def _random_seed(config: Config) -> list[str]:
    """What is wrong with the random seed; empty if it is that of a season."""
    limits = _limits(config)
    return [] if limits is None else limits.random_seed_faults(config.random_seed)


def _data(config: Config, manifest: Mapping[str, Any]) -> list[str]:
    """What is wrong with the data; empty if they are those of a ranked run."""
    task = task_of(config.data)
    if task.ranked is None:
        return [f"runs of the task {task.name} are never ranked"]
    return list(task.ranked.data_faults(manifest))


def _limits(config: Config) -> RankedLimits | None:
    """The limits of a ranked run of this task; None if it is never ranked."""
    return task_of(config.data).ranked
