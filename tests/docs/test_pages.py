"""Pages of docs/ state what the code does: journals and figures that they show, programs, rules, limits."""

from __future__ import annotations

import re
import runpy
from importlib import import_module
from pathlib import Path

import pytest

from aiperf.journal import events
from aiperf.journal.events import Closed, Dispatched
from aiperf.journal.file import RULES_VERSION, read_journal
from aiperf.rules.rule import Kind
from aiperf.rules.verdict import KNOWN_IF_RANKED, RULES
from aiperf.score.example_counts import recorded
from nas.ops import OPS
from tests.house.tree import ROOT


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


PAGE = page("architecture.md")
JOURNAL = (ROOT / "tests/recorded/alone/journal.jsonl").read_text(encoding="utf-8").splitlines()
SHOWN = re.findall(r"^\{.*\}?…?$", PAGE, flags=re.M)
MEASURED = re.compile(r"error [\d.]+%|[\d.]+ GOPS over [\d.]+ seconds")


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: re.sub(r'.*"type":"(\w+)".*', r"\1", shown[:60]))
def test_a_shown_line_is_a_line_of_the_journal(shown: str) -> None:
    """With parts of it replaced by "…"."""
    shortened = re.compile(".*".join(map(re.escape, shown.split("…"))))
    assert len([line for line in JOURNAL if shortened.fullmatch(line)]) == 1


def test_every_kind_of_line_in_the_journal_is_shown() -> None:
    kinds = [
        set(re.findall(r'^\{"t":[\d.]+,"type":"(\w+)"', "\n".join(lines), re.M)) for lines in (JOURNAL, SHOWN)
    ]
    assert kinds[0] == kinds[1] != set()
    others = {kind.__name__ for kind in events.Event.__subclasses__()} - kinds[0]
    named = "NonceGiven DeviceChecked FabricMeasured HostUsed RankAlike Beat Stalled GroupLost FellBack"
    assert others == {*named.split()}, "the page names what this run has not"


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


@pytest.mark.torch
def test_the_program_of_beyond_looks_at_the_best_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", page("beyond.md"), flags=re.M | re.S)
    assert "runs/<id>" in program
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/<id>").symlink_to(ROOT / "tests/recorded/groups")
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "beyond.md", "exec"), {})
    shown = "5,040 parameters; validation error 0.00%\ntorch.Size([1, 4])\n"
    assert capsys.readouterr() == (shown, "")


def test_rules_names_each_rule_of_a_ranked_run() -> None:
    _, section = page("rules.md").split("## What a ranked run must have\n")
    met, known, *_ = (re.findall(r"`([\w ]+)`", part) for part in re.split(r"\n\n", section.strip()))
    eligible = [rule.name.removeprefix("ranked ") for rule in RULES if rule.kind is Kind.ELIGIBILITY]
    assert [name.removeprefix("ranked ") for name in met] == eligible
    assert known == [*KNOWN_IF_RANKED]


def test_score_says_what_this_version_demands() -> None:
    assert re.findall(r"[Vv]ersion (\d+) \(this one\)", page("score.md")) == [str(RULES_VERSION)]


STATED = re.findall(r"^\| `([\w.]+)\.([A-Z_]+)` \| ([^|]+) \|", page("limits.md"), flags=re.M)


@pytest.mark.torch
@pytest.mark.parametrize(("module", "name", "value"), STATED, ids=[f"{m}.{n}" for m, n, _ in STATED])
def test_a_limit_is_the_one_of_the_code(module: str, name: str, value: str) -> None:
    assert str(getattr(import_module(module), name)) == value


def test_there_is_a_table_of_limits() -> None:
    assert len(STATED) > 20
