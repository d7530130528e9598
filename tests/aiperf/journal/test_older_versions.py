"""Lines of versions 1 to 3 are read as what they said, field by field, and nothing beside it."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest

from aiperf.errors import JournalError
from aiperf.journal import events
from aiperf.journal.file import read_journal
from aiperf.journal.older_versions import upgraded
from aiperf.tally import Classified
from aiperf.trial import State, StepBlock
from aiperf.wire.messages import Evaluated, Finished, Started
from nas.record import RecordError, decode
from tests.house.tree import ROOT

OPENED = (ROOT / "tests/recorded/alone/journal.jsonl").read_text(encoding="utf-8").splitlines()[0]
LINES = [
    (
        '{"type":"Began","trial":1,"attempt":2,"graph_key":"k","prepare_seconds":0.5,"end":3.5}',
        events.Began(Started(1, 2, "k", 0.5), 3.5),
        "started",
    ),
    (
        '{"type":"Stepped","trial":1,"attempt":2,"segment":3,"steps":4,"images":5,"seconds":6.5,"loss":null,"end":7}',
        events.Stepped(StepBlock(1, 2, 3, 4, 5, 6.5, None), 7.0),
        "block",
    ),
    (
        '{"type":"Ended","trial":1,"attempt":2,"state":"FAILED","reason":"r","out_of_memory":true,"end":3.5}',
        events.Ended(Finished(1, 2, State.FAILED, "r", True), 3.5),
        "finished",
    ),
    (
        '{"type":"Tested","trial":1,"correct":2,"of":3,"seconds":4.5}',
        events.Tested(Evaluated(1, Classified(3, 2), 4.5)),
        "evaluated",
    ),
]


@pytest.mark.parametrize(("line", "event", "place"), LINES, ids=lambda value: getattr(value, "__name__", ""))
def test_it_says_the_same(line: str, event: events.Event, place: str) -> None:
    assert decode(events.Event, upgraded(json.loads(line), 1)) == event
    with pytest.raises(RecordError, match=f"unknown key {place}"):
        upgraded({**json.loads(line), place: None}, 1)


@pytest.mark.parametrize("version", [0, -1])
def test_there_is_no_version_before_the_first(version: int, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(OPENED.replace('"version":4', f'"version":{version}', 1) + "\n", encoding="utf-8")
    with pytest.raises(JournalError, match=f"is a journal of version {version}; known: 1 to 4"):
        read_journal(path)


def test_up_to_version_2_the_answers_stood_in_the_event() -> None:
    said = {"trial": 1, "seconds": 4.5, "type": "Evaluated"}
    line = {"type": "Tested", "evaluated": {**said, "correct": 2, "of": 3}}
    assert decode(events.Event, upgraded(line, 2)) == events.Tested(Evaluated(1, Classified(3, 2), 4.5))
    with pytest.raises(RecordError, match="unknown key tally"):
        upgraded({"type": "Tested", "evaluated": {**said, "correct": 2, "of": 3, "tally": None}}, 2)
    with pytest.raises(RecordError, match=r"unknown key evaluated\.correct"):
        decode(events.Event, upgraded({"type": "Tested", "evaluated": {**said, "correct": 2}}, 3))


def test_up_to_version_3_an_example_was_called_an_image() -> None:
    block = {"trial": 1, "attempt": 2, "segment": 3, "steps": 4, "images": 5, "seconds": 6.5, "loss": None}
    line = {"type": "Stepped", "block": block, "end": 7}
    assert decode(events.Event, upgraded(deepcopy(line), 3)) == events.Stepped(
        StepBlock(1, 2, 3, 4, 5, 6.5, None), 7.0
    )
    with pytest.raises(RecordError, match="unknown key examples"):
        upgraded({**line, "block": {**block, "examples": 5}}, 3)
    with pytest.raises(RecordError, match=r"unknown key block\.images"):
        decode(events.Event, upgraded(deepcopy(line), 4))


def test_so_was_one_of_the_data_that_a_rank_found() -> None:
    found = {"name": "digits", "training_images": 200, "training_images_a_class": [19, 21]}
    line = upgraded({"type": "RankReady", "ready": {"data": found}}, 3)
    assert line["ready"]["data"] == {
        "name": "digits",
        "training_examples": 200,
        "training_examples_per_class": [19, 21],
    }
