"""The report: whole, alone, and of text alone whatever the names in it; what it says first; and a
recorded run of language as pages and lists show it: windows and bytes, and no image."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from aiperf.errors import AiperfError
from aiperf.journal.events import Origin
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Outcome
from aiperf.score.score import score
from aiperf.wording import rate
from analysis.comparing.characteristics import control_cost
from analysis.comparing.published import published
from analysis.comparing.scaling import scaling
from analysis.exports.watch import watch_text
from analysis.pages.figures.architecture import architecture_picture
from analysis.pages.figures.other_machines import beside_others, beside_published
from analysis.pages.figures.picture import WIDE
from analysis.pages.figures.telemetry import telemetry
from analysis.pages.report import report_html
from analysis.pages.report_head import About
from analysis.readings.architecture import architecture
from analysis.readings.hosts import control_reading
from analysis.readings.judgement import Judged, examine, glance
from analysis.readings.live import Follower
from analysis.readings.score_figures import figures
from analysis.readings.telemetry import Quantity, Telemetry
from launch.price import parse_price
from nas.text_seeds import TEXT_SEEDS
from tests.house.tree import ROOT
from tests.journals import CIFAR, Machine, Scene, resized, told, write_run

LIMIT_BYTES = 5_000_000


class Elements(HTMLParser):
    """Every element with its attributes, and the words that are read; one that is not closed raises."""

    VOID = frozenset({"meta", "link", "br", "path", "circle", "rect", "use", "image", "input"})

    def __init__(
        self, text: str, unread: frozenset[str] = frozenset({"style", "script", "svg", "td"})
    ) -> None:
        super().__init__()
        self.unread = unread
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "svg":
            self.words.append("[figure]")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip() and not self.unread & {*self.open}:
            self.words.append(" ".join(data.split()))


@pytest.fixture(scope="module")
def html(judged: Judged) -> str:
    return report_html(judged)


def test_the_page_of_a_recorded_run_says_what_a_person_has_read(
    tmp_path: Path, as_it_was_read: Callable[[str, str], None]
) -> None:
    """Outside its tables' cells, and where its figures stand."""
    run = Path(shutil.copytree(ROOT / "tests/recorded/groups", tmp_path / "groups"))
    words = Elements(report_html(examine(RunFiles(run)))).words
    as_it_was_read("\n".join(words) + "\n", "report.txt")


def test_it_stands_alone_and_nothing_but_its_own_script_may_run(html: str) -> None:
    elements = Elements(html).found
    for tag, attributes in elements:
        for name in ("src", "href", "action", "srcset", "poster", "xlink:href"):
            link = attributes.get(name)
            assert link is None or link.startswith(("#", "data:")), (tag, link)
        assert not any(name.startswith("on") for name in attributes), tag
    assert re.findall(r"url\((?!#)[^)]*\)|@import", html) == []
    assert len(html.encode()) < LIMIT_BYTES
    (policy,) = [a["content"] for tag, a in elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy
    assert policy.startswith("default-src 'none';")
    assert "'unsafe-inline'" not in policy.split("script-src")[1]
    assert "connect-src" not in policy
    scripts = [a for tag, a in elements if tag == "script"]
    assert [a for a in scripts if a.get("type") != "application/json"] == [{}]


def test_every_section_and_finding_is_there(html: str, judged: Judged) -> None:
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert {*re.findall(r'<a href="#([^"]+)"', html), "layers", "pareto"} <= set(ids)
    assert all(finding.rule in html for finding in judged.verdict.findings)
    best = judged.replay.best
    assert best is not None
    assert f"trial {best.number}" in html


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{7*7}}"


def test_hostile_names_are_text(tmp_path: Path) -> None:
    """In the run's name, the device's, a host's and a library's: all that a journal can say."""
    run = write_run(tmp_path / "run", told(Scene(minutes=0.1)))
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
    Elements(report_html(examine(write_run(tmp_path / "run", told(scene)[:lines]))))


