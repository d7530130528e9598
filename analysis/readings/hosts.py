"""The ranks of a run: hosts, devices, clocks and how fast each trained the control; what each group does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import fsum

from aiperf.journal.attempts import Attempt, Leg
from aiperf.journal.columns import Worked
from aiperf.journal.events import RankReady
from aiperf.journal.replay import Replay
from aiperf.proposing.plan import plan
from aiperf.score.rungs import Controls, comparable, controls_of
from aiperf.tasks.registry import task_of
from aiperf.tasks.task import Amount, ControlNetwork, Task
from aiperf.wire.clocks import ClockReading
from aiperf.wire.trial import State, origin
from aiperf.wording import figure
from analysis.table import Cell, Table
from nas.frozen import frozen

RANKS_SHOWN = 64
"""Most ranks that are shown one by one; of more, the hosts are shown."""


@frozen
class ControlReading:
    """How fast the control network was trained, in the task's unit of rates."""

    amount: Amount
    """The unit of rates, such as images."""
    per_second: float
    """Rate of all devices together."""
    slowest: float
    """Rate of the slowest device."""
    slowest_host: str
    """Its host."""
    network: str
    """ "ResNet-50 v1.5 at 224²", or "… at 64² and 112²" where devices were too slow for more."""
    sizes: str
    """Sizes of its examples, "224²"; with a smaller network "windows of 64 bytes by gpt-4x128"."""

    @property
    def text(self) -> str:
        """The rate with its unit."""
        return f"{figure(self.per_second)} {self.amount.name}/s"


def control_reading(replay: Replay) -> ControlReading | None:
    """The control at a rung that all ranks have; as each rank measured it if they have none in common."""
    return reading_of(task_of(replay.opened.config.data), comparable(controls_of(replay)))


def reading_of(task: Task, controls: Controls) -> ControlReading | None:
    """The reading of the controls by rank; None if no rank measured one."""
    if not controls:
        return None
    rates = _rates(task.amount, controls)
    slowest = min(rates, key=lambda rank: (rates[rank], rank))
    sizes: dict[ControlNetwork, list[int]] = {}
    for control in sorted(controls.values(), key=lambda control: control.network):
        sizes.setdefault(task.control.named(control.network), []).append(control.size)
    return ControlReading(
        amount=task.amount,
        per_second=fsum(rates.values()),
        slowest=rates[slowest],
        slowest_host=controls[slowest].host,
        network=" and ".join(f"{network.name} at {network.at(of)}" for network, of in sizes.items()),
        sizes=" and ".join(
            network.at(of) + ("" if network is task.control else f" by {network.short}")
            for network, of in sizes.items()
        ),
    )


@frozen
class GroupNow:
    """What one group is doing."""

    group: int
    host: str
    """Host of its leader, and how many more it has."""
    doing: str
    """training, waiting or lost."""
    trial: int | None
    origin: str
    """The morphisms that made the trial's network."""
    share: float
    """Share of the trial's planned steps that is done."""
    epochs: int
    """Epochs that are planned for the trial."""
    error: float | None
    """Lowest validation error of the trial so far."""
    per_second: float | None
    """Rate of its training, in the unit that the snapshot names; None before the first block."""


def hosts(replay: Replay) -> Table:
    """One row per rank, or per host if there are many ranks: its devices and how the control ran there."""
    ranks = {event.ready.rank: event for leg in replay.counted_legs for event in leg.ranks}
    amount = task_of(replay.opened.config.data).amount
    rates = _rates(amount, comparable(controls_of(replay)))
    return (_by_host if len(ranks) > RANKS_SHOWN else _by_rank)(ranks, amount, rates)


