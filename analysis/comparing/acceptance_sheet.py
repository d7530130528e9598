"""The acceptance of a machine as a document: what was judged, where, when, and what each node measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from aiperf.score.disturbance import disturbances
from analysis.comparing.acceptance import Acceptance, Judgement, node_controls
from analysis.readings.judgement import Judged
from analysis.readings.outliers import outliers
from analysis.readings.run_tables import devices_and_hosts


@dataclass(frozen=True)
class NodeFigures:
    """What one node measured over all runs: the worst of them. None if a run did not measure it."""

    node: str
    ranks: int
    """Most ranks of the node in one run."""
    control: float | None
    """Rate of its slowest control as a share of the median of all ranks."""
    others: float | None
    """Share of its CPU time that other programs used."""
    stopped_seconds: float | None
    """How long processes of one run were stopped."""
    slow: int
    """Times that a rank or a group of it was an outlier."""
    not_passed: tuple[str, ...]
    """Names of the criteria that the node failed, or of which its figure is unknown."""


@dataclass(frozen=True)
class RunFacts:
    """One run of the sheet."""

    run: str
    began: str
    """ISO 8601."""
    span_seconds: float
    random_seed: int
    run_class: str
    ops_per_second: float


@dataclass(frozen=True)
class Sheet:
    """An acceptance with all that a page about it states."""

    found: Acceptance
    made: str
    """When it was judged, ISO 8601."""
    machine: str
    """The name of the machine, and its owner; empty if they are not known."""
    owner: str
    devices: str
    program: str
    criteria: str
    """Name of the file with the criteria."""
    runs: Sequence[RunFacts]
    nodes: Sequence[NodeFigures]
    """One entry per node, sorted by name."""


def acceptance_sheet(
    found: Acceptance, runs: Sequence[Judged], made: datetime, names: tuple[str, str], criteria: str
) -> Sheet:
    """`names`: of the machine and of its owner."""
    first = runs[0].replay
    return Sheet(
        found=found,
        made=made.isoformat(timespec="seconds"),
        machine=names[0],
        owner=names[1],
        devices=devices_and_hosts(first),
        program=first.opened.program,
        criteria=criteria,
        runs=[_facts(run) for run in runs],
        nodes=list(_nodes(found.judgements, runs)),
    )


def _facts(run: Judged) -> RunFacts:
    opened = run.replay.opened
    return RunFacts(
        opened.run_id,
        run.began,
        run.replay.span_seconds,
        opened.config.random_seed,
        run.verdict.class_text,
        run.score.ops_per_second,
    )


def _nodes(judgements: Sequence[Judgement], runs: Sequence[Judged]) -> Iterator[NodeFigures]:
    controls = [node_controls(run.replay) for run in runs]
    disturbed = [{each.host: each for each in disturbances(run.replay)} for run in runs]
    slow = [host for run in runs for one in outliers(run.replay) for host in one.hosts]
    ranks = [[ready.host for ready in run.replay.devices.values()] for run in runs]
    wrong: dict[str, dict[str, None]] = {}
    for each in judgements:
        for host in each.node.split(", ") if each.node and not each.passed else ():
            wrong.setdefault(host, {})[each.criterion] = None
    for host in sorted({host for hosts in ranks for host in hosts}):
        known = [each[host] for each in disturbed if host in each and each[host].known]
        seen = len(known) == len(runs)
        yield NodeFigures(
            node=host,
            ranks=max(hosts.count(host) for hosts in ranks),
            control=_least([each.get(host) for each in controls]),
            others=max(each.others for each in known) if seen else None,
            stopped_seconds=max(each.stopped_seconds for each in known) if seen else None,
            slow=slow.count(host),
            not_passed=tuple(wrong.get(host, ())),
        )


def _least(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None
