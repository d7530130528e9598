"""The process that records: what it costs, what it survives, and what its lines add up to."""

from __future__ import annotations

import inspect
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil
import pytest

from aiperf.files import RunFiles
from aiperf.journal.events import LegBegan, LegEnded, RankReady, Released
from aiperf.journal.replay import Replay
from aiperf.telemetry.recorder import Recorder
from aiperf.wire.messages import Ready
from analysis.readings.telemetry import records
from analysis.readings.usage import DeviceUse, Usage, read_usage
from tests.aiperf.telemetry.fakes import pynvml as fake
from tests.journals import READY

FAKES = Path(__file__).parent / "fakes"
DEVICE = fake.UUID.removeprefix("GPU-")
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFiles:
    """A run directory; whatever is started finds the fake NVML."""
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(FAKES), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    )
    return RunFiles(tmp_path)


@contextmanager
def recorder(
    files: RunFiles, library: str = "nvidia", devices: tuple[str, ...] = (DEVICE,), lines: int = 1
) -> Iterator[Recorder]:
    """One that records, and has written so many lines."""
    recording = Recorder(files.telemetry("node1"), library, {each: each for each in devices})
    try:
        until = time.monotonic() + lines + 60
        while not (path := files.telemetry("node1")).exists() or path.read_bytes().count(b"\n") < lines:
            assert time.monotonic() < until, read(files)
            time.sleep(0.05)
        yield recording
    finally:
        recording.close()


def recorded(files: RunFiles, lines: int) -> list[dict[str, Any]]:
    with recorder(files, lines=lines):
        pass
    return read(files)


def read(files: RunFiles) -> list[dict[str, Any]]:
    path = files.telemetry("node1")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_between(began: float, ended: float, started: float) -> Replay:
    """A run of one rank on node1 whose span lies between two times of day."""
    found = Replay()
    add_leg(found, began, ended, started, replace(READY, device_id=DEVICE))
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


def use(usage: Usage) -> DeviceUse:
    (found,) = usage.devices
    return found


def test_a_counter_of_known_power_gives_the_joules_of_exactly_the_span(files: RunFiles) -> None:
    lines = recorded(files, 9)
    first, last = lines[0]["wall_seconds"], lines[-1]["wall_seconds"]
    began, ended = first + 1.37, last - 1.81
    found = read_usage(files, run_between(began, ended, first - 20))
    assert found.joules == pytest.approx(fake.WATTS * (ended - began), rel=0.01)
    assert use(found).by_counter
    assert use(found).mean_clock_hertz == use(found).least_clock_hertz == 1755e6
    assert use(found).mean_temperature_celsius == 64.0
    held = use(found).throttled_seconds
    assert set(held) == {"power cap", "temperature"}
    assert held["power cap"] == pytest.approx((ended - began) / 2, abs=1.1)  # every other second


def test_the_sums_are_those_of_the_samples(files: RunFiles) -> None:
    """Power integrated by hand, where there is no counter."""
    start, power = 1.8e9, [100.0, 300.0, 200.0, 400.0, 100.0, 100.0]
    sampled(files, {start + at: {"power_watts": watts} for at, watts in enumerate(power)})
    found = read_usage(files, run_between(start + 0.5, start + 4.5, start - 3))
    # Half of the first and of the last second, by the trapezoid rule, and all between.
    by_hand = 0.5 * (200 + 300) / 2 + (300 + 200) / 2 + (200 + 400) / 2 + (400 + 100) / 2 + 0.5 * 100
    assert found.joules == pytest.approx(by_hand)
    assert not use(found).by_counter


def sampled(
    files: RunFiles, readings: dict[float, dict[str, float]], host: str = "node1", device: str = DEVICE
) -> None:
    """Lines of a host at these times of day."""
    files.telemetry(host).parent.mkdir(exist_ok=True)
    with files.telemetry(host).open("a") as file:
        for moment, values in readings.items():
            file.write(json.dumps({"wall_seconds": moment, "devices": [{"id": device, **values}]}) + "\n")


def drawn(files: RunFiles, host: str, device: str, start: float, seconds: int) -> None:
    """A file of a host on which a device drew 200 W."""
    sampled(files, {start + at: {"power_watts": 200.0} for at in range(seconds)}, host, device)


@pytest.mark.parametrize(
    "second", [("node2", "other"), ("node1", "other"), ("node2", DEVICE), ("node1", DEVICE)]
)
def test_a_run_that_goes_on_elsewhere_has_the_energy_of_both_legs(
    files: RunFiles, second: tuple[str, str]
) -> None:
    """On other hosts or devices, as schedulers give them: each counts in the legs in which a rank had it."""
    start, (host, device) = 1.8e9, second
    drawn(files, "node1", DEVICE, start, 30)
    drawn(files, host, device, start + 100, 40)
    run = run_between(start + 5, start + 25, start - 3)
    add_leg(run, start + 105, start + 135, start + 97, replace(READY, host=host, device_id=device))
    found = read_usage(files, run)
    assert (found.missing, found.joules) == ("", pytest.approx(200 * (20 + 30)))
    assert sum(use.span_seconds for use in found.devices) == pytest.approx(50)


