"""The ledger notices that it could not write."""

from __future__ import annotations

from pathlib import Path

from aiperf.files import RunFiles
from aiperf.journal.events import Beat, LegBegan, Opened, Stalled
from aiperf.journal.file import VERSION, JournalWriter, read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.proposing.jobs import Jobs
from aiperf.run.ledger import Ledger
from nas.record import graph_to_json
from nas.seeds import residual
from tests.aiperf.presets import resolved_preset


def test_a_stall_is_written_down_before_the_first_line_after_it(tmp_path: Path) -> None:
    files, config, told = RunFiles(tmp_path / "run"), resolved_preset("digits"), Replay()
    with JournalWriter.begin(files) as journal:
        journal.write(0.0, opened := Opened(VERSION, "run", "0", "code", config, graph_to_json(residual())))
        told.add(0.0, opened)
        ledger = Ledger(journal, told, Jobs.of(config, residual(), told))
        ledger.write(LegBegan(0, "now", ("aiperf-hpc",), ((1,),)), 20.0)  # it may take long to come so far
        ledger.write(Beat(), 29.0)
        ledger.write(Beat(), 69.0)
    lines = read_journal(files.journal)
    assert [type(line.event) for line in lines] == [Opened, LegBegan, Beat, Stalled, Beat]
    assert [(stall.begin, stall.end) for stall in replay(lines).leg.stalls] == [(29.0, 69.0)]
    assert replay(lines).leg.longest_silence == 9.0
