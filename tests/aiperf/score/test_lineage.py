"""Architectures from their lineage: the same as those that were trained, and never more held than needed."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from aiperf.errors import JournalError
from aiperf.journal.events import Beat, Dispatched
from aiperf.score import lineage
from aiperf.score.example_counts import recorded
from aiperf.score.lineage import rebuild, rebuilt, recount
from nas.graph import Graph
from nas.morphisms import Widen
from tests.aiperf.rules.forged import each, proposed
from tests.journals import Scene, replayed, told

TIMED = told(Scene(minutes=0.4))


def test_every_architecture_is_counted_as_it_was_dispatched() -> None:
    replay = replayed(TIMED)
    found = recount(replay)
    counts = {number: replace(each, old=None, moved=None) for number, each in found.counts.items()}
    assert counts == {n: recorded(story.attempts[0].dispatched) for n, story in replay.trials.items()}
    assert (found.failures, found.outside) == ({}, frozenset())


def test_one_trial_is_rebuilt_from_the_seed_and_its_ancestors_alone() -> None:
    replay = replayed(TIMED)
    for entry in rebuilt(replay):
        assert rebuild(replay, entry.trial.number) == entry.graph


def test_a_longer_journal_buys_no_more_work_than_any_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat is a line, too, and a package of some megabytes may hold millions of them."""
    (t, _), *_ = reversed(TIMED)
    longer = replayed([*TIMED, *[(t, Beat())] * 100])
    monkeypatch.setattr(lineage, "MOST_WORK", lineage.LEAST_WORK)
    recount(longer)
    monkeypatch.setattr(lineage, "MOST_WORK", 1000)
    with pytest.raises(JournalError, match="takes more than 1,000 steps"):
        recount(longer)


@pytest.mark.slow
def test_a_graph_is_let_go_with_its_last_child() -> None:
    replay = replayed(TIMED)
    last_child = {story.trial.parent: number for number, story in replay.trials.items()}
    seen: dict[int, weakref.ref[Graph]] = {}
    for entry in rebuilt(replay):
        number = entry.trial.number
        seen[number] = weakref.ref(entry.graph)
        del entry
        gc.collect()
        held = {trial for trial, graph in seen.items() if graph() is not None}
        needed = {parent for parent in last_child if last_child[parent] > number}
        assert held <= needed | {number, 0}  # trial 0 is the seed, which is always at hand
    assert len(seen) > len(held) + 10


def test_a_morphism_that_does_not_apply_is_told_with_all_that_descends_from_it() -> None:
    replay = replayed(TIMED)
    parent = next(s.trial.parent for s in replay.trials.values() if s.trial.parent)
    attempt = replay.trials[parent].attempts[0]
    wrong = replace(attempt.trial, morphisms=(Widen("nowhere", 8, 1),))
    attempt.dispatched = replace(attempt.dispatched, trial=wrong)
    failures = recount(replay).failures
    assert failures[parent].startswith("Widen does not apply: ")
    children = [n for n, s in replay.trials.items() if s.trial.parent == parent]
    assert all("is not an earlier trial that can be rebuilt" in failures[child] for child in children)
    with pytest.raises(JournalError, match=f"trial {parent} cannot be rebuilt: Widen does not apply"):
        rebuild(replay, children[0])


def test_a_child_of_a_later_trial_or_of_itself_is_no_lineage() -> None:
    replay = replayed(TIMED)
    attempt = replay.trials[5].attempts[0]
    attempt.dispatched = replace(attempt.dispatched, trial=replace(attempt.trial, parent=5))
    assert "its parent 5 is not an earlier trial" in recount(replay).failures[5]
    with pytest.raises(JournalError):
        rebuild(replay, 5)


def test_an_unknown_trial_is_refused_with_those_there_are() -> None:
    replay = replayed(TIMED)
    with pytest.raises(JournalError, match=f"has no trial 999; it has: 0 to {len(replay.trials) - 1}"):
        rebuild(replay, 999)


def test_a_network_that_is_gone_on_with_keeps_the_size_of_the_round_that_proposed_it() -> None:
    """In a run whose networks grow, by halving: a promoted trial is of a later round."""
    halving = (("training.schedule", "halving"), ("training.epochs", (1, 3, 9)))
    growing = (("search.bounds.growth_rounds", 30), ("search.bounds.min_operations", 8.0))
    replay = replayed(told(Scene(minutes=1.0, changes=(*halving, *growing))))
    promoted = [story for story in replay.trials.values() if not story.attempts[0].trial.morphisms]
    assert len(promoted) > 2, "the seed, and others"
    assert recount(replay).outside == frozenset()


def test_a_candidate_outside_the_bounds_of_the_run_is_told() -> None:
    wide = Widen("stage3.block1.1.conv", 4096, 1)
    edit = each(Dispatched, lambda event: proposed(event, parent=None, morphisms=(wide,)), 1)
    assert 1 in recount(replayed(edit(TIMED))).outside
