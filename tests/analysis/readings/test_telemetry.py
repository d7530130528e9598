"""Measurements beside a run: placed in the span by the clock, averaged by host, and never in the way."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np

from aiperf.journal.run_files import RunFiles
from analysis.pages.figures.picture import Picture
from analysis.pages.figures.svg import inline
from analysis.pages.figures.telemetry import telemetry
from analysis.pages.report import pictures
from analysis.readings.judgement import Judged, examine
from analysis.readings.telemetry import read_telemetry
from analysis.readings.trial_rows import rows
from tests.journals import CIFAR, RELEASE_SECONDS, Machine, resized, write_run

START = datetime.fromisoformat("2026-05-04T08:00:00+00:00").timestamp()


def write(files: RunFiles, host: str, *records: object) -> Path:
    files.telemetry_directory.mkdir(exist_ok=True)
    text = "".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records)
    files.telemetry(host).write_text(text)
    return files.telemetry(host)


def at(seconds: float, **values: object) -> dict[str, object]:
    """A line at this many seconds of the span."""
    return {"wall_seconds": START + RELEASE_SECONDS + seconds, **values}


def test_hosts_are_averaged_and_set_side_by_side(copied: RunFiles, judged: Judged) -> None:
    span = judged.score.span_seconds
    for host, watts in (("a", 100.0), ("b", 200.0), ("c", 600.0)):
        devices = [{"power_watts": watts}, {"power_watts": watts + 20}]
        write(copied, host, *(at(t, devices=devices) for t in np.arange(0, span, 0.5)))
    found = read_telemetry(copied, judged.replay)
    assert found is not None
    (power,) = found.quantities
    assert (power.name, found.hosts, found.unread) == ("devices.power_watts", 3, 0)
    assert set(power.lowest) == {110.0}
    assert set(power.median) == {210.0}
    assert set(power.highest) == {610.0}
    assert found.edges[-1] == span


def test_what_lies_outside_the_span_and_nonsense_harm_nothing(copied: RunFiles, judged: Judged) -> None:
    outside = at(-5, x=1.0), at(1e6, x=3.0), {"wall_seconds": "noon", "x": 4.0}, {"x": 5.0}
    nonsense = (
        *("not json", "[1]", "[" * 50_000, json.dumps(at(4, x=1.0)).replace("{", '{"x":9.0,', 1)),
        *(at(1, x=float("nan")), at(2, x=10**400), at(3, x=True), at(4, **{"<script>": 1.0})),
        at(5, x=7.0, deep={"a": {"b": {"c": {"d": {"e": {"f": 1.0}}}}}}),
    )
    write(copied, "a", *outside, *nonsense)
    with copied.telemetry("a").open("a") as file:
        file.write('{"wall_seconds": 1')
    found = read_telemetry(copied, judged.replay)
    assert found is not None
    assert [quantity.name for quantity in found.quantities] == ["x"]
    assert np.nanmean(found.quantities[0].median) == 7.0
    assert found.unread == 4


def test_the_report_shows_it(copied: RunFiles, judged: Judged) -> None:
    def figures(files: RunFiles) -> dict[str, Picture]:
        found = pictures(replace(judged, files=files), rows(judged.replay, judged.recount.counts))
        return {picture.name: picture for _, picture in found}

    assert read_telemetry(copied, judged.replay) is None
    assert "telemetry" not in figures(copied)
    write(copied, "node0001", *(at(t, power_watts=300 + t, utilisation=0.9) for t in range(0, 180, 2)))
    assert figures(copied)["telemetry"].says == "Sampled once per second on 1 host."


def test_of_a_short_run_a_line_is_drawn_and_its_scale_can_be_read(tmp_path: Path) -> None:
    """One measurement a second, some thousandths of anything."""
    run = write_run(tmp_path / "run", resized(CIFAR, 0.5), Machine(groups=1))
    write(run, "node0001", *(at(second, host={"stolen": 0.004}) for second in range(31)))
    found = read_telemetry(run, examine(run).replay)
    assert found is not None
    assert set(found.quantities[0].median) == {0.004}
    assert ">0.002<" in inline(telemetry(found)).wide
