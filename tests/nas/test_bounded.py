"""What is not a file is refused at once, and of a large one little is held."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nas import bounded
from nas.bounded import file_digest, lines, opened, read_bytes, read_text
from tests.tables import ComesTo

pytestmark = pytest.mark.timeout(60)  # the fault would be to wait for ever


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def a_link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def holding(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def test_what_is_no_file_is_not_opened_and_a_file_is_read_up_to_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    def reading(make: Callable[[Path], object], read: Callable[..., object], *bound: int) -> object:
        monkeypatch.chdir(tempfile.mkdtemp(dir=tmp_path))
        make(Path("it"))
        return read(Path("it"), *bound)

    names = {"reading": reading, "file_digest": file_digest, "read_text": read_text}
    comes_to_what_was_read("bounded.txt", {**globals(), **names})


def test_a_pipe_is_read_to_its_end_or_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb") as pipe:
            pipe.write(b"x" * 300_000)

    for bound in (300_000, 299_999):
        writer = threading.Thread(target=write)
        writer.start()
        if bound == 300_000:
            assert len(read_bytes(path, bound)) == bound
        else:
            with pytest.raises(OSError, match="more than 299,999 bytes"):
                read_bytes(path, bound)
        writer.join(30)


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "PIPE_SECONDS", 0.2)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"nothing was read from this pipe in 0\.2 s"):
        read_bytes(tmp_path / "pipe")


def test_a_long_line_comes_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\n" + b"x" * 12 + b"\ntorn")
    with opened(tmp_path / "lines") as file:
        assert list(lines(file, 5)) == [b"one\n", b"xxxxxx", b"xxxxxx", b"\n", b"torn"]