def test_a_device_of_a_leg_whose_clock_did_not_start_is_not_asked_for(files: RunFiles) -> None:
    start = 1.8e9
    drawn(files, "node1", DEVICE, start, 30)
    run = Replay()
    moment = datetime.fromtimestamp(start - 50, timezone.utc).isoformat(timespec="milliseconds")
    run.add(0.0, LegBegan(0, moment, (), ((1,),)))
    run.add(0.1, RankReady(0, replace(READY, host="node9", device_id="broken"), 0.0))
    run.add(0.2, LegEnded("error: the driver of node9 hangs", 0.2))
    add_leg(run, start + 5, start + 25, start - 3, replace(READY, device_id=DEVICE))
    found = read_usage(files, run)
    assert found.joules == pytest.approx(200 * 20)
    assert use(found).throttled_seconds is None, "who never said so is not said to be free"


CONTRADICTION = f"the energy counter and the power of {DEVICE} on node1 contradict each other"
UNKNOWN = f"no power of {DEVICE} on node1 is known over the whole span"


@pytest.mark.parametrize(
    ("energy", "watts", "hole", "joules", "why"),
    [
        (lambda at: 201.0 * at, 200.0, (), 201 * 20, ""),
        (lambda at: 7.0, 200.0, (), 200 * 20, ""),  # a counter that stands still is none
        (lambda at: 0.2 * at, 200.0, (), None, CONTRADICTION),
        (lambda at: 200e3 * at, 200.0, (), None, CONTRADICTION),
        (lambda at: 200.0 * at, None, range(12, 18), 200 * 20, ""),  # it counts on meanwhile
        (None, 200.0, range(12, 18), None, UNKNOWN),
        (lambda at: 200.0 * at, 200.0, range(23, 30), None, UNKNOWN),  # nobody knows what it was at the end
        (lambda at: 200.0 * at, 200.0, range(6), None, UNKNOWN),
        (lambda at: 200.0 * (at % 15), 200.0, (), 200 * 20, ""),  # it began anew, as with a loaded driver
        (lambda at: 200.0 * (at % 15), None, (), None, UNKNOWN),
    ],
)
def test_a_counter_is_believed_where_the_power_agrees_and_nothing_is_made_up(
    files: RunFiles,
    energy: Callable[[int], float] | None,
    watts: float | None,
    hole: Collection[int],
    joules: float | None,
    why: str,
) -> None:
    start = 1.8e9
    for at in (at for at in range(30) if at not in hole):
        power = {"power_watts": watts} if watts else {}
        sampled(files, {start + at: power | ({"energy_joules": energy(at)} if energy else {})})
    found = read_usage(files, run_between(start + 5, start + 25, start - 3))
    assert (found.missing, found.joules) == (why, joules if joules is None else pytest.approx(joules))


def test_each_leg_of_a_run_has_its_own_count(files: RunFiles) -> None:
    """Though the counter began anew between them."""
    start = 1.8e9
    sampled(files, {start + at: {"energy_joules": 200.0 * (at % 15)} for at in range(30)})
    two = run_between(start + 1, start + 13, start - 3)
    add_leg(two, start + 16, start + 28, start + 14, replace(READY, device_id=DEVICE))
    assert read_usage(files, two).joules == pytest.approx(200 * 24)


def test_the_span_is_on_the_clock_of_the_host(files: RunFiles) -> None:
    """It is 0.8 s ahead of the master's, and its device drew more from second to second."""
    start, run = 1.8e9, Replay()
    sampled(files, {start + 0.8 + at: {"power_watts": 10.0 * at} for at in range(30)})
    add_leg(run, start + 5, start + 25, start - 3, replace(READY, device_id=DEVICE), offset=0.8)
    assert read_usage(files, run).joules == pytest.approx(10 * (25**2 - 5**2) / 2)


def test_a_reading_that_came_late_counts_where_it_came(files: RunFiles) -> None:
    start = 1.8e9
    for at, late in enumerate([0.4, 0.0, 0.3, 0.0, 0.0, 0.2]):
        sampled(files, {start + at: {"wall_seconds": start + at + late, "energy_joules": 300.0 * at}})
    found = read_usage(files, run_between(start + 0.4, start + 4.0, start - 3))
    assert found.joules == pytest.approx(300 * 4)


