"""docs/architecture.md shows lines of a recorded journal and what the worked example prints."""

from __future__ import annotations

import re
import runpy

import pytest

from aiperf.journal import events
from aiperf.journal.events import Closed, Dispatched
from aiperf.journal.file import read_journal
from aiperf.score.example_counts import recorded
from nas.ops import OPS
from tests.house.tree import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
JOURNAL = (ROOT / "tests/recorded/alone/journal.jsonl").read_text(encoding="utf-8").splitlines()
SHOWN = re.findall(r"^\{.*\}?…?$", PAGE, flags=re.M)
MEASURED = re.compile(r"error [\d.]+%|[\d.]+ GOPS over [\d.]+ seconds")


def is_shortened(shown: str, line: str) -> bool:
    """Whether `shown` is the line with parts of it replaced by "…"."""
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), line) is not None


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: re.sub(r'.*"type":"(\w+)".*', r"\1", shown[:60]))
def test_a_shown_line_is_a_line_of_the_journal(shown: str) -> None:
    assert len([line for line in JOURNAL if is_shortened(shown, line)]) == 1


def test_every_kind_of_line_in_the_journal_is_shown() -> None:
    kinds = [
        set(re.findall(r'^\{"t":[\d.]+,"type":"(\w+)"', "\n".join(lines), re.M)) for lines in (JOURNAL, SHOWN)
    ]
    assert kinds[0] == kinds[1] != set()
    others = {kind.__name__ for kind in events.Event.__subclasses__()} - kinds[0]
    named = {
        "NonceGiven",
        "DeviceChecked",
        "FabricMeasured",
        "HostUsed",
        "RankAlike",
        "Beat",
        "Stalled",
        "GroupLost",
        "FellBack",
    }
    assert others == named, "the page names what this run has not"


def test_the_credit_of_the_first_segment_is_as_the_page_says() -> None:
    lines = read_journal(ROOT / "tests/recorded/alone/journal.jsonl")
    (dispatched, *_), (closed, *_) = (
        [line.event for line in lines if isinstance(line.event, kind)] for kind in (Dispatched, Closed)
    )
    one, examples = recorded(dispatched), closed.segment
    figures = (
        one.train.price(OPS),
        one.evaluate.price(OPS),
        (one.train * examples.train_examples + one.evaluate * examples.of).price(OPS),
    )
    assert [f"{figure:,}" for figure in figures if f"{figure:,}" not in PAGE] == []


@pytest.mark.torch
def test_the_worked_example_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """To the digit, but for errors and times, which depend on the processor."""
    found = runpy.run_path(str(ROOT / "docs/one_trial.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert MEASURED.sub("…", printed) in MEASURED.sub("…", PAGE)
    assert min(segment.error for segment in found["segments"]) < 0.8  # it learns: chance is 0.9
