"""benchmarks/device.py on a processor: what is written, that it continues, that a failure is reported, and
calls that are ended or meet in one folder."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil
import pytest

from aiperf.device import bind
from aiperf.host.scheduler_warning import heeded
from benchmarks import device
from benchmarks.on_device import machine, runner
from benchmarks.on_device.__main__ import identify as identity_of
from benchmarks.on_device.__main__ import main
from benchmarks.on_device.page import WIDTH, page, reason, shown
from benchmarks.on_device.parts import BY_NAME, IDENTITY, PARTS, Setting
from benchmarks.on_device.rows import Figures, Use, figures, row
from benchmarks.on_device.runner import forget, go_on, identify, limit_of, needed, pending, run_part, told
from benchmarks.on_device.state import DONE, FAILED, FORM, UNFINISHED, Measured, StateError, opened
from tests.house.tree import ROOT, tracked
from tests.tables import ComesTo

SETTINGS = {"device": "cpu", "span": 6.0}
KEYS = {"title", "state", "began", "seconds", "figures", "error"}
MORE = 75
CRASHED = "CUDA error: an illegal memory access was encountered"
BAD_SECONDS = [("--span", "nan"), ("--span", "-5"), ("--span", "a"), ("--seconds", "0")]


def called(out: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script as a user starts it, from another directory."""
    command = [sys.executable, str(ROOT / "benchmarks/device.py"), "--device", "cpu", "--out", str(out)]
    return subprocess.run(
        [*command, *words],
        cwd=out.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
    )


def record(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "device.json").read_text(encoding="utf-8"))
    return found


def measured_as(folder: Path, **states: str) -> Measured:
    """Parts in these states, each with a row."""
    parts = {
        name.replace("_", "-"): {
            "title": "",
            "state": state,
            "began": "2026-11-23 10:00:00 UTC",
            "seconds": 20.0,
            "figures": figures([row("rate", 6500.0, "images/s", 4868.0, "somebody", use=Use(652.3, 1.98e9))]),
            "error": "",
        }
        for name, state in states.items()
    }
    return Measured(folder, SETTINGS, {"device": "A device"}, parts)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_continues_and_a_failure_is_told(tmp_path: Path) -> None:
    """A damaged journal stands for whatever a part may raise; the parts after it are made all the same."""
    out = tmp_path / "out"
    run = out / "runs/digits-auto"
    run.mkdir(parents=True)
    (run / "journal.jsonl").write_text("no journal\n")
    earlier = measured_as(out, machine=DONE, digits_auto=DONE)
    earlier.identity = identity_of(bind("cpu", 0))
    earlier.save(page(earlier))
    ended = called(out, "--span", "6", "--only", "overhead-digits", "control-compiled")
    assert ended.returncode == MORE, ended.stderr

    found = record(out)
    assert found.keys() == {"form", "settings", "identity", "parts"}
    assert (found["form"], found["settings"], found["identity"]) == (FORM, SETTINGS, earlier.identity)
    assert found["parts"].keys() == {"machine", "digits-auto", "overhead-digits", "control-compiled"}
    assert all(part.keys() == KEYS for part in found["parts"].values())
    assert found["parts"]["machine"] == earlier.parts["machine"]
    states = {name: part["state"] for name, part in found["parts"].items()}
    assert (states["overhead-digits"], states["control-compiled"]) == (FAILED, DONE)
    error = found["parts"]["overhead-digits"]["error"]
    assert error.startswith("ended with exit code 1\nTraceback (most recent call last):")
    assert "journal.jsonl" in error.splitlines()[-1]
    text = (out / "device.txt").read_text(encoding="utf-8")
    assert text in ended.stdout
    assert "\nFAILED: " in text
    assert "\nfailed      overhead-digits\n" in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_what_cannot_be_continued_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """Figures of other settings, and what was edited by hand."""
    monkeypatch.chdir(tmp_path)
    measured_as(Path(), machine=DONE).save("")
    whole = record(Path())

    def written(text: str) -> str:
        """The state of the machine's part in this file."""
        Path("device.json").write_text(text)
        return opened(Path(), SETTINGS).state("machine")

    def edited(path: tuple[str | int, ...], value: object) -> str:
        *inner, last = path
        place = changed = copy.deepcopy(whole)
        for name in inner:
            place = place[name]
        place[last] = value
        return written(json.dumps(changed))

    names = {"written": written, "edited": edited, "MACHINE": ("parts", "machine")}
    comes_to_what_was_read("edited.txt", names)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """The exit code of a call in this process, on a device that calls itself Other."""

    def call(*words: object) -> int:
        try:
            return device.main(["--device", "cpu", *map(str, words)])
        except SystemExit as ended:  # of argparse
            return int(ended.code or 0)

    monkeypatch.setattr(device, "identify", lambda measured, setting: measured.identify({"device": "Other"}))
    kept = {number: signal.getsignal(number) for number in heeded()}
    yield call
    for number, handler in kept.items():
        signal.signal(number, handler)


