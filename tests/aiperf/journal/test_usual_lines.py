"""The usual lines of a journal, which are read by pattern: exactly as the reader of JSON reads them."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from aiperf.errors import JournalError
from aiperf.journal.events import Closed
from aiperf.journal.file import JournalReader
from aiperf.journal.names import Names
from aiperf.journal.replay import Replay, replay
from aiperf.journal.usual_lines import Read, UsualLines

ROOT = Path(__file__).parents[3]
RECORDED = sorted(ROOT.glob("tests/recorded/*/journal.jsonl"))
CHANGES = (
    *((b"0", each) for each in (b"00", b"-0", b"0.0", b"1e5", b"1e200", b"NaN", b"9" * 19, b"null", b"true")),
    *((b".", each) for each in (b"", b".e", b"..", b".0e-5", b".0E5")),
    *((b",", each) for each in (b", ", b",,", b',"x":1,', b',"trial":0,', b',"steps":1,')),
    *((b'"', each) for each in (b"", b"\\u0041", b'"\xff', b'"x', b'\\"')),
    *((b"{", each) for each in (b"[", b"{ ", b'{"type":"Closed",')),
    *((b"}", each) for each in (b"]", b"} ", b"}}", b',"seed":1}')),
    *((b"]", each) for each in (b",1]", b',"hyper":{}]', b'],"hyper":{}')),
)
"""What is replaced in a line by what."""


@pytest.fixture(params=RECORDED, ids=lambda path: path.parent.name)
def journal(request: pytest.FixtureRequest) -> Path:
    return request.param


def of_json(path: Path) -> JournalReader:
    """A reader that reads every line as JSON."""
    reader = JournalReader(path)
    reader._usual = SimpleNamespace(read=lambda raw, names: None)
    return reader


def read(reader: JournalReader, raw: bytes) -> Read | str:
    """The line, or what is wrong with it."""
    try:
        return reader._read(2, raw)
    except JournalError as error:
        return str(error)


def test_both_readers_read_every_line_alike(journal: Path) -> None:
    assert list(JournalReader(journal).new_lines()) == list(of_json(journal).new_lines())


BLOCK, VALIDATION = b'"type":"Stepped"', b'"type":"Closed"'


def folded(journal: Path) -> Replay:
    """The replay of a journal, which is the same whether an event is made of each line or not."""
    by_line, at_once = Replay(), Replay()
    for line in JournalReader(journal).new_lines():
        by_line.add_line(line)
    JournalReader(journal).fold_into(at_once)
    assert vars(at_once) == vars(by_line)
    return at_once


def test_rows_are_folded_as_the_events_that_they_are(journal: Path) -> None:
    found = folded(journal)
    assert (found.faults, found.broken) == ([], [])
    for table, kind in ((found.blocks, BLOCK), (found.validations, VALIDATION)):
        assert len(table) == journal.read_bytes().count(kind) > 0


def test_lines_are_folded_block_by_block_up_to_the_one_that_holds_a_damaged_line(
    journal: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("nas.bounded.BLOCK_BYTES", 1000)
    folded(journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    copy = tmp_path / "journal.jsonl"
    copy.write_bytes(b"".join([*lines[:-1], b"{}\n"]))
    found, reader = Replay(), JournalReader(copy)
    for _ in range(2):
        with pytest.raises(JournalError, match=f"line {len(lines)} is damaged"):
            reader.fold_into(found)
        assert 0 < found.lines < len(lines)
    copy.write_bytes(journal.read_bytes())  # repaired, so the reader goes on after the last whole block
    reader.fold_into(found)
    assert vars(found) == vars(folded(journal))


def test_an_attempt_gives_its_validations_back_as_they_were_written(journal: Path) -> None:
    lines = list(JournalReader(journal).new_lines())
    found = replay(lines)
    held = [Closed(v.segment, v.end, v.logs) for attempt in found.attempts for v in attempt.validations]
    places = {(attempt.trial.number, attempt.number): place for place, attempt in enumerate(found.attempts)}
    written = [line.event for line in lines if isinstance(line.event, Closed)]
    assert held == sorted(written, key=lambda event: places[event.segment.trial, event.segment.attempt])


@pytest.mark.parametrize(
    ("old", "new", "place", "fault"),
    [
        (b'"trial":', b'"trial":9', None, r"\w+ of trial 9\d+, attempt \d, which is not running"),
        (b'"attempt":', b'"attempt":9', None, r"\w+ of trial \d+, attempt 9\d, which is not running"),
        (b'"(segment|index)":(?!{)', rb'"\1":9', None, r"\w+ of trial \d+, segment 9\d, but \d is open"),
        (b'{"t":', b'{"t":-', None, r"\w+ is at -\d.* s, but a line above it is at .*: the clock went"),
        (b"", b"", 1, r"\w+ comes before the first leg"),
        (b"", b"", -1, r"\w+ comes after the end of its leg"),
        (b'"steps":', b'"steps":1', None, None),
    ],
)
@pytest.mark.parametrize("kind", [BLOCK, VALIDATION], ids=["Stepped", "Closed"])
def test_a_changed_row_is_the_same_fault_of_the_same_line(
    journal: Path, kind: bytes, old: bytes, new: bytes, place: int | None, fault: str | None, tmp_path: Path
) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    at = [index for index, raw in enumerate(lines) if kind in raw][2]
    block = lines.pop(at)
    at = at if place is None else place % len(lines)
    lines.insert(at, re.sub(old, new, block, count=1))
    (tmp_path / "journal.jsonl").write_bytes(b"".join(lines))
    found = folded(tmp_path / "journal.jsonl")
    assert at + 1 in found.broken  # its chain is of other bytes, or of another place
    texts = [each.text for each in found.faults if each.line == at + 1]
    assert len(texts) == (fault is not None)
    assert all(re.match(fault, text) for text in texts if fault)


def test_the_frequent_kinds_of_line_are_usual(journal: Path) -> None:
    """Else reading falls back to JSON, and a long journal takes twice as long."""
    usual, names = UsualLines(), Names(journal)
    for raw in journal.read_bytes().splitlines(keepends=True):
        frequent = re.match(rb'{"t":[0-9.]+,"type":"(Dispatched|Began|Stepped|Closed|Ended)"', raw)
        if frequent and b'"FAILED"' not in raw:
            assert usual.read(raw, names) is not None, raw


def test_both_readers_say_the_same_of_a_changed_line(journal: Path) -> None:
    """In each kind of line, at places drawn at random."""
    draw, by_pattern, by_json = random.Random(1), JournalReader(journal), of_json(journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    for reader in (by_pattern, by_json):
        reader._read(1, lines[0])
    outcomes = Counter[bool]()
    kinds = {raw.split(b'"type":"', 1)[1][:9]: raw for raw in lines[1:]}
    for raw in kinds.values():
        for old, new in CHANGES:
            places = [place for place in range(len(raw) - 80) if raw.startswith(old, place)]
            for place in draw.sample(places, min(3, len(places))):
                changed = raw[:place] + new + raw[place + len(old) :]
                found = read(by_pattern, changed)
                assert found == read(by_json, changed), changed
                outcomes[isinstance(found, tuple)] += 1
    assert min(outcomes[True], outcomes[False]) > 20
