"""What the search proposes is pinned: whoever changes it raises its version."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from aiperf.config import Config, load_preset, with_overrides
from aiperf.journal.events import Dispatched
from aiperf.proposing.proposals import morphism_mix, new_search, proposals_version
from aiperf.run.checks import starting_graph
from nas.morphisms import MIX
from nas.record import encode
from nas.search import Observation, RandomSearch
from nas.search_names import OWN_SEARCHES
from tests.journals import Scene, told
from tests.tables import ComesTo

CHANGES = {
    "evolution": (("search.name", "evolution"),),
    "random": (("search.name", "random"),),
    "halving": (("training.schedule", "halving"), ("training.epochs", (2, 6, 18))),
    "growing": (("search.bounds.growth_rounds", 15), ("search.bounds.min_operations", 8.0)),
}
PINNED = {
    "evolution": "9eeda380ebb3e1a2",
    "random": "8b219dde0378e72b",
    "halving": "0f54bdae2d89ab0d",
    "growing": "0d0ecc3365f9e224",
    "text": "b59e5c1d973a4853",
}
"""Where these fail on purpose, raise the version and pin anew."""


def fingerprint(config: Config, proposed: list[Any]) -> str:
    return sha256(json.dumps([proposals_version(config), proposed]).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", CHANGES)
def test_the_same_run_is_proposed_the_same_trials(name: str) -> None:
    """These searches rest on no library."""
    scene = Scene(minutes=2.0, epochs=4, changes=CHANGES[name])
    proposed = [encode(event.trial) for _, event in told(scene) if isinstance(event, Dispatched)]
    assert len(proposed) > 20
    assert fingerprint(scene.config, proposed) == PINNED[name]


def test_a_run_of_text_is_proposed_the_same_networks() -> None:
    """Its morphisms are others."""
    config = load_preset("text")
    search, found = new_search(config, starting_graph(config)), []
    for number in range(12):
        found.append([encode(each) for each in search.ask(number, number).morphisms])
        search.tell(Observation(number, 1000, ((1000, 0.5 - number / 100),)))
    assert fingerprint(config, found) == PINNED["text"]


def test_a_search_has_a_version_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is raised, runs of the other searches keep theirs."""
    changes = {name: with_overrides(load_preset("digits"), {"search.name": name}) for name in OWN_SEARCHES}
    before = {name: proposals_version(config) for name, config in changes.items()}
    monkeypatch.setattr(RandomSearch, "version", 2)
    after = {name: proposals_version(config) for name, config in changes.items()}
    assert after == {**before, "random": before["random"] + 1}


def test_kinds_that_are_omitted_are_not_drawn(comes_to_what_was_read: ComesTo) -> None:
    def left_out(*kinds: str) -> list[str]:
        config = load_preset("digits")
        omitting = with_overrides(config, {"search.omit": [*kinds]})
        drawn, every = ({kind.__name__ for kind in morphism_mix(each)} for each in (omitting, config))
        return sorted(every - drawn)

    comes_to_what_was_read("omitted.txt", {"left_out": left_out, "kinds": [kind.__name__ for kind in MIX]})