@pytest.mark.usefixtures("undrawn")
def test_an_invalid_run_says_so_first(judged: Judged) -> None:
    findings = [f for f in judged.verdict.findings if f.rule != "operations"]
    found = next(f for f in judged.verdict.findings if f.rule == "operations")
    failed = (*findings, replace(found, outcome=Outcome.FAILED, text="trial 3: nobody made it"))
    html = report_html(replace(judged, verdict=replace(judged.verdict, findings=failed)))
    said = "<span>operations: trial 3: nobody made it</span>"
    assert f'<span class="badge failed">INVALID</span> {said}' in html


OTHER = "2 × NVIDIA A100-SXM4-80GB on 1 host"


@pytest.mark.usefixtures("undrawn")
def test_the_head_has_what_a_reader_knows_beside_the_journal(judged: Judged) -> None:
    about = About("Cluster <X>", "Example University", parse_price("--price", "30EUR/node-hour"))
    html = report_html(judged, about)
    assert "<h1>Cluster &lt;X&gt;</h1>" in html
    assert '<p class="eyebrow">Example University · run four-groups · aiperf-hpc ' in html
    assert '<p class="conclusion">Cluster &lt;X&gt; (8 × NVIDIA A100-SXM4-80GB on 4 hosts) sustained ' in html
    assert "<li><b>lost</b> group 3: node0004 does not answer any more</li>" in html
    # Three minutes of four nodes are 0.2 node-hours.
    assert '<dt>cost</dt><dd class="value">6 EUR</dd><dd class="aside">0.2 node-hours at 30 EUR per' in html
    plain = report_html(judged)
    assert "<h1>four-groups</h1>" in plain
    assert "<dt>cost</dt>" not in plain


