"""docs/rules.md names the rules that a ranked run must meet, docs/score.md the version of the rules."""

from __future__ import annotations

import re

from aiperf.journal.file import RULES_VERSION
from aiperf.rules.rule import Kind
from aiperf.rules.verdict import KNOWN_IF_RANKED, RULES
from tests.house.tree import ROOT

PAGE = (ROOT / "docs/rules.md").read_text(encoding="utf-8")
SCORE = (ROOT / "docs/score.md").read_text(encoding="utf-8")


def test_the_page_names_each_rule_of_a_ranked_run() -> None:
    _, section = PAGE.split("## What a ranked run must have\n")
    met, known, *_ = (re.findall(r"`([\w ]+)`", part) for part in re.split(r"\n\n", section.strip()))
    eligible = [rule.name.removeprefix("ranked ") for rule in RULES if rule.kind is Kind.ELIGIBILITY]
    assert [name.removeprefix("ranked ") for name in met] == eligible
    assert known == [*KNOWN_IF_RANKED]


def test_the_page_says_what_each_version_demands() -> None:
    assert re.findall(r"[Vv]ersion (\d+) \(this one\)", SCORE) == [str(RULES_VERSION)]
