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


def fingerprint(config: Config, proposed: list[Any]) -> str:
    return sha256(json.dumps([proposals_version(config), proposed]).encode()).hexdigest()[:16]


def run(**changes: object) -> str:
    """Fingerprint of the trials of a run, by a search that rests on no library."""
    changed = tuple((name.replace("__", "."), value) for name, value in changes.items())
    scene = Scene(minutes=2.0, epochs=4, changes=changed)
    proposed = [encode(event.trial) for _, event in told(scene) if isinstance(event, Dispatched)]
    assert len(proposed) > 20
    return fingerprint(scene.config, proposed)


def text() -> str:
    """Fingerprint of the networks of a run of text, whose morphisms are others."""
    config = load_preset("text")
    search, found = new_search(config, starting_graph(config)), []
    for number in range(12):
        found.append([encode(each) for each in search.ask(number, number).morphisms])
        search.tell(Observation(number, 1000, ((1000, 0.5 - number / 100),)))
    return fingerprint(config, found)


def test_the_same_run_is_proposed_the_same_trials(comes_to_what_was_read: ComesTo) -> None:
    """Where this fails on purpose, raise the version and pin anew, by `--accept`."""
    comes_to_what_was_read("proposed.txt", {"run": run, "text": text})


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
