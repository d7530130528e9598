"""Architectures rebuilt from the seed and their morphisms, and counted again, because recorded counts are not
trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from aiperf.errors import JournalError
from aiperf.journal.replay import Replay
from aiperf.score.example_counts import Counted, counted
from aiperf.wire.trial import Trial
from nas.frozen import frozen
from nas.graph import Graph
from nas.layers import ShapeError
from nas.morphisms import MorphismError
from nas.record import RecordError, graph_from_json
from nas.search import Size
from nas.search_names import MOST_MORPHISMS

LEAST_WORK, WORK_OF_A_LINE = 200_000, 5_000
"""Limits on the work of rebuilding the architectures of a run, in any run and for each line of its journal.
The unit is an input of a layer, once for each architecture and once for each morphism. An honest trial has
five lines or more. A trial of ResNet-50 takes 400, one that grows by 16 morphisms 3,300. A journal that needs
more was made to take its reader's time."""
MOST_WORK = 1_000_000_000
"""Limit for any run, because a line that costs nothing raises the one above: half an hour, and three times
what 100,000 such trials take."""


@frozen
class Rebuilt:
    """A trial's architecture, or the reason why it cannot be rebuilt."""

    trial: Trial
    graph: Graph | None
    reason: str = ""


@frozen
class Recount:
    """Counts of a run's architectures by trial number, and the reasons for those that cannot be counted."""

    counts: dict[int, Counted]
    failures: dict[int, str]
    outside: frozenset[int]
    """Trials whose architecture is not within the bounds of the run's own configuration."""
    in_vain: Mapping[int, str] = field(default_factory=dict)
    """By trial, what `Graph.counted_in_vain` says."""


def recount(replay: Replay, see: Callable[[Rebuilt], object] = lambda entry: None) -> Recount:
    """The counts of all architectures of the run, rebuilt from their lineage; `see` is called with each.

    Raises JournalError if the seed is not a graph.
    """
    config, seed = replay.opened.config, Size(_seed(replay))
    bounds, is_halving = config.search.bounds, config.training.schedule == "halving"
    counts: dict[int, Counted] = {}
    failures: dict[int, str] = {}
    outside: set[int] = set()
    in_vain: dict[int, str] = {}
    for entry in rebuilt(replay):
        see(entry)
        if entry.graph is None:
            failures[entry.trial.number] = entry.reason
            continue
        counts[entry.trial.number] = counted(entry.graph)
        if text := entry.graph.counted_in_vain:
            in_vain[entry.trial.number] = text
        trial = entry.trial
        # With halving, a trial that continues its parent's network has the size of the round in which that
        # network was proposed.
        goes_on = is_halving and trial.parent is not None and not trial.morphisms
        if not goes_on and not Size(entry.graph).within(bounds, seed, trial.round):
            outside.add(entry.trial.number)
    return Recount(counts, failures, frozenset(outside), in_vain)


def rebuilt(replay: Replay) -> Iterator[Rebuilt]:
    """All trials in the order of their numbers. A graph is held until its last child is built.

    Raises JournalError if the seed is not a graph, and for more work than such a journal may ask for.
    """
    trials = {number: replay.trials[number].attempts[0].trial for number in sorted(replay.trials)}
    last_child = {trial.parent: number for number, trial in trials.items()}
    seed = _seed(replay)
    held: dict[int, Graph] = {}
    work = _WorkLimit(min(MOST_WORK, LEAST_WORK + WORK_OF_A_LINE * replay.lines))
    for number, trial in trials.items():
        entry = _child(trial, seed if trial.parent is None else held.get(trial.parent), work.spend)
        if entry.graph is not None and last_child.get(number, number) > number:
            held[number] = entry.graph
        if trial.parent is not None and last_child[trial.parent] == number:
            held.pop(trial.parent, None)
        yield entry


def rebuild(replay: Replay, number: int) -> Graph:
    """One trial's architecture. Raises JournalError if it cannot be rebuilt."""
    return line_of_graphs(replay, number)[-1][1]


def line_of_graphs(replay: Replay, number: int) -> list[tuple[Trial | None, Graph]]:
    """The seed, which belongs to no trial, then the trial's ancestors, then the trial itself.

    Raises JournalError if it cannot be rebuilt.
    """
    lineage: list[Trial] = []
    wanted: int | None = number
    while wanted is not None:
        if wanted not in replay.trials or len(lineage) > len(replay.trials):
            known = f"0 to {replay.next_number - 1}" if replay.trials else "none"
            raise JournalError(f"this run has no trial {wanted}; it has: {known}")
        trial = replay.trials[wanted].attempts[0].trial
        lineage.append(trial)
        wanted = trial.parent
    line: list[tuple[Trial | None, Graph]] = [(None, _seed(replay))]
    for trial in reversed(lineage):
        entry = _child(trial, line[-1][1])
        if entry.graph is None:
            raise JournalError(f"trial {trial.number} cannot be rebuilt: {entry.reason}")
        line.append((trial, entry.graph))
    return line


def _seed(replay: Replay) -> Graph:
    try:
        return graph_from_json(replay.opened.seed_graph)
    except (RecordError, ShapeError) as error:
        raise JournalError(f"the seed graph in the journal's first line is not valid: {error}") from None


@dataclass
class _WorkLimit:
    """The work of rebuilding architectures, up to a limit."""

    most: int
    done: int = 0

    def spend(self, graph: Graph) -> None:
        """Raises JournalError."""
        self.done += graph.num_reads
        if self.done > self.most:
            raise JournalError(
                f"to rebuild its architectures takes more than {self.most:,} steps, the limit for a journal "
                "of this length, so this run cannot be checked"
            )


def _child(
    trial: Trial, parent: Graph | None, spend: Callable[[Graph], object] = lambda graph: None
) -> Rebuilt:
    """Applies a trial's morphisms to its parent; `spend` gets the work before it is done."""
    if parent is None:
        return Rebuilt(trial, None, f"its parent {trial.parent} is not an earlier trial that can be rebuilt")
    if len(trial.morphisms) > MOST_MORPHISMS:
        raise JournalError(
            f"trial {trial.number} has {len(trial.morphisms):,} morphisms; at most {MOST_MORPHISMS:,} are "
            "checked, so this run cannot be"
        )
    graph = parent
    spend(graph)
    for morphism in trial.morphisms:
        spend(graph)
        try:
            graph = morphism.apply(graph)
        except (MorphismError, ShapeError) as error:
            return Rebuilt(trial, None, f"{type(morphism).__name__} does not apply: {error}")
    return Rebuilt(trial, graph)
