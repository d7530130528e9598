"""The answer of `accept` for a terminal, as JSON and JUnit's XML, and as the data of a sheet to sign."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from xml.etree import ElementTree

from aiperf.score.disturbance import disturbances
from aiperf.wording import counted, plain
from analysis.comparing.acceptance import Acceptance, Judgement, least, node_controls
from analysis.readings.judgement import Judged
from analysis.readings.outliers import outliers
from analysis.readings.run_tables import devices_and_hosts
from analysis.table import aligned
from nas.frozen import frozen

FORM = "aiperf-hpc/acceptance/1"


@frozen
class NodeFigures:
    """What one node measured over all runs: the worst of them. None if a run did not measure it."""

    node: str
    """Name of the host."""
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


@frozen
class RunFacts:
    """One run of the sheet."""

    run: str
    began: str
    """ISO 8601."""
    span_seconds: float
    """Length of the scored span."""
    random_seed: int
    run_class: str
    """ranked or smoke."""
    ops_per_second: float
    """Sustained OPS."""

    @classmethod
    def of(cls, run: Judged) -> RunFacts:
        """The facts of a run that was judged."""
        opened, seconds = run.replay.opened, run.replay.span_seconds
        seed, class_text = opened.config.random_seed, run.verdict.class_text
        return cls(opened.run_id, run.began, seconds, seed, class_text, run.score.ops_per_second)


@frozen
class Sheet:
    """An acceptance with all that a page about it states."""

    found: Acceptance
    made: str
    """When it was judged, ISO 8601."""
    machine: str
    """The name of the machine, and its owner; empty if they are not known."""
    owner: str
    devices: str
    """Number and names of the devices, and the number of hosts."""
    program: str
    """Version of aiperf-hpc that made the first run."""
    criteria: str
    """Name of the file with the criteria."""
    runs: Sequence[RunFacts]
    nodes: Sequence[NodeFigures]
    """One entry per node, sorted by name."""


def acceptance_sheet(
    found: Acceptance, runs: Sequence[Judged], made: datetime, names: tuple[str, str], criteria: str
) -> Sheet:
    """The sheet of what was judged at the time `made`. `names` are those of the machine and of its owner."""
    first = runs[0].replay
    return Sheet(
        found=found,
        made=made.isoformat(timespec="seconds"),
        machine=names[0],
        owner=names[1],
        devices=devices_and_hosts(first),
        program=first.opened.program,
        criteria=criteria,
        runs=[RunFacts.of(run) for run in runs],
        nodes=list(_nodes(found.judgements, runs)),
    )


def _nodes(judgements: Sequence[Judgement], runs: Sequence[Judged]) -> Iterator[NodeFigures]:
    """What each node measured. A figure is only stated if every run measured it there; else a node that was
    left out of one run would look better than it is."""
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
            control=least([each.get(host) for each in controls]),
            others=max(each.others for each in known) if seen else None,
            stopped_seconds=max(each.stopped_seconds for each in known) if seen else None,
            slow=slow.count(host),
            not_passed=tuple(wrong.get(host, ())),
        )


def acceptance_text(found: Acceptance) -> str:
    """A line for each judgement, what did not pass first, and the answer at the end."""
    rows = [(outcome(each.passed), each.criterion, plain(each.where), each.text) for each in shown(found)]
    table = aligned(rows, [False] * 4)
    return f"{table}\n\n{answer_text(found)}, {counted(len(found.runs), 'run')}\n"


def answer_text(found: Acceptance) -> str:
    """ "ACCEPTED", or how many of all checks did not pass. A criterion is checked for each run and node that
    it judges."""
    if found.passed:
        return "ACCEPTED"
    wrong = sum(not each.passed for each in found.judgements)
    return f"NOT ACCEPTED: {wrong} of {len(found.judgements)} checks did not pass"


def acceptance_json(sheet: Sheet) -> str:
    """The judgements and what each node measured, for other programs."""
    found = sheet.found
    content = {
        "form": FORM,
        "accepted": found.passed,
        "runs": found.runs,
        "made": sheet.made,
        "machine": {"name": plain(sheet.machine), "owner": plain(sheet.owner), "devices": sheet.devices},
        "criteria": [asdict(each) for each in found.judgements],
        "nodes": [asdict(each) for each in sheet.nodes],
    }
    return json.dumps(content, indent=1) + "\n"


def acceptance_junit(sheet: Sheet) -> str:
    """JUnit's XML, one case for each judgement, as continuous-integration servers read it."""
    found = sheet.found
    wrong = [each for each in found.judgements if not each.passed]
    numbers = {"tests": str(len(found.judgements)), "failures": str(len(wrong))}
    suite = ElementTree.Element("testsuite", {"name": "aiperf-hpc accept"} | numbers)
    for each in found.judgements:
        case = ElementTree.SubElement(suite, "testcase", classname=plain(each.where), name=each.criterion)
        text = f"{outcome(each.passed)}: {each.text}"
        if not each.passed:
            ElementTree.SubElement(case, "failure", message=plain(text))
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def shown(found: Acceptance) -> Iterator[Judgement]:
    """Nodes that pass one criterion of one run are one line: there may be thousands."""
    yield from (each for each in found.judgements if not each.passed)
    nodes = Counter((each.criterion, each.run) for each in found.judgements if each.passed and each.node)
    for each in found.judgements:
        if each.passed and not each.node:
            yield each
        elif each.passed and (num := nodes.pop((each.criterion, each.run), 0)):
            yield replace(each, node="", measured=counted(num, "node"))


def outcome(passed: bool | None) -> str:
    """A failure is in capitals, because it is what a reader looks for."""
    return "unknown" if passed is None else "passed" if passed else "FAILED"