NO_SECONDS = "is not a number of seconds above 0"
ANOTHER = "is of device 'A device', this is 'Other'; give another --out, or --again all"


@pytest.mark.parametrize(
    ("words", "had", "line"),
    [
        (["--only", "sensor"], [], "there is no part sensor; parts: machine,"),
        *(([name, value], [], f"argument {name}: {value} {NO_SECONDS}") for name, value in BAD_SECONDS),
        (["--device", "npu"], [], "torch sees no npu device; `aiperf-hpc doctor` looks for what hides it"),
        (["--only", "formats"], ["machine"], ANOTHER),  # before a part is begun
        ([], list(BY_NAME), ANOTHER),  # before it says that all are done
    ],
)
def test_what_cannot_be_begun_gets_one_line(
    tmp_path: Path,
    typed: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    had: list[str],
    line: str,
) -> None:
    """`had`: the parts in its folder, of another machine."""
    file = tmp_path / "out/device.json"
    if had:
        file.parent.mkdir()
        measured_as(file.parent, **dict.fromkeys(had, DONE)).save("")
    before = file.read_bytes() if had else None
    assert typed("--out", file.parent, "--span", "6", *words) == 2
    output = capsys.readouterr()
    assert (output.out, line in output.err.splitlines()[-1]) == ("", True), output.err
    assert (file.read_bytes() if file.parent.exists() else None) == before


def test_only_all_is_every_part(
    tmp_path: Path, typed: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("--out", tmp_path, "--only", "all", "--seconds", "1") == MORE
    waiting, *_, last = capsys.readouterr().out.splitlines()
    assert [name for name in BY_NAME if f" {name} (" not in waiting] == []
    assert last == "a part needs about 120 s: call with --seconds 140 or more"
    assert typed("--list") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*BY_NAME]


def test_no_part_is_begun_that_does_not_fit(setting: Setting) -> None:
    measured, said = measured_as(setting.folder), list[str]()
    go_on(measured, setting, monotonic() + 5, said.append, ("machine", "formats"))
    assert measured.parts == {}
    assert said == ["not begun, for too little time is left: machine (10 s), formats (10 s); call again"]


def test_a_part_that_had_too_little_time_is_expected_to_need_more(setting: Setting, tmp_path: Path) -> None:
    part = BY_NAME["sensors"]
    assert needed(measured_as(tmp_path), part, setting) == part.needs(setting) == 15
    assert needed(measured_as(tmp_path, sensors=UNFINISHED), part, setting) == 30
    assert part in pending(measured_as(tmp_path, sensors=UNFINISHED))
    assert part not in pending(measured_as(tmp_path, sensors=FAILED))
    groups = [BY_NAME["groups"].needs(Setting("cuda", tmp_path, 60.0, count)) for count in (1, 2)]
    assert groups == [15, 120]
    of_amd = Measured(tmp_path, {"device": "cuda"}, {"device": "AMD Instinct MI300X"})
    assert (limit_of(measured_as(tmp_path), 40), limit_of(of_amd, 40)) == (100, 300)


