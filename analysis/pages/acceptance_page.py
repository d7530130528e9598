"""The acceptance sheet: one page that is printed and signed.

Both parties of a contract sign it, so it says what was measured and what was required, and which file the
criteria are in; the answer and what did not pass come first. It is made to fit on one sheet of A4
(docs/acceptance.md). What it judges comes from `analysis.comparing`; here it is only laid out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aiperf.wording import counted, duration, moment, percent, plain, rate
from analysis.comparing.acceptance import Judgement
from analysis.comparing.acceptance_text import NodeFigures, Sheet, answer_text, shown
from analysis.pages.page import page
from analysis.table import Table

NODES_SHOWN = 12
"""Most nodes on the page, so that it stays one: first those that did not pass, then the slowest."""
PLACES_SHOWN = 3
"""Most runs and nodes of one criterion that are named; the terminal and the JSON name all."""
TEXT_SHOWN = 80
"""Most characters of a finding; the terminal and the JSON have all of a longer one."""
UNKNOWN = "unknown: "
"""What a finding begins with that is unknown for a reason; the column of outcomes says so already."""
MEANINGS: Mapping[str, str] = {
    "runs": "number of runs",
    "ranked": "class of the runs",
    "min_ops_per_second": "sustained OPS, median",
    "min_ops_per_second_per_device": "OPS per device, median",
    "min_mfu": "MFU, median",
    "min_control_examples_per_second": "control, median",
    "min_coupled_share": "coupled control, median",
    "min_bus_bytes_per_second": "bus bandwidth of the all-reduce, median",
    "min_ops_per_joule": "OPS/W of the devices, median",
    "min_ops_per_joule_l1": "OPS/W of the nodes, median",
    "min_ops_per_joule_l2": "OPS/W of nodes, network and storage, median",
    "max_error": "test error",
    "max_spread": "spread of sustained OPS",
    "min_node_control": "slowest control of a node",
    "max_disturbance": "CPU time used by other programs",
    "no_slow_ranks": "slow ranks and groups",
    "no_slow_pairs": "slow pairs of hosts",
    "max_drop": "drop below earlier runs",
    "same_environment": "same software and settings",
}
"""What each criterion is about: who signs a sheet need not know the keys of the file of criteria."""


def acceptance_html(sheet: Sheet) -> str:
    """The whole sheet as one page: the answer, the facts, and a table each of criteria, nodes and runs, with
    room for two signatures. All texts are escaped by the template, because names of machines and nodes come
    from others."""
    first, more = shown_nodes(sheet.nodes)
    return page(
        "acceptance.html",
        None,  # `accept` refuses runs that were not measured
        sheet=sheet,
        title=sheet.machine or sheet.devices,
        answer=answer_text(sheet.found),
        facts=Table(("", ""), list(_facts(sheet)), (False, False)),
        criteria=_criteria(sheet),
        runs=_runs(sheet),
        nodes=_nodes(first),
        nodes_text=_nodes_text(len(first), more),
    )


def shown_nodes(nodes: Sequence[NodeFigures]) -> tuple[list[NodeFigures], list[NodeFigures]]:
    """The nodes that the page shows, and the others."""
    # A node without a control counts as the slowest.
    worst = sorted(nodes, key=lambda each: (-len(each.not_passed), each.control or 0.0, each.node))
    return worst[:NODES_SHOWN], worst[NODES_SHOWN:]


def _facts(sheet: Sheet) -> Iterator[list[str]]:
    """Rows that say what was judged, by whom and by which criteria; names that nobody stated are left out."""
    if sheet.machine:
        yield ["machine", sheet.machine]
    if sheet.owner:
        yield ["owner", sheet.owner]
    yield ["devices", sheet.devices]
    yield ["judged", f"{moment(sheet.made)}, by the criteria in {sheet.criteria}"]
    yield ["program", f"aiperf-hpc {sheet.program}; all operations were recounted"]


def _criteria(sheet: Sheet) -> Table:
    """One row per criterion, however many runs and nodes it was asked of; what did not pass first. A
    criterion that MEANINGS does not have is shown by its key alone."""
    groups: dict[str, list[Judgement]] = {}
    for each in shown(sheet.found):
        groups.setdefault(each.criterion, []).append(each)
    rows = [
        [
            f"{MEANINGS.get(criterion, '')} ({criterion})",
            _outcome(group),
            _measured(group, sheet.found.runs),
            group[0].required,
        ]
        for criterion, group in groups.items()
    ]
    return Table(("criterion", "outcome", "measured", "required"), rows, (False,) * 4)


def _outcome(group: Sequence[Judgement]) -> str:
    """The worst answer of a criterion: one failed run or node fails it, and one that is unknown does not pass
    it."""
    answers = {each.passed for each in group}
    return "failed" if False in answers else "unknown" if None in answers else "passed"


def _measured(group: Sequence[Judgement], runs: Sequence[str]) -> str:
    """What was measured, for the runs and nodes that did not pass, or for all if all did; those that measured
    the same are named together. A sheet is printed, so only the first ones are named. `runs` are the names of
    the runs, which tell runs and nodes apart."""
    wrong = [each for each in group if not each.passed]
    named = wrong or group
    if len(named) == 1 and not named[0].node:
        return plain(named[0].measured.removeprefix(UNKNOWN))
    places: dict[str, list[str]] = {}
    for each in named[:PLACES_SHOWN]:
        text = each.measured.removeprefix(UNKNOWN)
        text = text if len(text) <= TEXT_SHOWN else f"{text[: TEXT_SHOWN - 1]}…"
        places.setdefault(text, []).append(f"run {each.where}" if each.run in runs else each.where)
    texts = [plain(f"{text} ({'; '.join(where)})") for text, where in places.items()]
    more = [f"and {len(named) - PLACES_SHOWN:,} more"] if len(named) > PLACES_SHOWN else []
    return "; ".join([*texts, *more])


def _runs(sheet: Sheet) -> Table:
    """One row per run, in the order in which they were given."""
    rows = [
        [
            each.run,
            moment(each.began),
            duration(each.span_seconds),
            str(each.random_seed),
            each.run_class,
            rate(each.ops_per_second),
        ]
        for each in sheet.runs
    ]
    columns = ("run", "began", "span", "random seed", "class", "sustained OPS")
    return Table(columns, rows, (False, False, True, True, False, True))


def _nodes(nodes: Sequence[NodeFigures]) -> Table:
    """One row per node with its worst figures in all runs."""
    rows = [
        [
            each.node,
            f"not passed: {', '.join(each.not_passed)}" if each.not_passed else "passed",
            f"{each.ranks:,}",
            percent(each.control),
            percent(each.others, 1),
            "unknown" if each.stopped_seconds is None else f"{each.stopped_seconds:.0f} s",
            f"{each.slow:,}" if each.slow else "none",
        ]
        for each in nodes
    ]
    columns = ("node", "criteria", "ranks", "slowest control", "other programs", "stopped", "slow")
    return Table(columns, rows, (False, False, *[True] * 5))


def _nodes_text(num_shown: int, more: Sequence[NodeFigures]) -> str:
    """The note below the table of nodes: what the columns mean, and what became of the nodes that it leaves
    out."""
    text = (
        "The worst of the runs. Slowest control: of the node's ranks, as a share of the median of all ranks. "
        "Other programs: their share of the node's CPU time. Slow: ranks or groups that were outliers."
    )
    if not more:
        return text
    wrong = sum(bool(each.not_passed) for each in more)
    rest = f"of which {wrong:,} did not pass" if wrong else "all of which passed"
    return (
        f"{text} {counted(num_shown, 'node')} of {num_shown + len(more):,} shown; {len(more):,} more, {rest}."
    )
