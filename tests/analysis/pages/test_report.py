"""The report: whole, alone, and of text alone whatever the names in it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from aiperf.rules.rule import Kind, Outcome
from analysis.pages.report import report_html
from analysis.readings.facts import verdict_text
from analysis.readings.judged import Judged, examine
from tests import journals
from tests.journals import Scene, told

LIMIT_BYTES = 5_000_000


class Elements(HTMLParser):
    """Every element with its attributes; an element that is not closed raises."""

    VOID = frozenset({"meta", "link", "br", "path", "circle", "rect", "use", "image", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def html(judged: Judged) -> str:
    return report_html(judged)


def test_it_stands_alone(html: str) -> None:
    for tag, attributes in Elements(html).found:
        for name in ("src", "href", "action", "srcset", "poster", "xlink:href"):
            link = attributes.get(name)
            assert link is None or link.startswith(("#", "data:")), (tag, link)
        assert not any(name.startswith("on") for name in attributes), tag
    assert re.findall(r"url\((?!#)[^)]*\)|@import", html) == []
    assert len(html.encode()) < LIMIT_BYTES


def test_nothing_but_its_own_script_may_run(html: str) -> None:
    elements = Elements(html).found
    (policy,) = [a["content"] for tag, a in elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy
    assert policy.startswith("default-src 'none';")
    assert "'unsafe-inline'" not in policy.split("script-src")[1]
    assert "connect-src" not in policy
    scripts = [a for tag, a in elements if tag == "script"]
    assert [a for a in scripts if a.get("type") != "application/json"] == [{}]


def test_every_section_and_finding_is_there(html: str, judged: Judged) -> None:
    for name in ("throughput", "error", "lineage", "pareto", "time", "architecture", "layers"):
        assert f'<figure id="{name}">' in html
    for finding in judged.verdict.findings:
        assert finding.rule in html
    anchors = set(re.findall(r'<a href="#([^"]+)"', html))
    assert anchors <= set(re.findall(r' id="([^"]+)"', html))
    best = judged.replay.best
    assert best is not None
    assert f"trial {best.number}" in html


def test_ids_are_unique(html: str) -> None:
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{7*7}}"


def test_hostile_names_are_text(tmp_path: Path) -> None:
    """In the run's name, the device's, a host's and a library's: all that a journal can say."""
    run = journals.write_run(tmp_path / "run", told(Scene(minutes=0.1)))
    lines = run.journal.read_text().splitlines()
    quoted = json.dumps(HOSTILE)[1:-1]
    first = re.sub(r'"run_id":"[^"]*"', lambda _: f'"run_id":"{quoted}"', lines[0])
    others = [
        re.sub(r'"host":"', lambda _: f'"host":"{quoted}', line)
        .replace('"NVIDIA H200"', f'"{quoted}"')
        .replace('"torch":"', f'"<b>{quoted}":"')
        for line in lines[1:]
    ]
    run.journal.write_text("\n".join([first, *others]) + "\n")
    html = report_html(examine(run))
    elements = Elements(html).found
    assert [a for tag, a in elements if tag == "script" and a.get("type") != "application/json"] == [{}]
    assert [tag for tag, _ in elements if tag in ("img", "b")] == []
    assert "{{7*7}}" in html


SCENES = {
    "hardly begun": (Scene(), 6),
    "two legs": (Scene(killed_at=25.0), None),
    "no trial ended": (Scene(), 14),
    "one group, no end": (Scene(groups=1), 60),
    "a lost group": (Scene(lost=((1, 20.0),)), None),
    "no time": (Scene(minutes=0.01), None),
    "a number of trials": (Scene(minutes=0, max_trials=3), None),
}


@pytest.mark.slow
@pytest.mark.parametrize(("scene", "lines"), SCENES.values(), ids=SCENES.keys())
def test_any_run_has_a_report(scene: Scene, lines: int | None, tmp_path: Path) -> None:
    Elements(report_html(examine(journals.write_run(tmp_path / "run", told(scene)[:lines]))))


@pytest.mark.usefixtures("undrawn")
def test_an_invalid_run_says_so_first(judged: Judged) -> None:
    findings = tuple(
        replace(f, outcome=Outcome.FAILED, text="trial 3: nobody made it") if f.rule == "operations" else f
        for f in judged.verdict.findings
    )
    html = report_html(replace(judged, verdict=replace(judged.verdict, findings=findings)))
    assert (
        '<span class="badge failed">INVALID</span> <span>operations: trial 3: nobody made it</span>' in html
    )


def test_the_verdict_of_a_smoke_run_names_what_it_lacks(judged: Judged) -> None:
    unmet = judged.verdict.failed(Kind.ELIGIBILITY)
    assert unmet
    said = verdict_text(judged.verdict, validated=True)
    assert all(f.rule.removeprefix("ranked ") in said for f in unmet)
