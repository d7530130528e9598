"""The search, made again: what a run proposed follows from its seed and from what it was told.

So whoever changes a morphism, removes a trial or edits an accuracy that decided a tournament must
change everything that came after it, training included.
"""

from __future__ import annotations

from typing import cast

from aiperf.code import code_hash
from aiperf.events import Event, LegBegan
from aiperf.findings import Evidence, Seen
from aiperf.jobs import Jobs
from aiperf.replay import Replay
from nas.morphisms import Morphism
from nas.record import graph_from_json
from nas.search import SEARCHES, Candidate, Exhausted, Observation, Search

__all__ = ["search"]

MOST_ASKED = 2_000
"""Proposals made again in one run; a few milliseconds each. Of a longer one every so manieth."""


class _Differs(Exception):
    """The search proposes something else."""


class _Asked:
    """A search that, told what was dispatched, asks itself what it would dispatch."""

    def __init__(self, search: Search, every: int, offset: int) -> None:
        self.search, self.every, self.offset = search, every, offset
        self.num_asked = 0

    def dispatched(self, number: int, parent: int | None, morphisms: tuple[Morphism, ...]) -> Candidate:
        if number % self.every != self.offset:
            return self.search.dispatched(number, parent, morphisms)
        candidate = self.search.ask(number)
        self.num_asked += 1
        if (candidate.parent, candidate.morphisms) != (parent, morphisms):
            raise _Differs(
                f"trial {number}: after what was told until then the search proposes "
                f"{_shown(candidate.parent, candidate.morphisms)}, not {_shown(parent, morphisms)}"
            )
        return candidate

    def tell(self, observation: Observation) -> None:
        self.search.tell(observation)

    def drop(self, number: int) -> None:
        self.search.drop(number)


class _SoFar:
    """What `Jobs` reads of a replay, in the leg that the events have reached."""

    def __init__(self, replay: Replay) -> None:
        self.trials = replay.trials
        self._legs = iter(replay.legs)

    def follow(self, event: Event) -> None:
        if isinstance(event, LegBegan):
            self.leg = next(self._legs)
            self.ranks = self.leg.ranks


def search(evidence: Evidence) -> Seen:
    """Proposals made again in the order of the journal."""
    replay = evidence.replay
    if replay.opened.code_hash != code_hash():
        return Seen("the run was made by another version of the search", known=False)
    if not replay.trials or evidence.recount.failures:
        return Seen("not every architecture can be rebuilt", known=False)
    every = -(-len(replay.trials) // MOST_ASKED)
    # Which ones are asked depends on the whole journal: it cannot be known while lines are still changed.
    asked = _Asked(_made_again(replay), every, int(replay.last_chain[:8] or "0", 16) % every)
    so_far = _SoFar(replay)
    jobs = Jobs(replay.opened.config, cast(Search, asked), cast(Replay, so_far))
    try:
        for event in replay.decisions:
            so_far.follow(event)
            jobs.follow(event)
    except (_Differs, Exhausted, ValueError, LookupError) as error:
        return Seen("", [str(error)])
    return Seen(f"{asked.num_asked} of {len(replay.trials)} proposals made again")


def _made_again(replay: Replay) -> Search:
    config = replay.opened.config
    return SEARCHES[config.search.name](
        graph_from_json(replay.opened.seed_graph),
        config.random_seed,
        config.search.bounds,
        config.search.population,
        config.search.morphisms,
    )


def _shown(parent: int | None, morphisms: tuple[Morphism, ...]) -> str:
    edits = ", ".join(type(morphism).__name__ for morphism in morphisms) or "no morphism"
    return f"{edits} of {'the seed' if parent is None else f'trial {parent}'}"
