"""Files and folders of text: what is read, what is refused, and how little memory it takes."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from aiperf.config import DataConfig
from aiperf.data import load, look
from aiperf.data.texts import reading
from aiperf.data.texts.reading import text_at
from aiperf.errors import DataError

CPU = torch.device("cpu")
REMEDY = "give a readable text file, or a folder of text files"


def test_all_files_of_a_folder_in_the_order_of_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK_BYTES", 4)
    names = ["b", "Z", "a/z", "a-b", "a/b/c", ".hidden", "é", os.fsdecode(b"\xff")]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(os.fsencode(name) + b"\n")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    text = text_at(tmp_path)
    expected = b".hidden\nZ\na-b\na/b/c\na/z\nb\nb\n\xc3\xa9\n\xff\n"
    assert b"".join(text.chunks()) == expected
    every = text.windows(np.arange(len(expected) - 4), 5)
    assert [row.tobytes() for row in every] == [expected[at : at + 5] for at in range(len(expected) - 4)]


def test_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / f"{number:03}").write_bytes(f"{number:03}\n".encode())
    program = (
        "import resource, numpy\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))\n"
        "from pathlib import Path\n"
        "from aiperf.data.texts.reading import text_at\n"
        f"text = text_at(Path({str(tmp_path)!r}))\n"
        "print(text.windows(numpy.arange(0, 1600, 4), 3).tobytes().decode())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"{number:03}" for number in range(400)) + "\n"


def make_pipe(path: Path) -> str:
    os.mkfifo(path)
    return f"{path}: is a pipe; give a text file, or a folder of text files"


def make_socket(path: Path) -> str:
    bound = socket.socket(socket.AF_UNIX)
    before = os.getcwd()
    os.chdir(path.parent)  # its whole path would be too long
    bound.bind(path.name)
    os.chdir(before)
    bound.close()
    return f"{path}: is a socket; give a text file, or a folder of text files"


def make_device(path: Path) -> str:
    path.symlink_to("/dev/zero")
    return f"{path}: is a device; give a text file, or a folder of text files"


def make_folder(path: Path) -> str:
    path.mkdir()
    return f"{path}: empty; give a text file, or a folder of text files"


def make_empty(path: Path) -> str:
    path.touch()
    return f"{path}: empty; give a text file, or a folder of text files"


def make_broken(path: Path) -> str:
    path.symlink_to("nowhere")
    return f"data.path is '{path}': No such file or directory; {REMEDY}"


def make_loop(path: Path) -> str:
    path.mkdir()
    (path / "up").symlink_to("..")
    return f"{path}/up: is a link to a folder; remove it, or copy the files of that folder"


@pytest.mark.parametrize(
    "make", [make_pipe, make_socket, make_device, make_folder, make_empty, make_broken, make_loop]
)
def test_what_is_no_text_is_refused_in_a_line(tmp_path: Path, make: object) -> None:
    expected = make(tmp_path / "it")
    with pytest.raises(DataError) as refused:
        load(DataConfig("text", 1, 8, 256, path=str(tmp_path / "it")), CPU, 1)
    assert str(refused.value) == expected


@pytest.mark.parametrize("make", [make_pipe, make_socket, make_device])
def test_within_a_folder_too(tmp_path: Path, make: object) -> None:
    (tmp_path / "a").write_bytes(b"text")
    expected = make(tmp_path / "it")
    with pytest.raises(DataError) as refused:
        text_at(tmp_path)
    assert str(refused.value) == expected


def test_a_broken_link_within_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "it").symlink_to("nowhere")
    with pytest.raises(DataError, match=f"^{tmp_path}/it: No such file or directory; make it readable"):
        text_at(tmp_path)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        text_at(tmp_path / "nowhere")
    assert str(refused.value) == f"data.path is '{tmp_path}/nowhere': No such file or directory; {REMEDY}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(bytes(1000))
    (tmp_path / "it").chmod(0)
    with pytest.raises(DataError, match="/it: Permission denied; make it readable"):
        load(DataConfig("text", 1, 8, 256, path=str(tmp_path)), CPU, 1)


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """To read beyond the end of a map would kill the process."""
    path = tmp_path / "it"
    path.write_bytes(bytes(1000))
    text = text_at(path)
    path.write_bytes(bytes(10))
    expected = f"^{path}: had 1,000 bytes and now has 10; do not change it while it is being read$"
    with pytest.raises(DataError, match=expected):
        list(text.chunks())
    with pytest.raises(DataError, match=expected):
        text.windows(np.array([0]), 5)


def test_a_large_file_takes_no_memory(tmp_path: Path) -> None:
    """A file of 400 MB, most of it a hole, is hashed and shown by a process that takes less than 64 MiB."""
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(400_000_000)
        file.seek(380_000_000)
        file.write(b"here the test part begins")
    program = (
        "import resource, torch\n"
        "from aiperf.config import DataConfig\n"
        "from aiperf.data import load\n"
        "torch.set_num_threads(1)\n"
        "def kept():\n"
        "    return next(int(line.split()[1]) for line in open('/proc/self/status') if 'RssAnon' in line)\n"
        "before = kept()\n"
        f"data = load(DataConfig('text', 1, 24, 256, path={str(path)!r}, training_examples=1000,"
        " validation_examples=10), torch.device('cpu'), 1)\n"
        "symbols, targets = next(data.test.sweep(1))\n"
        "shown, _ = next(data.train.stream(64, 1))\n"
        "print(bytes(symbols[0].tolist()).decode(), len(shown), kept() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    *words, shown, kibibytes = done.stdout.split()
    assert (" ".join(words), shown) == ("here the test part begin", "64")
    assert int(kibibytes) < 64 << 10


def test_a_folder_or_file_of_text_is_not_taken_for_images(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_bytes(b"words")
    with pytest.raises(DataError, match=r"; give a folder that does; for text, use --preset text"):
        look(tmp_path)
    expected = f"{tmp_path}/book.txt is a file; for text, use --preset text --data PATH; for images, give"
    with pytest.raises(DataError, match=f"^{re.escape(expected)} their folder$"):
        look(tmp_path / "book.txt")