@pytest.mark.usefixtures("undrawn")
def test_what_disturbed_a_run_has_one_label(judged: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.pages.report_head.disturbance_text", lambda replay: ["others", "stops"])
    assert "<strong>disturbed:</strong> others; stops</li>" in report_html(judged)


def test_a_quantity_that_is_always_zero_has_no_panel() -> None:
    def quantity(name: str, value: float) -> Quantity:
        return Quantity(name, *(np.full(2, value) for _ in range(3)))

    quantities = quantity("power_watts", 5.0), quantity("stolen", 0.0), quantity("unknown", math.nan)
    found = Telemetry(2, np.arange(3.0), quantities, 0)
    picture = telemetry(found)
    assert picture.says == "Sampled once per second on 2 hosts. Always zero: stolen."
    assert len(picture.draw(WIDE).figure.axes) == 2
    nothing = telemetry(replace(found, quantities=quantities[1:2]))
    assert nothing.empty


@pytest.mark.usefixtures("undrawn")
def test_a_run_stands_beside_others_of_its_kind_only(judged: Judged, tmp_path: Path) -> None:
    other = examine(write_run(tmp_path / "other", resized(CIFAR, 1.0), Machine(groups=1, watts=300.0)))
    # Two devices of 300 W for a minute.
    assert '<dt>energy</dt><dd class="value">0.01 kWh</dd>' in report_html(other)
    html = report_html(judged, About("Cluster X", others=[("", other)]))
    assert '<figure id="beside">' in html
    picture = beside_others(("Cluster X", judged), [("", other)])
    rates = [rate(one.score.ops_per_second) for one in (judged, other)]
    assert picture.says == f"Sustained OPS: Cluster X {rates[0]}; {OTHER} {rates[1]}."
    with pytest.raises(AiperfError, match="is the same run as"):
        report_html(judged, About(others=[("", judged)]))
    simulated = Machine(groups=1, origin=Origin.SIMULATED)
    unmeasured = examine(write_run(tmp_path / "simulated", resized(CIFAR, 1.0), simulated))
    with pytest.raises(AiperfError, match=r"simulated is SIMULATED: .*; only VALID runs are compared"):
        report_html(judged, About(others=[("", unmeasured)]))


def test_published_results_stand_beside_runs_like_theirs_only(judged: Judged) -> None:
    points = published(judged)
    assert beside_published("", judged, points) is None  # images of 32²
    config = judged.replay.opened.config
    data = replace(config.data, size=224, classes=1000)
    opened = replace(judged.replay.opened, config=replace(config, data=data))
    replay = copy(judged.replay)
    replay._opened = opened
    score = replace(judged.score, aiperf1_ops_per_second=8e12)
    picture = beside_published("Cluster X", replace(judged, replay=replay, score=score), points)
    assert picture is not None
    assert picture.table is not None
    assert picture.table.rows == [
        ["Cluster X", "8", "8.000 TOPS", "1.000 TOPS"],
        ["4 nodes, 32 NVIDIA T4", "32", "56.10 TOPS", "1.753 TOPS"],
        ["512 nodes, 4,096 Huawei Ascend 910", "4,096", "194.5 POPS", "47.49 TOPS"],
    ]
    assert picture.says.startswith("OPS per device as AIPerf 1.0 counted, not the score: ")


RECORDED = Path(__file__).parents[2] / "recorded"


def read(name: str) -> Judged:
    return glance(RunFiles(RECORDED / name))


@pytest.fixture(scope="module")
def language() -> Judged:
    return read("language")


@pytest.fixture(scope="module")
def images() -> Judged:
    return read("alone")


def test_the_report_speaks_of_windows_and_bytes(language: Judged) -> None:
    text = report_html(language)
    control = "gpt-4x128 in place of GPT-2 small at windows of 64 bytes"
    for words in ("operations per window", "windows trained", "bits per byte", control):
        assert words in text
    for words in ("images/s", "operations per image", "training image", "ResNet"):
        assert words not in text


def control_line(judged: Judged) -> str:
    return figures(judged.replay, judged.score)["control_examples_per_second"].line


def test_the_control_is_told_in_bytes_per_second_by_its_network(language: Judged, images: Judged) -> None:
    """The smaller one by its name; beside it, or alone, the task's own."""
    for run, per_example in ((language, 64), (images, 1)):
        reading = control_reading(run.replay)
        assert reading is not None
        assert run.score.control is not None
        assert reading.per_second == per_example * run.score.control.examples_per_second
    smaller = "gpt-4x128 in place of GPT-2 small at windows of 64 bytes"
    assert control_line(language) == f"12,414 bytes/s ({smaller})"
    cost = control_cost(language.replay)
    assert cost is not None
    assert (cost.short, cost.parameters) == ("gpt-4x128", 867_072)
    judged = read("language")
    controls = judged.replay.leg.controls
    controls[2] = replace(controls[1], rank=2, network="", size=1024)
    assert control_line(judged).endswith(
        f" bytes/s (GPT-2 small over bytes at windows of 1,024 bytes and {smaller})"
    )
    controls[1] = replace(controls[1], network="")
    assert control_line(judged) == (
        "211,046 bytes/s (GPT-2 small over bytes at windows of 64 bytes and windows of 1,024 bytes)"
    )


def test_two_ranks_that_ended_at_two_networks_are_added_up_at_the_one_that_both_timed() -> None:
    judged = read("language")
    controls = judged.replay.leg.controls
    controls[2] = replace(controls[1], rank=2, network="", size=1024, others=controls[1].rungs)
    found, alone = score(judged.replay, {}).control, judged.score.control
    assert found is not None
    assert alone is not None
    assert found.examples_per_second == pytest.approx(2 * alone.examples_per_second)
    assert control_line(judged) == "24,829 bytes/s (gpt-4x128 in place of GPT-2 small at windows of 64 bytes)"


def test_who_watches_sees_bytes_per_second() -> None:
    follower = Follower(RunFiles(RECORDED / "language"))
    follower.update()
    assert follower.snapshot().rates_of == "bytes"
    assert "bytes/s" in watch_text(follower.snapshot(), 120, 30)


def test_figures_of_two_tasks_are_never_compared(language: Judged, images: Judged) -> None:
    with pytest.raises(AiperfError, match="runs of different tasks cannot be compared"):
        scaling([images, language])
    with pytest.raises(AiperfError, match=r"the published points of AIPerf 1\.0 are for images"):
        published(language)
    assert published(images)


def test_equal_blocks_are_drawn_once() -> None:
    """A block of text is two blocks of the drawing, which repeat in pairs."""
    picture = architecture_picture(architecture([(None, TEXT_SEEDS["llama-4x128"]())]), 0)
    assert picture.says == (
        "The network of trial 0: 55 boxes, each a layer with the norm and activation after it; equal blocks "
        "in a row are drawn once. It is the seed itself."
    )
    drawn = [text.get_text() for text in picture.draw(WIDE).figure.axes[0].texts]
    assert "4 × block1–4" in drawn
