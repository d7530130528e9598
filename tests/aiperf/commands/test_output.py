"""Where the command's words go: a disk that is full, a reader that has left, a locale of few letters."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.files import RunFiles
from aiperf.journal.replay import Replay
from aiperf.run.display import Display
from tests.journals import told, write_run

COMMAND = [sys.executable, "-m", "aiperf"]


def test_a_full_disk_under_the_output_is_one_line() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        answer = subprocess.run(
            [*COMMAND, "count"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert answer.returncode == 1
    assert answer.stderr == "aiperf-hpc: No space left on device\n"


def test_a_reader_that_has_left_is_told_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    answer = subprocess.run([*COMMAND, "count"], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert (answer.returncode, answer.stderr) == (1, "")


def test_a_locale_of_few_letters_takes_nothing_but_letters_away(tmp_path: Path) -> None:
    files = write_run(tmp_path / "run", told())
    answer = subprocess.run(
        [*COMMAND, "score", files.directory],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "VALID, class smoke" in answer.stdout


class Full(io.StringIO):
    """A log on a disk without room."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_run_goes_on_when_nobody_can_see_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replay = Replay()
    monkeypatch.setattr(sys, "stdout", Full())
    with Display(RunFiles(Path("runs/one")), terminal=False) as display:
        for t, event in told():
            replay.add(t, event)
            if replay.legs:
                display.show(replay, t)
    told_once = "aiperf-hpc: progress cannot be shown any more (No space left on device)\n"
    assert capsys.readouterr().err == told_once
