"""Ranks under torchrun among processes that are none: planted folders, other users, frames of no rank."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.ranks.launcher import LaunchedRank
from aiperf.ranks.torchrun import HEAD, SocketLink, _socket_folder


@pytest.fixture(autouse=True)
def above(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a short name, as sockets need it, in which `tmp` is TMPDIR."""
    with tempfile.TemporaryDirectory(prefix="a") as folder:
        (Path(folder) / "tmp").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(Path(folder) / "tmp"))
        monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
        yield Path(folder)


def linked(rank: int, run_id: str = "x") -> SocketLink:
    return SocketLink(LaunchedRank(rank, 3, "torchrun", False), run_id)


def a_link(folder: Path, outside: Path) -> None:
    folder.symlink_to(outside)


def entered(folder: Path, outside: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)


def a_file(folder: Path, outside: Path) -> None:
    folder.touch()


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (a_link, "is a symbolic link"),
        (entered, "can be entered by other users (mode 755; `chmod go=` corrects it)"),
        (a_file, "is not a folder"),
    ],
)
def test_a_planted_folder_is_refused_and_nothing_outside_is_deleted(
    plant: Callable[[Path, Path], None], said: str, above: Path
) -> None:
    folder, outside = _socket_folder("x"), above / "outside"
    folder.rmdir()
    outside.mkdir()
    (outside / "0").write_text("precious")
    plant(folder, outside)
    with pytest.raises(WorldError) as refused:
        linked(0)
    assert str(refused.value) == f"{folder} {said}; set TMPDIR to a folder of your own"
    assert (outside / "0").read_text() == "precious"


@pytest.mark.parametrize("run_id", ["", "..", "../../x", "a/b", "\udcff", "x" * 300])
def test_the_folder_is_in_tmpdir_whatever_the_run_is_called(run_id: str, above: Path) -> None:
    first, second = linked(0, run_id), linked(1, run_id)
    second.send(0, 0, b"heard")
    assert first.receive(5.0) is not None
    (folder,) = (above / "tmp").iterdir()
    assert folder.lstat().st_mode & 0o777 == 0o700
    second.finalize()
    first.finalize()
    assert [path.name for path in above.rglob("*")] == ["tmp"]


NO_RANK = "a message of rank {}, which is no other rank of these 3"
FRAMES = {
    "of a rank that does not exist": (HEAD.pack(1, 3, 0), NO_RANK.format(3)),
    "of the largest rank": (HEAD.pack(1, 2**64 - 1, 0), NO_RANK.format(2**64 - 1)),
    "of the rank itself": (HEAD.pack(1, 0, 0), NO_RANK.format(0)),
    "too long": (HEAD.pack(33554433, 1, 0), "a message of 33554433 bytes; the limit is 33554432"),
    "text": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "a message of rank "),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_of_no_rank_ends_its_connection_and_nothing_else(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    frame, said = FRAMES[name]
    first, second = linked(0), linked(1)
    with caplog.at_level(logging.ERROR), socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(10)
        stranger.connect(str(first._path(0)))
        stranger.sendall(frame + b"x")
        assert first.receive(0.1) is None
        assert stranger.recv(1) == b"", "closed"
    (line,) = caplog.messages
    assert line.startswith(f"rank 0 closed the connection of process {os.getpid()}: it sent {said}")
    second.send(0, 7, b"from a rank")
    received = first.receive(5.0)
    assert received is not None
    assert (received.source, received.tag, received.data) == (1, 7, b"from a rank")
    first.send(1, 8, b"to it")
    assert second.receive(5.0) is not None
    second.finalize()
    first.finalize()


SPEAK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as stranger:
    stranger.connect(sys.argv[1])
    stranger.sendall(bytes.fromhex(sys.argv[2]) + b"x")
"""


def test_a_process_that_passes_for_a_rank_is_not_heard(caplog: pytest.LogCaptureFixture) -> None:
    first, second = linked(0), linked(1)
    second.send(0, 7, b"from the rank")
    assert first.receive(5.0) is not None
    frame = HEAD.pack(1, 1, 0).hex()
    subprocess.run([sys.executable, "-I", "-c", SPEAK, first._path(0), frame], check=True)
    assert first.receive(0.1) is None
    (line,) = caplog.messages
    assert line.endswith(f": it sent a message of rank 1, which is process {os.getpid()}")
    second.send(0, 8, b"from the rank")
    received = first.receive(5.0)
    assert received is not None
    assert received.tag == 8
    second.finalize()
    first.finalize()


def test_a_process_of_another_user_is_not_heard(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, user = linked(0), os.getuid()
    with monkeypatch.context() as other, socket.socket(socket.AF_UNIX) as stranger:
        other.setattr(os, "getuid", lambda: user + 1)
        stranger.settimeout(10)
        stranger.connect(str(first._path(0)))
        stranger.sendall(HEAD.pack(1, 1, 0) + b"x")
        assert first.receive(0.1) is None
        with pytest.raises(ConnectionResetError):
            stranger.recv(1)
    (line,) = caplog.messages
    assert line.startswith(f"rank 0 refused a connection: process {os.getpid()} belongs to ")
    first.finalize()
