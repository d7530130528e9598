"""A run and its notary: whatever the notary does, and whatever the file system does, the run goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.journal.notary import JournalHead, NotaryAnswer, parsed_request
from aiperf.journal.run_files import RunFiles
from aiperf.run import notarisation
from aiperf.run.notarisation import Notarisation
from analysis.submissions.keys import line_of
from analysis.submissions.signature import make_key

ANSWER = NotaryAnswer("ab" * 32, "cd" * 32, 1, JournalHead(2, 100, "ef" * 32), 0, 0, "", "12" * 64)


class Leg:
    """A leg with a journal of two lines, and what its user reads."""

    def __init__(self, directory: Path) -> None:
        self.files, self.head, self.said = RunFiles(directory), ANSWER.head, list[str]()
        self.files.journal.touch()
        self.asks = Notarisation(self.files, 0, lambda: self.head, self.duplicate, self.said.append)

    def duplicate(self) -> int:
        return os.open(self.files.journal, os.O_WRONLY)

    def handed(self) -> JournalHead:
        return parsed_request(self.files.notary_request(0).read_bytes()).head


@pytest.fixture
def leg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Leg:
    for name in ("NONCE_SECONDS", "LAST_SECONDS"):
        monkeypatch.setattr(notarisation, name, 0.3)
    return Leg(tmp_path)


def answered(leg: Leg, text: str) -> NotaryAnswer | None:
    leg.files.notary_directory.mkdir(exist_ok=True)
    leg.files.notary_answers(0).write_text(text)
    return leg.asks.nonce(lambda: False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no answer",
        "7" * 100_000,
        replace(ANSWER, head=JournalHead(2, 100, "aa" * 32)).line(),
        replace(ANSWER, count=1).line(),
    ],
    ids=["empty", "noise", "huge", "old nonce", "not the first"],
)
def test_without_an_answer_to_its_question_a_leg_goes_on_and_asks_no_more(text: str, leg: Leg) -> None:
    assert answered(leg, text) is None
    assert leg.said == ["this leg is not notarised: no notary answered within 0 s; the run goes on"]
    leg.head = JournalHead(9, 900, "99" * 32)
    leg.asks.tick(100.0, None)
    leg.asks.last()
    assert leg.handed() == ANSWER.head


def test_heads_are_handed_over_twice_a_minute_and_at_the_end(leg: Leg) -> None:
    assert answered(leg, ANSWER.line()) == ANSWER
    seen = []
    for t in range(100):
        leg.head = JournalHead(10 + t, 1000 + t, f"{t:064x}")
        leg.asks.tick(float(t), 3600.0)
        leg.asks._join(5.0)
        seen.append(leg.handed().lines - 10)
    assert sorted(set(seen)) == [0, 30, 60, 90]
    leg.asks.last()
    assert leg.handed() == leg.head
    assert leg.said == []


def test_a_short_span_has_heads_too(leg: Leg) -> None:
    answered(leg, ANSWER.line())
    leg.asks.tick(0.0, 60.0)
    assert leg.asks._due == 3.0
    leg.asks.tick(5.0, 6.0)
    assert leg.asks._due == 6.0


def test_a_file_server_that_hangs_delays_nothing(leg: Leg, monkeypatch: pytest.MonkeyPatch) -> None:
    answered(leg, ANSWER.line())
    goes_on = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda file: goes_on.wait(20))
    begun = time.monotonic()
    for t in (0.0, 30.0, 60.0):
        leg.asks.tick(t, None)
    leg.asks.last()
    assert time.monotonic() - begun < 5
    assert threading.active_count() <= 2 + sum(t.name != "notary" for t in threading.enumerate())
    goes_on.set()
    leg.asks._join(20)


def test_a_folder_that_cannot_be_written_is_reported_once_and_the_run_goes_on(leg: Leg) -> None:
    leg.files.notary_directory.touch()
    assert leg.asks.nonce(lambda: False) is None
    assert leg.said == ["this leg is not notarised: Not a directory; the run goes on"] or leg.said == [
        "this leg is not notarised: File exists; the run goes on"
    ]


def test_a_link_in_the_way_is_not_followed(leg: Leg) -> None:
    """The notary may write into the folder, and must not make the run write elsewhere."""
    (victim := leg.files.directory / "victim").write_text("precious")
    leg.files.notary_directory.mkdir()
    leg.files.notary_request(0).symlink_to(victim)
    leg.files.notary_request(0).with_name("0.request.json.part").symlink_to(victim)
    answered(leg, ANSWER.line())
    assert leg.handed() == ANSWER.head
    assert victim.read_text() == "precious"


PROGRAM = (sys.executable, "-m", "aiperf")


class Served:
    """A notary as a process, which is killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.command = (*PROGRAM, "notary", "--key", str(folder / "key"), str(folder / "runs"))
        self.process = subprocess.Popen(self.command, stderr=subprocess.DEVNULL)

    def restart(self) -> None:
        self.end()
        time.sleep(0.5)
        self.process = subprocess.Popen(self.command, stderr=subprocess.DEVNULL)

    def end(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "runs").mkdir()
    (tmp_path / "notaries").write_text(line_of(make_key(tmp_path / "key"), "HPC list"))
    notary = Served(tmp_path)
    yield notary
    notary.end()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_is_notarised_to_its_end_although_its_notary_is_killed_twice(
    served: Served, tmp_path: Path
) -> None:
    files = RunFiles(tmp_path / "runs" / "run")
    command = ("run", "--notary", "--minutes", "0.1", "--device", "cpu", "--directory", str(files.directory))
    run = subprocess.Popen((*PROGRAM, *command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for least in (2, 4):
        while run.poll() is None and num_answers(files) < least:
            time.sleep(0.1)
        served.restart()
    out, err = run.communicate(timeout=180)
    assert run.returncode == 0, out + err
    assert "not notarised" not in err
    until = time.monotonic() + 20
    while (
        time.monotonic() < until
        and last_signed(files) < parsed_request(files.notary_request(0).read_bytes()).head.lines
    ):
        time.sleep(0.1)
    validate = (*PROGRAM, "validate", str(files.directory), "--notaries", str(tmp_path / "notaries"))
    validate = (*validate, "--reevaluate", "--device", "cpu")
    told = subprocess.run(validate, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stdout + told.stderr
    label = next(line for line in told.stdout.splitlines() if line.startswith("notarised"))
    assert label.startswith("notarised by HPC list; nonce 1 of HPC list at 20")
    checks = re.search(r"; spot checks: (\d) of \1 there$", label)
    assert checks, label
    again = re.findall("spot check, validation: .*: (agrees|DIFFERS)\n", told.stdout)
    assert len(again) == int(checks[1])
    assert "agrees" in again


def num_answers(files: RunFiles) -> int:
    path = files.notary_answers(0)
    return len(path.read_text().splitlines()) if path.exists() else 0


def last_signed(files: RunFiles) -> int:
    lines: int = json.loads(files.notary_answers(0).read_text().splitlines()[-1])["head"]["lines"]
    return lines
