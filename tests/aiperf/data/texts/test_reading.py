"""Files and folders of text, and the bundled one: what is read and refused, in how little memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import resource
import socket
import sys
from hashlib import sha256
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from aiperf.data import load
from aiperf.data.texts import loading, reading
from aiperf.data.texts.reading import text_at
from aiperf.errors import DataError
from aiperf.tasks.language.data import TextData
from aiperf.tasks.language.known_texts import BUNDLED_TEXT, known_text
from tests.aiperf.data.sets import CPU, refusal
from tests.tables import ComesTo


def test_all_files_of_a_folder_in_the_order_of_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK_BYTES", 4)
    names = ["b", "Z", "a/z", "a-b", "a/b/c", "é", os.fsdecode(b"\xff")]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(os.fsencode(name) + b"\n")
    text = text_at(tmp_path)
    expected = b"Z\na-b\na/b/c\na/z\nb\n\xc3\xa9\n\xff\n"
    assert b"".join(text.chunks()) == expected
    every = text.windows(np.arange(len(expected) - 4), 5)
    assert [row.tobytes() for row in every] == [expected[at : at + 5] for at in range(len(expected) - 4)]
    assert text.note == "7 of 7 files"


def test_of_a_folder_only_texts_are_read_and_each_once(tmp_path: Path) -> None:
    """Editors, version control and archives leave other files there. A link comes before what it leads to."""
    held, out = tmp_path / "texts", tmp_path / "elsewhere.txt"
    (held / "sub/.git").mkdir(parents=True)
    (held / "__MACOSX").mkdir()
    for name, content in {
        "b.txt": b"b",
        "sub/c": "Größe".encode("latin-1"),
        "sub/wide.txt": "w".encode("utf-16"),
        "sub/empty": b"",
        ".b.txt.swp": b"hidden",
        "b.txt~": b"backup",
        "#b.txt#": b"backup",
        "b.txt.orig": b"backup",
        "sub/.git/pack": b"hidden",
        "__MACOSX/b.txt": b"hidden",
        "c.tar": b"c" * 100 + bytes(400),
        "manual": b"%PDF-1.7\n",
        "renamed.txt": gzip.compress(b"a"),
        "x.xz": lzma.compress(b"a"),
        "y.bz2": bz2.compress(b"a"),
        "z.zip": b"PK\x03\x04a",
    }.items():
        (held / name).write_bytes(content)
    out.write_bytes(b"e")
    (held / "a.txt").symlink_to("b.txt")
    os.link(held / "b.txt", held / "d.txt")
    (held / "e.txt").symlink_to(out)
    text = text_at(held)
    assert b"".join(text.chunks()) == b"b" + b"e" + "Größe".encode("latin-1") + "w".encode("utf-16")
    assert text.note == (
        "5 of 17 files; 1 hidden file, 2 hidden folders, 3 editors' backups, 2 links to what is read "
        "already, 4 compressed files, 2 binary files left out"
    )
    (held / "b.txt").write_bytes(b"b" * 1000)  # long enough for windows
    assert load(TextData("text", 1, 2, 256, path=str(held)), CPU, 1).note == text.note


def test_a_binary_file_is_read_as_it_is_and_noted(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(100))
    assert (text_at(path).bytes, text_at(path).note) == (
        100,
        f"{path} looks like a binary file; all its bytes are read",
    )


def test_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / f"{number:03}").write_bytes(f"{number:03}\n".encode())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, limits[1]))
    try:
        shown = text_at(tmp_path).windows(np.arange(0, 1600, 4), 3).tobytes()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert shown.decode() == "".join(f"{number:03}" for number in range(400))


def bind_socket(path: Path) -> None:
    bound, before = socket.socket(socket.AF_UNIX), os.getcwd()
    os.chdir(path.parent)  # its whole path would be too long
    bound.bind(path.name)
    os.chdir(before)
    bound.close()


def test_what_is_no_text_is_refused_in_a_line(here: Path, comes_to_what_was_read: ComesTo) -> None:
    """Nothing there, a broken link, an empty file or folder, a link that leads round, compressed files, and
    what is no file, alone and within a folder."""
    for folder in ("folder", "loop", "with-pipe", "with-socket", "with-device"):
        Path(folder).mkdir()
    Path("folder/.hidden").write_text("words")
    Path("empty").touch()
    Path("broken").symlink_to("nowhere")
    Path("loop/up").symlink_to("..")
    for name in ("x.gz", "x.txt"):
        Path(name).write_bytes(gzip.compress(b"words" * 1000))
    kinds = {"pipe": os.mkfifo, "socket": bind_socket, "device": lambda path: path.symlink_to("/dev/zero")}
    for kind, make in kinds.items():
        (Path(f"with-{kind}") / "a").write_bytes(b"text")
        make(Path(kind))
        make(Path(f"with-{kind}") / "it")

    def refused(path: str) -> str:
        return refusal(TextData("text", 1, 8, 256, path=path))

    comes_to_what_was_read("refused_paths.txt", {"refused": refused})


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
    """A file of 100 MB, most of it a hole, is hashed and shown, and takes less than 64 MiB."""

    def kept() -> int:
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if "RssAnon" in line)

    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(100_000_000)
        file.seek(95_000_000)
        file.write(b"here the test part begins")
    before = kept()
    data = load(
        TextData("text", 1, 24, 256, path=str(path), training_examples=1000, validation_examples=10), CPU, 1
    )
    symbols, _ = next(data.test.sweep(1))
    assert bytes(symbols[0].tolist()) == b"here the test part begin"
    assert len(next(data.train.stream(64, 1))[0]) == 64
    assert kept() - before < 64 << 10


CONFIG = TextData("text", 1, 256, 256)
FOLDER = resources.files("aiperf") / "data" / "texts"
CUT_OFF = lzma.compress(b"x" * 999)[:-9]


def test_it_is_a_known_text_of_2_690_563_bytes() -> None:
    data = load(CONFIG, CPU, 1)
    assert data.manifest["bytes"] == 2_690_563
    assert known_text(data.manifest) is BUNDLED_TEXT
    parts = ("official_training", "training", "validation", "test")
    assert [data.manifest[f"{part}_examples"] for part in parts] == [9983, 9458, 525, 525]


def test_it_is_what_its_description_states() -> None:
    packed = (FOLDER / loading.PACKED).read_bytes()
    text = lzma.decompress(packed)
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name, content in (("unpacked", text), ("packed", packed)):
        assert re.search(rf"\| {name} \| {len(content):,} bytes.*{sha256(content).hexdigest()}", page)
    assert 2_000_000 <= len(text) <= 3_000_000
    assert 500_000 <= len(packed) <= 800_000


@pytest.mark.parametrize(
    ("content", "why"),
    [
        *((content, ".*xz cannot be read: .*") for content in (None, b"", b"no archive", CUT_OFF)),
        (lzma.compress(b"another"), "SHA-256 .* instead of 0e2963bc.*"),
    ],
)
def test_a_damaged_one_or_another_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, why: str
) -> None:
    """In another installation of the program, with this file."""
    packed = tmp_path / "data" / "texts" / loading.PACKED
    packed.parent.mkdir(parents=True)
    if content is not None:
        packed.write_bytes(content)
    monkeypatch.setattr(loading.resources, "files", lambda package: tmp_path)
    with pytest.raises(DataError, match=f"^the bundled text: {why}; reinstall this program"):
        load(CONFIG, CPU, 1)


def test_a_python_without_lzma_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lzma", None)  # so that its import raises
    with pytest.raises(DataError, match=r"without lzma; build it with liblzma, or unpack .*xz with xz"):
        loading.bundled_text()