@pytest.mark.parametrize("trouble", ["vanish", "nonsense"])
def test_a_sensor_that_vanishes_or_talks_nonsense_is_unknown(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setenv("FAKE_NVML_TROUBLE", trouble)
    lines = recorded(files, 7)
    assert "power_watts" in lines[1]["devices"][0]
    assert "power_watts" not in lines[-1]["devices"][0]
    assert ("unknown" in lines[-1]["devices"][0]) == (trouble == "vanish")
    assert "utilisation" in lines[-2]["host"]  # the last line may follow it at once
    first, last = lines[0]["wall_seconds"], lines[-1]["wall_seconds"]
    found = read_usage(files, run_between(first + 0.5, last - 0.5, first - 1))
    assert found.joules is None
    assert found.missing == UNKNOWN


@pytest.mark.slow
def test_a_sensor_that_hangs_holds_nobody_up(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_TROUBLE", "hang")
    lines = recorded(files, 16)
    # The recorder has the lowest priority: on a busy machine its lines may be seconds apart, so times count.
    stretches = [(told, list(part)) for told, part in groupby(lines, _tells_power)]
    assert (stretches[0][0], stretches[-1][0]) == (True, True), "it is heard before, and again after"
    silent = max((part for told, part in stretches if not told), key=len)
    seconds = silent[-1]["wall_seconds"] - silent[0]["wall_seconds"]
    assert fake.HANG_SECONDS - 4 < seconds < fake.HANG_SECONDS + 4
    assert len(silent) >= 4, "it went on with the others"
    assert all(line["host"].get("memory_bytes") for line in silent[1:])
    assert {line["devices"][0]["unknown"] for line in silent} == {"does not answer"}


def _tells_power(line: dict[str, Any]) -> bool:
    return "power_watts" in line["devices"][0]


def test_where_there_is_no_library_it_says_so(files: RunFiles) -> None:
    with recorder(files, "amd", ("some-device",)):
        pass
    assert read(files)[-1]["devices"] == [
        {"id": "some-device", "unknown": "ModuleNotFoundError: No module named 'amdsmi'"}
    ]


def test_a_full_disk_costs_the_lines_that_do_not_fit_and_no_more(files: RunFiles) -> None:
    """As a limit on the size of its file does it, which is lifted after a while."""
    path = files.telemetry("node1")
    with recorder(files, lines=2) as full:
        size = path.stat().st_size + 30
        resource.prlimit(full._process.pid, resource.RLIMIT_FSIZE, (size, -1))
        until = time.monotonic() + 60
        while path.stat().st_size < size:  # it has written what still fitted
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(2.5)  # a line or two that do not fit at all
        assert path.stat().st_size == size
        resource.prlimit(full._process.pid, resource.RLIMIT_FSIZE, (-1, -1))
        while path.stat().st_size < size + 500:
            assert time.monotonic() < until
            time.sleep(0.1)
    told = list(records(path))
    assert told.count(None) == 1, "the line that was cut off"
    assert told[-1] is not None


def test_a_line_that_another_recorder_left_unfinished_spoils_no_other(files: RunFiles) -> None:
    path = files.telemetry("node1")
    path.parent.mkdir()
    path.write_text('{"wall_seconds": 1.0}\n{"wall_sec')
    with recorder(files, "", (), lines=4):
        pass
    assert path.read_text().splitlines()[1] == '{"wall_sec'
    told = list(records(path))
    assert (told[0], told[1]) == ({"wall_seconds": 1.0}, None)
    assert None not in told[2:]


def test_what_dcmi_cannot_be_used_with_is_not_handed_on(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "4,5")
    with recorder(files, "", ()) as recording:
        assert "ASCEND_RT_VISIBLE_DEVICES" not in psutil.Process(recording._process.pid).environ()


@pytest.mark.contract
def test_it_ends_with_whoever_started_it(files: RunFiles) -> None:
    program = (
        "import sys, time; from pathlib import Path; from aiperf.telemetry.recorder import Recorder; "
        "print(Recorder(Path(sys.argv[1]), '', {})._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(files.telemetry("node1"))], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        orphan = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    orphan.wait(10)


def test_its_lines_reach_from_its_start_to_its_end(files: RunFiles) -> None:
    """A span that ends between two seconds has a sample on either side."""
    with recorder(files):
        time.sleep(1.2)
        ended = time.time()
    lines = read(files)
    assert lines[0]["wall_seconds"] + 1.0 < ended <= lines[-1]["wall_seconds"]
    assert "energy_joules" in lines[-1]["devices"][0]


@pytest.mark.slow
def test_it_costs_less_than_half_a_per_cent_of_a_core(files: RunFiles) -> None:
    """With one device, for twelve seconds."""
    with recorder(files, lines=3) as recording:
        process = psutil.Process(recording._process.pid)
        before, began = process.cpu_times(), time.monotonic()
        time.sleep(12)
        after, ended = process.cpu_times(), time.monotonic()
        assert process.nice() == 19
    spent = after.user + after.system - before.user - before.system
    assert spent / (ended - began) <= 0.005


def test_the_fake_has_the_signatures_of_the_real_module() -> None:
    import pynvml as real  # of nvidia-ml-py

    for name, value in vars(fake).items():
        if name.startswith("nvml"):
            own, other = inspect.signature(value), inspect.signature(getattr(real, name))
            assert list(own.parameters) == list(other.parameters), name
        elif name.startswith("NVML_"):
            assert value == getattr(real, name), name
        elif name.startswith("NVMLError_"):
            assert issubclass(real.NVMLError, Exception)
            assert hasattr(real, name), name