def test_what_reads_a_run_waits_for_it(setting: Setting) -> None:
    """And has that run's failure."""
    for states, error in (
        ({}, None),
        ({"digits_auto": FAILED}, "it reads the run digits-auto, which failed"),
    ):
        measured = measured_as(setting.folder, **states)
        go_on(measured, setting, monotonic() + 1000, [].append, ("overhead-digits",))
        assert measured.parts.get("overhead-digits", {}).get("error") == error


@pytest.mark.parametrize(("is_whole", "state"), [(True, FAILED), (False, UNFINISHED)])
def test_a_part_that_hangs_is_ended(setting: Setting, is_whole: bool, state: str) -> None:
    ended = run_part(BY_NAME["machine"], setting, 0.01, is_whole)
    assert (ended.state, ended.result) == (state, None)
    assert ended.error.startswith("not over after 0 s; its output: ")
    assert ended.seconds < 10


def test_again_forgets_what_reads_its_run_too(tmp_path: Path) -> None:
    measured = measured_as(tmp_path, machine=DONE, digits_auto=DONE, overhead_digits=DONE)
    forget(measured, ["digits-auto"])
    assert measured.parts.keys() == {"machine"}
    forget(measured, ["all"])
    assert (measured.parts, measured.identity) == ({}, {})


def test_the_end_of_a_process_is_told() -> None:
    assert told("a\nb", -11) == "ended by SIGSEGV\na\nb"
    first, second, last = (f"Traceback (most recent call last):\n  {each}\nE: {each}" for each in "abc")
    assert told(f"x\n{first}\n{second}\n{last}", 1) == f"ended with exit code 1\n{first}\n{last}"


def test_a_part_that_is_cut_off_keeps_what_it_had(setting: Setting, put: Callable[..., None]) -> None:
    """Its process is this one: it crashes after its first figures, or has no more time."""

    def measured(setting: Setting) -> Iterator[Figures]:
        yield figures([row("first", 1.0)])
        raise RuntimeError(f"{CRASHED}\nadvice")

    def waited(command: list[str], output: int, seconds: float) -> int:
        put(sys, argv=command[2:])
        try:
            main()
        except RuntimeError:
            os.write(output, traceback.format_exc().encode())
            return 1
        return 0

    put(machine, measure=measured)
    put(runner, wait=waited)
    ended = run_part(BY_NAME["machine"], setting, 100.0, is_whole=True)
    assert (ended.state, reason(ended.error)) == (FAILED, f"ended with exit code 1: RuntimeError: {CRASHED}")
    assert ended.result is not None
    assert [each["what"] for each in ended.result["figures"]["rows"]] == ["first"]
    ended = run_part(BY_NAME["machine"], setting, 0.0, is_whole=True)
    assert (ended.state, ended.error) == (DONE, "")
    assert ended.result is not None
    assert ended.result["figures"]["notes"] == ["Stopped after its time, 0 s: something may be missing."]


def test_the_page(tmp_path: Path, as_it_was_read: Callable[[str, str], None]) -> None:
    """Whole, with what is long and what is unknown."""
    measured = measured_as(tmp_path, machine=DONE, formats=FAILED)
    long = [
        row("a name that is longer than its column is wide", None, "OPS", 989.5e12, "listed peak"),
        row("text", "as long as it likes " * 5),
        row("error", 0.0123, "%", 0.02, "goal, at most", compared=False),
    ]
    measured.parts["formats"]["figures"] = figures(long, faults=["a fault"], smaller="everything")
    frame = 'Traceback (most recent call last):\n  File "a.py", line 1, in a\n    a()'
    measured.parts["formats"]["error"] = f"ended with exit code 1\n{frame}\ntorch.E: {CRASHED}\nadvice"
    measured.parts["machine"]["figures"]["slow"] = ["half of what it should be"]
    as_it_was_read(page(measured), "page.txt")


