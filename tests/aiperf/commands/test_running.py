"""`run`: what it waits for when it goes on, and what it ends with."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from aiperf import events
from aiperf.commands import running
from aiperf.files import RunFiles
from aiperf.journal import read_journal
from aiperf.replay import replay
from tests.aiperf import journals


@pytest.mark.parametrize(("tested", "code"), [(True, 0), (False, 1)])
def test_a_run_without_a_tested_network_has_failed(
    tested: bool, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for line in journals.told() if tested or not isinstance(line[1], events.Tested)]
    files = journals.write_run(tmp_path / "run", lines)
    assert running._result(replay(read_journal(files.journal)), files) == code
    told = capsys.readouterr().err
    assert ("the test did not end; `aiperf-hpc resume` does it again" in told) == (not tested)


@pytest.mark.parametrize(("content", "seconds"), [("held", 32.0), ("", 0.0)])
def test_a_lock_ages_by_the_clock_of_the_file_server(
    content: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, slept, now = RunFiles(tmp_path), [0.0], time.time()
    files.journal.touch()
    files.lock.write_text(content)
    monkeypatch.setattr("time.time", lambda: now + 3600)
    monkeypatch.setattr("time.sleep", slept.append)
    running._let_the_lock_age(files)
    assert sum(slept) == pytest.approx(seconds, abs=1.0)
