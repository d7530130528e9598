"""Kept weights and logs in pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.ranks import shipping
from aiperf.ranks.shipping import Receiver, is_piece, log_pieces, pieces
from aiperf.wire.messages import Quit, pack


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    files = RunFiles(tmp_path / "here")
    files.weights_directory.mkdir(parents=True)
    return files


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 25])
def test_a_file_arrives_as_it_was(
    size: int, files: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "PIECE_BYTES", 10)
    files.weights(7).write_bytes(bytes(range(size)))
    there = RunFiles(tmp_path / "there")
    receiver = Receiver(there)
    sent = list(pieces(files, 7))
    assert len(sent) == max(1, -(-size // 10))
    for number, piece in enumerate(sent):
        assert is_piece(piece)
        assert there.weights(7).exists() is False, f"whole or not at all, before piece {number}"
        receiver.take(piece)
    assert there.weights(7).read_bytes() == bytes(range(size))
    assert list(there.weights_directory.iterdir()) == [there.weights(7)]
    assert receiver.faults == {}
    assert not is_piece(pack(Quit()))


def test_a_log_arrives_under_the_name_of_its_host_unless_it_is_too_long(
    files: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = files.witness("node2", 3)
    log.parent.mkdir()
    log.write_text("steps")
    there = RunFiles(tmp_path / "there")
    receiver = Receiver(there, ("node1", "node1", "node1", "node2"))
    for piece in log_pieces(log, 3):
        assert is_piece(piece)
        receiver.take(piece)
    assert there.witness("node2", 3).read_text() == "steps"
    assert there.kept_weights() == []
    monkeypatch.setattr(shipping, "LONGEST_LOG_BYTES", 4)
    assert list(log_pieces(log, 3)) == []
