"""Texts: the windows, each byte predicted once for any number of ranks; the files and folders that are read
and refused, in little memory; and the bundled one."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import re
import resource
import socket
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib import resources
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from aiperf.config import DataConfig, load_preset, parse_setting, with_overrides
from aiperf.data import Data, load
from aiperf.data.texts import grid, loading, reading
from aiperf.data.texts.reading import text_at
from aiperf.errors import DataError
from aiperf.tasks.language.data import TextData
from aiperf.tasks.language.known_texts import BUNDLED_TEXT, known_text
from tests.aiperf.data.sets import CPU, refusal
from tests.tables import ComesTo

TINY = bytes(range(200))  # each byte says where it is
SIZE = 4


def written(folder: Path, text: bytes = TINY) -> str:
    path = folder / "text"
    path.write_bytes(text)
    return str(path)


def config(path: str, size: int = SIZE, training: int = 0, validation: int = 0) -> DataConfig:
    return TextData(
        "text", 1, size, 256, path=path, training_examples=training, validation_examples=validation
    )


@pytest.fixture(params=["read", "held", "folder"])
def data(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    """The tiny text in each of the ways in which it may lie."""
    monkeypatch.setattr(grid, "BLOCK_BYTES", 4096)  # else half a megabyte of tiny windows is read ahead
    monkeypatch.setattr(loading, "is_held", lambda device, num_bytes: request.param == "held")
    if request.param != "folder":
        return load(config(written(tmp_path)), CPU, 1)
    monkeypatch.setattr(reading, "MOST_MAPPED", 2)
    monkeypatch.setattr(reading, "is_text", lambda path: None)  # for the byte 0 is in no text
    (tmp_path / "deeper").mkdir()
    # In the order of their bytes: "-" comes before "/".
    pieces = {"a": 3, "deeper-": 1, "deeper/a": 90, "deeper/b": 0, "ä": 70, "ö": 36}
    begin = 0
    for name, length in pieces.items():
        (tmp_path / name).write_bytes(TINY[begin : begin + length])
        begin += length
    assert begin == len(TINY)
    return load(config(str(tmp_path)), CPU, 1)


def pairs(batches: object) -> list[tuple[list[int], list[int]]]:
    return [
        (window.tolist(), following.tolist())
        for symbols, targets in batches
        for window, following in zip(symbols, targets, strict=True)
    ]


def test_validation_and_test_are_adjoining_windows(data: Data) -> None:
    assert pairs(data.validation.sweep(2)) == [
        ([180, 181, 182, 183], [181, 182, 183, 184]),
        ([184, 185, 186, 187], [185, 186, 187, 188]),
    ]
    assert pairs(data.test.sweep(8)) == [
        ([190, 191, 192, 193], [191, 192, 193, 194]),
        ([194, 195, 196, 197], [195, 196, 197, 198]),
    ]


def test_a_batch_is_whole_numbers_of_64_bits(data: Data) -> None:
    for symbols, targets in (*islice(data.train.stream(6, 1), 2), *data.test.sweep(8)):
        assert symbols.dtype == targets.dtype == torch.int64
        assert symbols.shape == targets.shape == (len(symbols), SIZE)
        assert symbols.is_contiguous()
        assert targets.is_contiguous()


def test_a_pass_is_the_grid_of_windows_from_one_offset(data: Data) -> None:
    windows = data.train.num_examples
    assert windows == 44
    shown = pairs(islice(data.train.stream(windows, 7), 8))
    offsets, orders = set(), set()
    for first in range(0, len(shown), windows):
        starts = [symbols[0] for symbols, _ in shown[first : first + windows]]
        offset = min(starts)
        assert 0 <= offset < SIZE
        assert sorted(starts) == list(range(offset, offset + SIZE * windows, SIZE))
        offsets.add(offset)
        orders.add(tuple((start - offset) // SIZE for start in starts))
    assert offsets == set(range(SIZE))
    assert len(orders) == 8
    assert all(symbols[1:] == targets[:-1] for symbols, targets in shown)
    assert all(targets == list(range(symbols[0] + 1, symbols[0] + 5)) for symbols, targets in shown)
    assert max(targets[-1] for _, targets in shown) < 180


def test_passes_run_into_one_another(data: Data) -> None:
    """Steps that divide no pass show the same windows in the same order."""
    whole = pairs(islice(data.train.stream(44, 3), 5))
    assert pairs(islice(data.train.stream(5, 3), 44)) == whole
    assert pairs(islice(data.train.stream(110, 3), 2)) == whole


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_byte_of_a_part_is_predicted_once_over_all_ranks(tmp_path: Path, ranks: int) -> None:
    text = random.Random(3).randbytes(5000)
    data = load(config(written(tmp_path, text), size=7), CPU, 1)
    for split, part in ((data.validation, text[4500:4750]), (data.test, text[4750:])):
        sweeps = [batch for rank in range(ranks) for batch in split.sweep(6, rank, ranks)]
        assert max(len(symbols) for symbols, _ in sweeps) * ranks <= 6
        predicted = [byte for _, targets in pairs(sweeps) for byte in targets]
        assert bytes(predicted) == part[1 : 1 + 7 * split.num_examples]
        assert 0 <= len(part) - 1 - len(predicted) < 7


def test_the_manifest(data: Data, as_it_was_read: Callable[[str, str], None]) -> None:
    """By sha256sum of the bytes 0 … 199, however they lie; of these 200 - 48 * 4 - 3 are left out."""
    as_it_was_read(json.dumps(dict(data.manifest), indent=1) + "\n", "manifest.json")


def test_short_epochs_go_through_all_windows_and_less_is_validated(tmp_path: Path) -> None:
    data = load(config(written(tmp_path), training=5, validation=1), CPU, 1)
    whole = load(config(written(tmp_path)), CPU, 1)
    assert data.train.num_examples == 5
    epochs = pairs(islice(data.train.stream(5, 1), 44))
    assert epochs == pairs(islice(whole.train.stream(44, 1), 5))  # five passes of all 44 windows
    assert pairs(data.validation.sweep(8)) == [([180, 181, 182, 183], [181, 182, 183, 184])]
    assert data.manifest["official_training_examples"] == 46
    assert data.manifest["bytes_left_out"] == 200 - 8 * 4 - 3


def test_what_does_not_fit_is_refused(tmp_path: Path, comes_to_what_was_read: ComesTo) -> None:
    """With what to lower, and how long the text must be; where no window fits, without a setting."""

    def refused(text: bytes = TINY, **changed: int) -> str:
        return refusal(config(path := written(tmp_path, text), **changed)).replace(path, "text")

    comes_to_what_was_read("refused_texts.txt", {"refused": refused})


@pytest.mark.parametrize("num_bytes", [60, 79, 80, 3000, 5139, 5140, 20_000, 60_000, 655_339])
def test_who_follows_either_remedy_is_not_refused_again(tmp_path: Path, num_bytes: int) -> None:
    """The preset asks for more windows than a small text has."""
    text, preset = random.Random(num_bytes).randbytes(700_000), load_preset("text")
    path = written(tmp_path, text[:num_bytes])
    small = with_overrides(preset, {"data.path": path})
    lowered, _, enough = refusal(small.data).rpartition("; or give a text of at least ")
    settings = dict(map(parse_setting, lowered.split(" --set ")[1:]))
    assert settings
    load(with_overrides(small, settings).data, CPU, 1)
    Path(path).write_bytes(text[: int(enough.removesuffix(" bytes").replace(",", ""))])
    load(small.data, CPU, 1)


def test_a_text_of_up_to_a_gibibyte_lies_on_its_device() -> None:
    """But for a processor, whose memory it lies in."""
    for kind, size, held in (("cpu", 1, False), ("cuda", 1 << 30, True), ("cuda", (1 << 30) + 1, False)):
        assert loading.is_held(torch.device(kind), size) == held
    assert loading.is_held(torch.device("xpu"), 10**9)


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
