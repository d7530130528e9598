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
from nas.bounded import lines, opened
from tests.tables import ComesTo

pytestmark = pytest.mark.timeout(60)  # the fault would be to wait for ever


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def a_link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def written(number: int) -> Callable[[Path], None]:
    """A pipe into which somebody writes so many bytes."""

    def make(path: Path) -> None:
        os.mkfifo(path)
        threading.Thread(target=path.absolute().write_bytes, args=(bytes(number),)).start()

    return make


def holding(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def test_what_is_no_file_is_not_opened_and_a_file_is_read_up_to_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    def reading(make: Callable[[Path], object], read: Callable[..., object], *bound: int) -> object:
        monkeypatch.chdir(tempfile.mkdtemp(dir=tmp_path))
        make(Path("it"))
        return read(Path("it"), *bound)

    def idle(path: Path) -> None:
        """A pipe without a writer, which is not waited for."""
        os.mkfifo(path)
        monkeypatch.setattr(bounded, "PIPE_SECONDS", 0.2)

    names = {**vars(bounded), **globals(), "idle": idle, "reading": reading}
    comes_to_what_was_read("bounded.txt", names)


def test_a_long_line_comes_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\n" + b"x" * 12 + b"\ntorn")
    with opened(tmp_path / "lines") as file:
        assert list(lines(file, 5)) == [b"one\n", b"xxxxxx", b"xxxxxx", b"\n", b"torn"]
