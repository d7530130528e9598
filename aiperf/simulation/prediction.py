"""A run compared with its simulation: what was measured, what is modelled, and the difference."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aiperf.errors import JournalError
from aiperf.journal.replay import Replay
from aiperf.pretending.assumptions import Assumptions
from aiperf.pretending.group_model import GroupExtent, Learnt, Pretended
from aiperf.pretending.rank_report import ASSUMPTIONS
from aiperf.score.credit import credit, work
from aiperf.score.example_counts import recorded
from aiperf.score.lineage import rebuilt
from aiperf.simulation.load_figures import shares_of_time
from aiperf.simulation.simulated_machine import SimulatedMachine
from aiperf.wording import figure, percent, rate
from nas.frozen import frozen
from nas.graph import Graph
from nas.record import graph_from_json


@frozen
class Throughput:
    """The figures of a run that are compared."""

    utilisation: float
    """Share of the groups' time in which they trained or validated."""
    trials: int
    """Number of trials that ended by themselves."""
    steps_per_second: float
    examples_per_second: float
    """Examples trained and examples validated, together."""
    ops_per_second: float
    """Sustained OPS."""


def machine_of(replay: Replay) -> SimulatedMachine:
    """The machine of a run, from the ranks that were ready. Raises JournalError if its nodes are not equal.
    The last leg with a span is taken."""
    if not replay.legs or not replay.counted_legs[-1].first_devices:
        raise JournalError(
            f"run {replay.opened.run_id}: no rank was ready, so there is no machine to simulate"
        )
    leg = replay.counted_legs[-1]
    hosts = {rank: ready.host for rank, ready in leg.first_devices.items()}
    nodes, ranks, group = len(set(hosts.values())), len(hosts), len(leg.began.groups[0])
    if ranks % nodes:
        raise JournalError(f"run {replay.opened.run_id}: its nodes differ, so it cannot be simulated")
    within = -(-group // (ranks // nodes))  # the fewest nodes that have so many devices
    return SimulatedMachine(nodes, ranks // nodes, group, spread=len(leg.hosts_of(0)) > within)


def throughput(replay: Replay) -> Throughput:
    """The figures of a run. Raises JournalError if it has no span."""
    span = replay.span_seconds
    if span <= 0:
        raise JournalError(f"run {replay.opened.run_id} has no span, so there is nothing to compare")
    counts = {number: recorded(story.attempts[0].dispatched) for number, story in replay.trials.items()}
    done = work(replay, counts, credit(replay))
    complete = sum(attempt.state.value == "COMPLETE" for attempt in replay.attempts)
    return Throughput(
        utilisation=shares_of_time(replay)[0],
        trials=complete,
        steps_per_second=done.steps / span,
        examples_per_second=(done.trained_examples + done.validated_examples) / span,
        ops_per_second=done.operations / span,
    )


def work_seconds(replay: Replay, assumptions: Assumptions) -> tuple[float, float]:
    """Time of this run's work in seconds, summed over all groups: as measured, and as assumed for the same
    networks. It does not depend on the networks that the search finds in a simulation. It needs no
    simulation: the networks of the run are given to the model one by one."""
    opened, leg, manifest = replay.opened, replay.counted_legs[-1], replay.manifest
    ranks = len(leg.began.groups[0])
    # The mean of the lognormal factor of a block, whose median is 1.
    usual = math.exp(assumptions.spread.block**2 / 2)
    # By the group and not by its ranks: a launcher may have dealt these to the nodes in turn.
    places = machine_of(replay).places
    first = [place for place in places if place.rank in places[0].group]
    extent, seed = GroupExtent.of(first, assumptions.fabric), graph_from_json(opened.seed_graph)
    pretended = Pretended(assumptions, opened.config, seed, manifest, ranks, extent=extent)
    networks = _networks(replay, pretended.seed, assumptions)
    was = modelled = 0.0
    for attempt, trained in zip(replay.attempts, replay.worked().seconds.tolist()):
        network = networks.get(attempt.trial.number)
        if network is None or not attempt.steps:
            continue
        step = pretended.step_seconds(network, attempt.trial.hyper.batch_size)
        modelled += attempt.steps * step * usual + assumptions.trials.first_step_seconds
        was += trained
        for row in attempt.rows:
            modelled += pretended.validate_seconds(network, row.of)
            was += row.validate_seconds
    return was, modelled


def _networks(replay: Replay, seed: Graph, assumptions: Assumptions) -> dict[int, Learnt]:
    """The networks of a run, by trial. If these assumptions made the run, the rate of each is known that was
    drawn for it; otherwise each has the rate of the model."""
    made_it = replay.ranks[0].ready.settings.get(ASSUMPTIONS) == assumptions.name
    found: dict[int, Learnt] = {}
    for entry in rebuilt(replay):
        if entry.graph is None:
            continue
        network, parent = Learnt(entry.graph), entry.trial.parent
        if made_it:
            network = (Learnt(seed) if parent is None else found[parent]).child(
                entry.trial, assumptions.spread
            )
        found[entry.trial.number] = network
    return found


def prediction_rows(
    measured: Throughput,
    modelled: Throughput,
    others: Sequence[Throughput],
    same_work: tuple[float, float],
    origin: str = "measured",
) -> list[list[str]]:
    """The rows of a table, headings first: the run, the simulation with its random seed, and the range of
    those with other seeds. `origin` is the heading of the run, which may itself not be measured."""
    rows = [["", origin, "modelled", "error", "others from", "to"]]
    for name, words in (
        ("utilisation", percent),
        ("trials", figure),
        ("steps_per_second", figure),
        ("examples_per_second", figure),
        ("ops_per_second", rate),
    ):
        was, found = getattr(measured, name), getattr(modelled, name)
        rest = sorted(getattr(each, name) for each in others)
        ends = [words(rest[0]), words(rest[-1])] if rest else ["", ""]
        heading = "trials complete" if name == "trials" else name.replace("_", " ")
        rows.append([heading, words(was), words(found), _error(was, found), *ends])
    was, assumed = same_work
    rows.append(["seconds of the same work", figure(was), figure(assumed), _error(was, assumed), "", ""])
    return rows


def _error(measured: float, modelled: float) -> str:
    """The relative error of a model in per cent; never "-0.0 %"."""
    return f"{round(100 * (modelled / measured - 1), 1) + 0.0:+.1f} %" if measured else "unknown"
