"""What a report says first, and which runs a run is compared with."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aiperf.errors import AiperfError
from aiperf.journal.events import Origin
from aiperf.wording import rate
from analysis.comparing.published import published
from analysis.pages.figures.beside import beside_others, beside_published
from analysis.pages.figures.style import WIDE
from analysis.pages.figures.telemetry import telemetry
from analysis.pages.head import About
from analysis.pages.report import report_html
from analysis.readings.judged import Judged, examine
from analysis.readings.telemetry import Quantity, Telemetry
from launch.price import parse_price
from tests.journals import CIFAR, Machine, resized, write_run

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
def test_energy_is_in_kilowatt_hours(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", resized(CIFAR, 1.0), Machine(groups=1, watts=300.0))
    html = report_html(examine(run))
    # Two devices of 300 W for a minute.
    assert '<dt>energy</dt><dd class="value">0.01 kWh</dd>' in html


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
    other = examine(write_run(tmp_path / "other", resized(CIFAR, 1.0), Machine(groups=1)))
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
