"""The ledger notices that it could not write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aiperf.clock import SystemClock
from aiperf.errors import JournalError
from aiperf.journal.events import Beat, Ended, LegBegan, Opened, Stalled
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from aiperf.run.ledger import Ledger
from aiperf.wire.reports import Finished
from aiperf.wire.trial import State
from tests.aiperf.groups import begun
from tests.aiperf.presets import resolved_preset


@contextmanager
def leg(files: RunFiles) -> Iterator[Ledger]:
    with begun(files, resolved_preset("digits"), SystemClock()) as ledger:
        ledger.write(LegBegan(0, "now", ("aiperf-hpc",), ((1,),)), 20.0)  # it may take long to come so far
        yield ledger


def test_no_trial_fails_because_the_run_directory_was_renamed(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "run")
    failed = Ended(Finished(0, 1, State.FAILED, "0.safetensors cannot be written"), 20.1)
    with leg(files) as ledger:
        ledger.write(Beat(), 20.0)  # it has just looked
        files.directory.rename(tmp_path / "elsewhere")
        with pytest.raises(JournalError, match=r"is gone: it is .*elsewhere"):
            ledger.write(failed, 20.1)
    lines = read_journal(RunFiles(tmp_path / "elsewhere").journal)
    assert [type(line.event) for line in lines] == [Opened, LegBegan, Beat]


def test_a_stall_is_written_down_before_the_first_line_after_it(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "run")
    with leg(files) as ledger:
        ledger.write(Beat(), 29.0)
        ledger.write(Beat(), 69.0)
    lines = read_journal(files.journal)
    assert [type(line.event) for line in lines] == [Opened, LegBegan, Beat, Stalled, Beat]
    assert [(stall.begin, stall.end) for stall in replay(lines).leg.stalls] == [(29.0, 69.0)]
    assert replay(lines).leg.longest_silence == 9.0
