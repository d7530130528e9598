"""Assumptions that follow from a run: what its journal shows of the machine, and what one run cannot show. A
simulation with these assumptions is compared with the run by `prediction.py`. What a run cannot show is
listed with its reason, and keeps the assumption that was given."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.config import TrainingConfig
from aiperf.errors import JournalError
from aiperf.journal.events import Dispatched, Ended, Line
from aiperf.journal.mark import mark_of
from aiperf.journal.replay import Replay
from aiperf.pretending.assumptions import (
    COLD,
    AllReduce,
    Assumptions,
    ErrorLaws,
    Errors,
    Messages,
    NodeNetwork,
    Speed,
    Spread,
    StartUp,
    Storage,
    Trials,
)
from aiperf.score.fabric import fabric_of, is_known, within_hosts
from aiperf.simulation.fits import (
    FromRun,
    NetworkSize,
    TimedAttempt,
    block_spread,
    first_step_seconds,
    fitted_errors,
    fitted_speed,
    network_spread,
    networks_of,
    not_negative,
    of_median,
    segment_work,
    step_seconds,
    timed_attempts,
    with_validation,
)
from aiperf.simulation.simulated_machine import kept_bytes
from aiperf.tasks.registry import task_of
from aiperf.wording import counted
from nas.frozen import frozen

LEAST_HOSTS = 4
"""Minimum number of hosts from which the differences between nodes are estimated. Fewer are assumed to be
equal."""

LEAST_CHILDREN = 8
"""Minimum number of trials from which the differences between networks of equal size are estimated. Fewer
leave the assumption that was given."""

NO_LIMIT = 1e18
"""Bytes per second of a transfer whose time is part of another figure."""

Array = NDArray[Any]


@frozen
class Calibration:
    """The assumptions of a run, and which of their numbers are from the run."""

    assumptions: Assumptions
    found: tuple[FromRun, ...]


def calibrate(lines: Iterable[Line], otherwise: Assumptions) -> Calibration:
    """The assumptions under which a simulation comes out as this run did. What a run does not show is taken
    from `otherwise`. Raises JournalError for a run that credits nothing."""
    replay, proposals = _read(lines)
    closed = [attempt for attempt in replay.attempts if attempt.num_closed]
    if not closed or replay.leg.released is None:
        raise JournalError(f"run {replay.opened.run_id} has no validated trial, so nothing can be calibrated")
    ready = replay.ranks[0].ready
    ranks = len(replay.leg.began.groups[0])
    networks = networks_of(replay, ranks)
    timed = timed_attempts(closed, networks, replay, ranks)
    segments = segment_work(timed)
    if not segments:
        raise JournalError(f"run {replay.opened.run_id} has no trial of several steps; a longer one has")
    speed, of_speed = fitted_speed(segments)
    speed, of_validation = with_validation(segments, speed, ranks)
    blocks = block_spread(replay)
    parts: list[Part] = [
        ({"speed": of_median(speed, blocks)}, (of_speed, of_validation)),
        _group(ranks, replay, otherwise.group),
        _fabric(replay, otherwise.fabric),
        _storage(timed, replay.opened.config.training, otherwise.storage),
        _trials(replay, first_step_seconds(timed, speed)),
        _spread(timed, speed, blocks, network_spread(timed, segments, speed, blocks), otherwise.spread),
        _devices(ranks),
        _startup(replay, otherwise.startup),
        _messages(proposals, otherwise.messages),
        errors_of(replay, networks, otherwise.errors),
    ]
    changes: dict[str, Any] = {}
    for part in parts:
        changes |= part[0]
    run, mark = replay.opened.run_id, mark_of(replay.opened.origin)
    origin = f"{mark.word} " if mark else ""
    groups = counted(len(replay.leg.began.groups), "group")
    found = replace(
        otherwise,
        name=f"as run {run}",
        source=f"calibrated by {origin}run {run}: {groups} of {ranks} on {ready.device}",
        device=f"modelled {ready.device.removeprefix('modelled ')}",
        memory_bytes=ready.memory_bytes,
        format=replay.opened.config.training.format,
        **changes,
    )
    unknown = (
        FromRun("data", "as assumed: what steps waited for their images is within `speed`", known=False),
        FromRun("failures", f"as {otherwise.name}: one run has too few to count", known=False),
    )
    return Calibration(found, (*(each for part in parts for each in part[1]), *unknown))


Part = tuple[Mapping[str, Any], tuple[FromRun, ...]]
"""Fields of the assumptions that change, by name, and the account of them."""


def _read(lines: Iterable[Line]) -> tuple[Replay, list[float]]:
    """The run, and how long the master took for each new candidate. The first trials are not counted: one for
    each group was proposed before the clock started."""
    replay, proposals = Replay(), []
    before: Line | None = None
    for line in lines:
        replay.add_line(line)
        # In one turn: what ended made room, or the candidate before was written.
        event = line.event
        new = isinstance(event, Dispatched) and event.attempt == 1 and event.trial.number >= replay.leg.groups
        if new and before is not None and isinstance(before.event, (Dispatched, Ended)):
            proposals.append(line.t - before.t)
        before = line
    return replay, proposals


def _group(ranks: int, replay: Replay, otherwise: AllReduce) -> Part:
    """The all-reduce of a group, whose time is part of the steps that were measured. Of a run whose ranks
    trained alone, it is that of the fabric within nodes, if it was measured. `ranks` is the number of ranks
    of a group."""
    fabric = fabric_of(replay)
    within = within_hosts(fabric) if fabric and is_known(fabric) else []
    if ranks == 1 and fabric and within:
        rate = float(np.median([bytes_per_second for *_, bytes_per_second in within]))
        latency = float(np.median([node.within[0].seconds for node in fabric.nodes if node.within]))
        text = f"{rate:.4g} B/s, {latency:.3g} s: all-reduces within {counted(len(within), 'host')}"
        found = replace(otherwise, all_reduce_bytes_per_second=rate, all_reduce_seconds=latency)
        return {"group": found}, (FromRun("group", f"{text}; `overlap` is as assumed"),)
    if ranks == 1:
        return {}, (FromRun("group", "as assumed: no two ranks of it trained together", known=False),)
    free = replace(otherwise, all_reduce_seconds=0.0, all_reduce_bytes_per_second=NO_LIMIT)
    text = f"within `speed`, for groups of {ranks} only: one run has one size of groups"
    return {"group": free}, (FromRun("group", text),)


def _fabric(replay: Replay, otherwise: NodeNetwork) -> Part:
    """What joins the nodes, as the run measured it before its clock started (`aiperf.score.fabric`)."""
    measured, most = fabric_of(replay), max(len(replay.leg.hosts_of(g)) for g in range(replay.leg.groups))
    if most > 1:
        free = NodeNetwork(NO_LIMIT)
        text = f"within `speed`, for groups over {most} hosts only: one run has one size of groups"
        return {"fabric": free}, (FromRun("fabric", text),)
    hosts = 0 if measured is None else len(measured.nodes)
    if measured is None or hosts < 2 or not is_known(measured):
        why = "one host" if hosts == 1 else "it was not measured"
        return {}, (FromRun("fabric", f"as assumed: {why}", known=False),)
    # Hosts exchange at half of the width first, and with their neighbours in the round of distance 1.
    near = float(np.median(measured.rounds[hosts.bit_length() - 2]))
    ratio = max(1.0, near / float(np.median(measured.rounds[0])))
    hop = measured.over_all[0].seconds / (2 * hosts)
    found = NodeNetwork(near, otherwise.nodes_a_switch, ratio, hop)
    of_pairs = f"{hop:.3g} s a hop: pairs of {hosts} hosts"
    text = f"{near:.4g} B/s of a node, oversubscribed {ratio:.3g} times, {of_pairs}"
    switches = FromRun("fabric.nodes_a_switch", "as assumed: pairs do not show switches", known=False)
    if not 0 < otherwise.nodes_a_switch < hosts:  # then the pairs at half of the width may share a switch
        found = replace(found, oversubscription=otherwise.oversubscription)
        text = f"{near:.4g} B/s of a node, {of_pairs}"
        switches = FromRun(
            "fabric.oversubscription, nodes_a_switch",
            "as assumed: too few hosts to show switches",
            known=False,
        )
    return {"fabric": found}, (FromRun("fabric", text), switches)


def _storage(timed: Sequence[TimedAttempt], training: TrainingConfig, otherwise: Storage) -> Part:
    """The file system, by the time from the end of a trial to the news of it: its weights were written then.
    Least squares over opening time and bytes."""
    wrote = [
        (kept_bytes(each.network.parameters, training), seconds)
        for each in timed
        if each.attempt.ended is not None and each.attempt.end_time is not None
        if (seconds := each.attempt.end_time - each.attempt.ended) > 0
    ]
    if not wrote:
        return {}, (FromRun("storage", "as assumed: no weights were written", known=False),)
    rows = np.array([(1.0, content) for content, _ in wrote])
    opening, byte = not_negative(rows, np.array([seconds for _, seconds in wrote]), needed=0)
    client = 1 / byte if byte else otherwise.client_bytes_per_second
    storage = replace(
        otherwise,
        open_seconds=float(opening),
        client_bytes_per_second=client,
        bytes_per_second=max(otherwise.bytes_per_second, client),
    )
    text = f"{opening:.3g} s a file and {client:.3g} B/s of a node: {len(wrote)} files written, ways included"
    account = (
        FromRun("storage", text),
        FromRun("storage.bytes_per_second", "as assumed: of all nodes", known=False),
    )
    return {"storage": storage}, account


def _trials(replay: Replay, first_step: float) -> Part:
    """Times of a trial that are not work: its time since the end of the trial before, less what it trained
    and validated."""
    gaps, prepares, trained = [], [], replay.worked().seconds
    ordered = sorted(replay.attempts, key=lambda each: (each.leg.index, each.group, each.index))
    for _, attempts in groupby(ordered, key=lambda each: (each.leg.index, each.group)):
        begun = [each for each in attempts if each.began is not None]
        prepares += [each.prepare_seconds for each in begun[:1]]
        for before, each in pairwise(begun):
            # If the next trial was dispatched by then, the group did not wait for the master.
            if before.ended is not None and each.ended is not None and each.dispatch_time <= before.ended:
                validated = sum(row.validate_seconds for row in each.rows)
                gaps.append(each.ended - before.ended - trained[each.index] - validated)
    gap = max(0.0, float(np.mean(gaps))) if gaps else 0.0
    prepare = float(np.median(prepares)) if prepares else 0.0
    account = (
        FromRun(
            "trials.gap_seconds",
            f"{gap:.4g}: mean of {counted(len(gaps), 'trial')}, all that is neither work",
        ),
        FromRun("trials.first_step_seconds", f"{first_step:.4g}: mean, more than the others"),
        FromRun(
            "trials.prepare_seconds", f"{prepare:.4g}: first trials of {counted(len(prepares), 'group')}"
        ),
    )
    return {"trials": Trials(gap, prepare, first_step)}, account


def _spread(
    timed: Sequence[TimedAttempt],
    speed: Speed,
    blocks: float,
    of_networks: tuple[float, int],
    otherwise: Spread,
) -> Part:
    """How much blocks, nodes and networks differ. `of_networks`: as `network_spread` returns it."""
    seconds: dict[str, list[float]] = {}
    for each in timed:
        step = step_seconds(speed, each.network, each.step_operations)
        took = seconds.setdefault(each.host, [0.0, 0.0])
        took[0] += sum(row.train_seconds for row in each.attempt.rows)
        took[1] += step * each.attempt.validated_steps
    node = float(np.std([math.log(took / foreseen) for took, foreseen in seconds.values() if took > 0]))
    found = [
        FromRun("spread.block", f"{blocks:.3g}: of {counted(len(timed), 'trial')}, robust"),
        FromRun("spread.node", f"{node:.3g}: {len(seconds)} hosts"),
    ]
    if len(seconds) < LEAST_HOSTS:
        why = f"0: {counted(len(seconds), 'host')}, too few to compare, so all are taken to be equal"
        node, found[1] = 0.0, FromRun("spread.node", why, known=False)
    network, children = of_networks
    pairs = f"{counted(children, 'trial')} whose parent trained on the same host"
    if children < LEAST_CHILDREN:
        network = otherwise.network
        found.append(FromRun("spread.network", f"as assumed: {pairs}, too few to compare", known=False))
    else:
        found.append(FromRun("spread.network", f"{network:.3g}: {pairs}, robust"))
    return {"spread": Spread(node, blocks, network, otherwise.lineage)}, tuple(found)


def _devices(ranks: int) -> Part:
    """Differences between devices and between moments of the run that no figure of it shows by themselves:
    they are in its speed. `_spread` leaves those between devices at 0."""
    waited = f"within `speed`, for groups of {ranks} only" if ranks > 1 else "devices are taken to be equal"
    return {"heat": COLD}, (
        FromRun("spread.device, step", f"0: {waited}", known=ranks > 1),
        FromRun("heat", "none: clocks as they fell are within `speed`"),
    )


def _startup(replay: Replay, otherwise: StartUp) -> Part:
    """The time before the clock starts. The growth with the number of ranks needs runs of several sizes.
    `released` is the start of the clock; what lies between the last rank's readiness and it is taken for the
    measurements."""
    leg = replay.leg
    assert leg.released is not None
    ready = max((t for t, _ in leg.arrivals if t <= leg.released), default=0.0)
    num = sum(map(len, leg.began.groups))
    growing = otherwise.seconds_a_rank * num + otherwise.seconds_a_rank_squared * num**2
    fixed, measuring = max(0.0, ready - growing), leg.released - ready
    growth = f"growth with the ranks is as assumed: the run had {counted(num, 'rank')}"
    account = (
        FromRun("startup.seconds", f"{fixed:.4g}: all were ready after {ready:.4g} s"),
        FromRun("startup.measuring_seconds", f"{measuring:.4g}"),
        FromRun("startup.seconds_a_rank", growth, known=False),
    )
    return {"startup": replace(otherwise, seconds=fixed, measuring_seconds=measuring)}, account


def _messages(proposals: Sequence[float], otherwise: Messages) -> Part:
    """The master's time for a proposal; when a message left or arrived, a journal does not record."""
    why = "as assumed: a journal does not tell; --measure-master measures it here"
    unknown = FromRun("messages.seconds, master_seconds", why, known=False)
    if not proposals:
        return {}, (unknown,)
    seconds = max(0.0, float(np.median(proposals)))
    text = f"{seconds:.4g}: median of {len(proposals)}"
    return {"messages": replace(otherwise, proposal_seconds=seconds)}, (
        FromRun("messages.proposal_seconds", text),
        unknown,
    )