def _by_host(ranks: Mapping[int, RankReady], amount: Amount, rates: Mapping[int, float]) -> Table:
    """A row for each host. Of its clocks the one that is furthest off is shown."""
    of_host: dict[str, list[RankReady]] = {}
    for event in ranks.values():
        of_host.setdefault(event.ready.host, []).append(event)
    cells: list[list[Cell]] = []
    for host, events in sorted(of_host.items()):
        known = [rates[event.ready.rank] for event in events if event.ready.rank in rates]
        clock = max((event.clock for event in events), key=lambda each: abs(each.offset_seconds))
        devices = Counter(event.ready.device for event in events)
        named = ", ".join(f"{num} × {device}" for device, num in sorted(devices.items()))
        slowest, together = (_rate(function(known) if known else None, amount) for function in (min, sum))
        cells.append([host, named, slowest, together, _offset(clock)])
    columns = ("host", "devices", "control, slowest", "control, all", "clock")
    return Table.of(columns, cells, (False, False, True, True, True))


def _by_rank(ranks: Mapping[int, RankReady], amount: Amount, rates: Mapping[int, float]) -> Table:
    """A row for each rank."""
    cells: list[list[Cell]] = []
    for rank, event in sorted(ranks.items()):
        ready, rate = event.ready, _rate(rates.get(rank), amount)
        cells.append([str(rank), ready.host, str(event.group), ready.device, rate, _offset(event.clock)])
    columns = ("rank", "host", "group", "device", "control", "clock")
    return Table.of(columns, cells, (True, False, True, False, True, True))


def _rates(amount: Amount, controls: Controls) -> dict[int, float]:
    """The control's rate by rank, in the unit of `amount`."""
    return {
        rank: amount.rate(control.examples_per_second, control.size) for rank, control in controls.items()
    }


def _rate(per_second: float | None, amount: Amount) -> Cell:
    """The rate of a control, by which the cell is sorted."""
    if per_second is None:
        return "not measured", 0.0
    return f"{figure(per_second)} {amount.name}/s", per_second


def _offset(clock: ClockReading) -> Cell:
    """How far a clock is from the master's, with the uncertainty of that, in milliseconds."""
    around = f" ± {1000 * clock.uncertainty_seconds:.1f}" if clock.uncertainty_seconds else ""
    return f"{1000 * clock.offset_seconds:+.1f}{around} ms", clock.offset_seconds


def nodes_of(leg: Leg) -> set[str]:
    """The hosts of the ranks of a leg and of its master, if the journal names the master's."""
    return {event.ready.host for event in leg.ranks} | ({leg.began.host} - {""})


def num_nodes(replay: Replay) -> int:
    """Most nodes of one leg that was timed."""
    return max((len(nodes_of(leg)) for leg in replay.timed_legs), default=0)


def groups_now(replay: Replay) -> tuple[GroupNow, ...]:
    """What each group of the last leg is doing."""
    leg, running, worked = replay.leg, replay.running, replay.worked()
    return tuple(
        _group(replay, worked, group, _hosts_text(leg, group), running.get(group))
        for group in range(leg.groups)
    )


def _hosts_text(leg: Leg, group: int) -> str:
    """ "node1", or "node1 and 3 more"."""
    hosts = leg.hosts_of(group)
    more = f" and {len(hosts) - 1:,} more" if len(hosts) > 1 else ""
    return f"{hosts[0]}{more}" if hosts else "unknown"


def _group(replay: Replay, worked: Worked, group: int, host: str, attempt: Attempt | None) -> GroupNow:
    """What a group does. How much of the trial is done is only known if the ranks said how many examples
    there are."""
    leg = replay.leg
    if attempt is None or attempt.state is not State.RUNNING:
        gone = group not in leg.alive and any(loss.group == group for loss in leg.losses)
        return GroupNow(group, host, "lost" if gone else "waiting", None, "", 0.0, 0, None, None)
    amount, size = task_of(replay.opened.config.data).amount, replay.opened.config.data.size
    of = leg.ranks[0].ready.data.get("training_examples")
    examples, seconds = float(worked.examples[attempt.index]), float(worked.seconds[attempt.index])
    planned = plan(attempt.trial, replay.opened.config.training, of) if type(of) is int else None
    return GroupNow(
        group=group,
        host=host,
        doing="training",
        trial=attempt.trial.number,
        origin=origin(attempt.trial),
        share=min(1.0, attempt.steps / planned.steps) if planned and planned.steps > 0 else 0.0,
        epochs=attempt.trial.epochs,
        error=attempt.error,
        per_second=amount.rate(examples / seconds, size) if seconds > 0 else None,
    )
