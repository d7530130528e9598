"""The log of a rank: what it holds, its digest, and what a killed rank or a full disk leaves of a line."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from aiperf.journal.events import Closed, Stepped
from aiperf.tally import Classified
from aiperf.training.rank_log import StepLog
from aiperf.trial import Segment, StepBlock
from tests.journals import log_line


def test_the_digest_is_that_of_the_file_also_where_a_rank_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "log"
    for _ in range(2):  # the second time it was started again
        with StepLog(path) as log:
            assert log.digest() == sha256(path.read_bytes()).digest()
            log.steps(0, 1, 0, 2, 100)
            log.answers(0, 1, 0, Classified(4, 3))
            assert log.digest() == sha256(path.read_bytes()).digest()
    tally = Classified(4, 3)
    block, segment = StepBlock(0, 1, 0, 2, 100, 1.0, 1.0), Segment(0, 1, 0, 2, 100, 1.0, tally, 1.0)
    fabricated = log_line(Stepped(block, 1.0), 0, 1) + log_line(Closed(segment, 2.0), 0, 1)
    assert path.read_text() == 2 * fabricated
    assert path.read_text().splitlines() == 2 * [
        '{"trial": 0, "attempt": 1, "segment": 0, "steps": 2, "examples": 100}',
        '{"trial": 0, "attempt": 1, "segment": 0, "of": 4, "correct": 3}',
    ]


def test_a_line_that_a_killed_rank_left_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with StepLog(path) as log:
        log.steps(0, 1, 0, 2, 100)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"trial": 0, "att')
    with StepLog(path) as log:
        assert path.read_bytes() == whole
        assert log.digest() == sha256(whole).digest()


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    with StepLog(path) as log:
        log.steps(0, 1, 0, 2, 100)
        whole = path.read_bytes()
        real, room = os.write, [5]

        def write(file: int, data: bytes) -> int:
            if not room:
                raise OSError(28, "No space left on device")
            return real(file, data[: room.pop()])

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", write)
            with pytest.raises(OSError, match="No space left"):
                log.steps(0, 1, 0, 3, 150)
        assert path.read_bytes() == whole
        log.answers(0, 1, 0, Classified(4, 3))
        assert log.digest() == sha256(path.read_bytes()).digest()
        assert len(path.read_text().splitlines()) == 2