def test_a_figure_is_shown_with_its_unit(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("shown.txt", {"shown": shown})


def test_every_part_has_its_module_and_leaves_time_for_others(tmp_path: Path) -> None:
    folder, accelerator = ROOT / "benchmarks/on_device", Setting("cuda", tmp_path, 60.0)
    assert [part.name for part in PARTS if not (folder / f"{part.module}.py").is_file()] == []
    assert len(BY_NAME) == len(PARTS)
    assert all(not part.after or part.after in BY_NAME for part in PARTS)
    assert max(part.needs(accelerator) for part in PARTS) <= 240  # half of the 480 s of a call


def test_everything_is_expected_to_fit_into_forty_minutes(tmp_path: Path) -> None:
    """In calls of eight minutes, each of which begins with the identity and leaves out what does not fit."""
    setting, done, seconds = Setting("cuda", tmp_path, 60.0), set[str](), 0.0
    while len(done) < len(PARTS):
        call = IDENTITY.needs(setting)
        for part in PARTS:
            fits = call + part.needs(setting) <= 480 and part.after in {"", *done}
            if fits and part.name not in done:
                call += part.needs(setting)
                done.add(part.name)
        seconds += call
    assert seconds <= 40 * 60


def test_the_checkout_is_small_enough() -> None:
    """As a person carries it to a machine without a network."""
    assert sum((ROOT / path).stat().st_size for path in tracked()) < 60 << 20


SECONDS = 30.0
"""In which a part must be gone; the one in these tests lasts a minute at least."""
LASTING = "engines-compiled"


@contextmanager
def at_work(out: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A call and the processes of its part."""
    command = [sys.executable, str(ROOT / "benchmarks/device.py"), "--device", "cpu", "--out", str(out)]
    call = subprocess.Popen(
        [*command, "--only", LASTING],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    part: list[psutil.Process] = []
    try:
        until = monotonic() + 300
        while not part and call.poll() is None and monotonic() < until:
            sleep(0.02)
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):  # one has ended: look again
                begun = psutil.Process(call.pid).children(recursive=True)
                # The one that measures, not the one that waits for it.
                part = [each for each in begun if each.cmdline()[2:4] == ["benchmarks.on_device", LASTING]]
        assert part, call.poll()
        yield call, part
    finally:
        call.kill()
        call.communicate()
        for process in part:
            if process.is_running():  # the same, not another of its number
                process.kill()


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_part_ends_with_its_call(tmp_path: Path, number: signal.Signals) -> None:
    """While it is at work, another call in the folder is refused."""
    with at_work(tmp_path) as (call, part):
        if number == signal.SIGTERM:
            second = called(tmp_path, "--only", "machine")
            assert (second.returncode, second.stdout) == (2, "")
            told = f"another call is at work in {tmp_path}; wait for it, or give another --out"
            assert second.stderr == f"benchmarks/device.py: {told}\n"
        assert part[0].is_running()
        call.send_signal(number)
        assert psutil.wait_procs(part, timeout=SECONDS)[1] == []
        output = call.communicate(timeout=SECONDS)[0]
    assert not (tmp_path / "device.json").exists()
    if number == signal.SIGKILL:
        assert call.returncode == -number
        return
    assert call.returncode == 128 + number
    assert output.splitlines()[-1] == f"benchmarks/device.py: ended by {number.name}; call again to go on"
    assert "Traceback" not in output


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_device_that_cannot_be_identified_is_told(tmp_path: Path) -> None:
    """As where a device has fallen off its bus since it was counted."""
    with pytest.raises(StateError, match=r"the npu device cannot be identified: .*; see .*identity\.log$"):
        identify(Measured(tmp_path, {}), Setting("npu", tmp_path, 6.0))