def errors_of(
    replay: Replay, networks: Mapping[int, NetworkSize], otherwise: ErrorLaws
) -> tuple[Mapping[str, ErrorLaws], tuple[FromRun, ...]]:
    """The law of errors of the run's task, from all its validations. The law of the other task stays as it
    was. An error above 1, which a text can have, counts as 1."""
    points = []
    examples: dict[int | None, int] = {None: 0}
    for number, story in sorted(replay.trials.items()):
        attempt, before = story.attempts[-1], examples.get(story.trial.parent, 0)
        best = attempt.best_validation
        examples[number] = before
        for examples_so_far, error in attempt.curve:
            if number in networks:
                points.append((before + examples_so_far, networks[number].relative, min(1.0, error), number))
            # A child continues from the best validation of its parent, so the lineage has its examples up to
            # there.
            if best is not None and error == best.segment.unbounded and examples[number] == before:
                examples[number] = before + examples_so_far
    data = replay.opened.config.data
    task = task_of(data)
    errors: Errors = fitted_errors(points, task.chance(data.classes))
    text = (
        f"floor {errors.floor:.3g}, examples {errors.examples:.3g}, power {errors.power:.3g}, size_power "
        f"{errors.size_power:.3g}, spread {errors.spread:.3g}: least squares over {len(points)} validations"
    )
    return {"errors": replace(otherwise, **{task.error_law: errors})}, (FromRun(f"errors.{task.name}", text),)
