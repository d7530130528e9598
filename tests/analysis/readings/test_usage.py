"""Measurements beside a run, from fabricated samples: energy and use of devices in the span, by sums by hand,
and nothing made up; what the report shows of them is averaged by host, and never in the way."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest

from aiperf.journal.events import LegBegan, LegEnded, RankReady, Released
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.wire.reports import Ready
from analysis.pages.figures.picture import Picture
from analysis.pages.figures.svg import inline
from analysis.pages.figures.telemetry import telemetry
from analysis.pages.report import pictures
from analysis.readings.judgement import Judged, examine
from analysis.readings.telemetry import read_telemetry
from analysis.readings.trial_rows import rows
from analysis.readings.usage import read_usage
from tests.journals import CIFAR, READY, RELEASE_SECONDS, STARTED, Machine, resized, write_run
from tests.tables import ComesTo

START = 1.8e9
"""When the first sample was taken, as a time of day."""
DEVICE = "12345678-1234-1234-1234-123456789abc"
ON_IT = replace(READY, device_id=DEVICE)
UNKNOWN = f"no power of {DEVICE} on node1 is known over the whole span"


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(tmp_path)


def run_between(began: float, ended: float, started: float, offset: float = 0.0) -> Replay:
    """A run of one rank on node1 whose span lies between two times of day."""
    found = Replay()
    add_leg(found, began, ended, started, ON_IT, offset)
    return found


def add_leg(
    run: Replay, began: float, ended: float, started: float, ready: Ready, offset: float = 0.0
) -> None:
    moment = datetime.fromtimestamp(started, timezone.utc).isoformat(timespec="milliseconds")
    run.add(0.0, LegBegan(run.num_legs, moment, (), ((1,),)))
    run.add(0.1, RankReady(0, ready, offset))
    run.add(began - started, Released(ended - started))
    run.add(ended - started, LegEnded("deadline", ended - started))
    assert not run.faults


def sampled(
    files: RunFiles, readings: dict[float, dict[str, float]], host: str = "node1", device: str = DEVICE
) -> None:
    """Lines of a host at these seconds after START."""
    lines = (
        {"wall_seconds": START + at, "devices": [{"id": device, **each}]} for at, each in readings.items()
    )
    write(files, host, *map(json.dumps, lines))


def write(files: RunFiles, host: str, *lines: str) -> None:
    files.telemetry(host).parent.mkdir(exist_ok=True)
    with files.telemetry(host).open("a") as file:
        file.write("\n".join([*lines, ""]))


@pytest.mark.parametrize(
    "second", [("node2", "other"), ("node1", "other"), ("node2", DEVICE), ("node1", DEVICE)]
)
def test_a_run_that_goes_on_elsewhere_has_the_energy_of_both_legs(
    files: RunFiles, second: tuple[str, str]
) -> None:
    """On other hosts or devices: each counts in the legs in which a rank had it. One that a rank had only in
    a leg whose clock did not start does not count."""
    host, device = second
    for name, id, first, seconds in (("node1", DEVICE, 0, 30), (host, device, 100, 40)):
        sampled(files, {first + at: {"power_watts": 200.0} for at in range(seconds)}, name, id)
    run = run_between(START + 5, START + 25, START - 3)
    run.add(0.0, LegBegan(1, "2026-05-04T08:00:00.000+00:00", (), ((1,),)))
    run.add(0.1, RankReady(0, replace(READY, host="node9", device_id="broken"), 0.0))
    run.add(0.2, LegEnded("error: the driver of node9 hangs", 0.2))
    add_leg(run, START + 105, START + 135, START + 97, replace(READY, host=host, device_id=device))
    found = read_usage(files, run)
    assert (found.missing, found.joules) == ("", pytest.approx(200 * (20 + 30)))
    assert sum(use.span_seconds for use in found.devices) == pytest.approx(50)
    assert found.devices[0].throttled_seconds is None, "who never said so is not said to be free"


def test_energy_is_that_of_the_samples_and_a_counter_is_believed_where_the_power_agrees(
    tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    """Without a counter power is integrated by the trapezoid rule, in the span by the clock of the host. The
    second die of a device is in the figure of the first: of an MI250 it is 0 W beside that of both."""
    folders = (tmp_path / f"{number}" for number in itertools.count())

    def joules(
        energy: Callable[[int], float] | None, watts: float | None = 200.0, hole: Collection[int] = ()
    ) -> tuple[float | None, str]:
        """Over 20 s, by a device that was read every second but those of the hole."""
        (files := RunFiles(next(folders))).directory.mkdir()
        for at in (at for at in range(30) if at not in hole):
            power = {"power_watts": watts} if watts else {}
            sampled(files, {at: power | ({"energy_joules": energy(at)} if energy else {})})
        found = read_usage(files, run_between(START + 5, START + 25, START - 3))
        return found.joules and round(found.joules, 3), found.missing

    def summed(
        readings: dict[float, dict[str, float]], began: float, ended: float, offset: float = 0.0
    ) -> tuple[float | None, bool]:
        """Energy of these readings between two of their seconds; and whether by a counter."""
        (files := RunFiles(next(folders))).directory.mkdir()
        sampled(files, readings)
        found = read_usage(files, run_between(START + began, START + ended, START - 3, offset))
        return found.joules and round(found.joules, 3), found.devices[0].by_counter

    def dies(**watts: float) -> tuple[float | None, str]:
        (files := RunFiles(next(folders))).directory.mkdir()
        run, moment = Replay(), datetime.fromtimestamp(START, timezone.utc).isoformat(timespec="milliseconds")
        run.add(0.0, LegBegan(0, moment, (), (tuple(range(1, 1 + len(watts))),)))
        for rank, (device, power) in enumerate(watts.items(), start=1):
            sampled(files, {at: {"power_watts": power} for at in range(30)}, device=device)
            run.add(0.1, RankReady(0, replace(READY, rank=rank, device_id=device), 0.0))
        run.add(5.0, Released(25.0))
        run.add(25.0, LegEnded("deadline", 25.0))
        found = read_usage(files, run)
        return found.joules and round(found.joules, 3), found.missing

    comes_to_what_was_read("usage.txt", {"joules": joules, "summed": summed, "dies": dies, "START": START})


def test_each_leg_of_a_run_has_its_own_count(files: RunFiles) -> None:
    """Though the counter began anew between them."""
    sampled(files, {at: {"energy_joules": 200.0 * (at % 15)} for at in range(30)})
    two = run_between(START + 1, START + 13, START - 3)
    add_leg(two, START + 16, START + 28, START + 14, ON_IT)
    assert read_usage(files, two).joules == pytest.approx(200 * 24)


def at(seconds: float, **values: object) -> str:
    """A line at this many seconds of the span."""
    return json.dumps({"wall_seconds": STARTED + RELEASE_SECONDS + seconds, **values})


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
    outside = at(-5, x=1.0), at(1e6, x=3.0), '{"wall_seconds": "noon", "x": 4.0}', '{"x": 5.0}'
    nonsense = (
        *("not json", "[1]", "[" * 50_000, at(4, x=1.0).replace("{", '{"x":9.0,', 1)),
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
