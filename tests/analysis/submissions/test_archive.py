"""Archives from strangers: refused with a reason, and nothing outside the folder is touched."""

from __future__ import annotations

import gzip
import io
import os
import random
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from analysis.submissions import archive
from analysis.submissions.archive import ArchiveError, read_archive, write_archive
from tests.tables import ComesTo

Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, data: bytes = b"x", **fields: object) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def packed(*members: Member, form: int = tarfile.PAX_FORMAT) -> bytes:
    with tarfile.open(fileobj=(file := io.BytesIO()), mode="w:gz", format=form) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    return inside


def test_what_is_written_is_read_and_equal_contents_are_equal_bytes(tmp_path: Path, folder: Path) -> None:
    source = tmp_path / "journal"
    source.write_bytes(b"line\n" * 1000)
    names = {
        "manifest.json": source,
        "runs/a.b-c_1/journal.jsonl": source,
        "runs/x/logs/n1.rank0.steps.jsonl": source,
    }
    write_archive(tmp_path / "p.tar.gz", names)
    source.touch()
    write_archive(tmp_path / "again.tar.gz", names)
    assert (tmp_path / "p.tar.gz").read_bytes() == (tmp_path / "again.tar.gz").read_bytes()
    assert read_archive(tmp_path / "p.tar.gz", folder) == sorted(names)
    assert all((folder / name).read_bytes() == source.read_bytes() for name in names)


def test_what_could_not_be_read_is_not_written_and_nothing_is_overwritten(tmp_path: Path) -> None:
    """Nor what would be the same, nor a link that leads nowhere."""
    source, path, link = tmp_path / "s", tmp_path / "p.tar.gz", tmp_path / "link.tar.gz"
    source.write_bytes(b"x")
    with pytest.raises(ArchiveError, match="not allowed in a package"):
        write_archive(path, {"runs/x/telemetry/node 1.jsonl": source})
    with pytest.raises(ArchiveError, match="absent cannot be written: No such file"):
        write_archive(path, {"manifest.json": source, "seal.json": tmp_path / "absent"})
    assert {entry.name for entry in tmp_path.iterdir()} == {"s"}
    names = {"manifest.json": source, "seal.json": source}
    write_archive(path, names)
    link.symlink_to(tmp_path / "absent")
    before = path.read_bytes()
    for existing in (path, link):
        with pytest.raises(ArchiveError, match="already exists; remove it, or give another file with -o"):
            write_archive(existing, names)
    assert path.read_bytes() == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"s", "p.tar.gz", "link.tar.gz"}


@pytest.mark.parametrize(
    ("name", "honest", "bomb"),
    [
        ("runs/x/weights/12.safetensors", random.Random(1).randbytes(1 << 20), bytes(3 << 16)),
        ("manifest.json", *(b"[" + b"0," * count + b"0]" for count in (30_000, 99_000))),
        ("runs/x/result.json", *(b"[" + b"0," * count + b"0]" for count in (30_000, 99_000))),
    ],
)
def test_what_is_read_in_whole_hardly_shrinks(
    name: str, honest: bytes, bomb: bytes, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, and what is parsed: a file of them that grows by more than they do is not unpacked."""
    monkeypatch.setattr(archive, "LEAST_LIMIT", 1 << 16)
    monkeypatch.setattr(archive, "LEAST_JSON", 1 << 16)
    path = tmp_path / "p.tar.gz"
    path.write_bytes(packed(member(name, honest)))
    assert read_archive(path, folder) == [name]
    (folder / name).unlink()
    monkeypatch.setattr(archive, "LARGEST_GROWTH", 10_000)
    path.write_bytes(packed(member(name, bomb)))
    with pytest.raises(ArchiveError, match=rf" of {len(bomb):,} bytes; it is not unpacked"):
        read_archive(path, folder)


HOLES = {"GNU.sparse.size": str(1 << 40), "GNU.sparse.map": "0,0"}
"""Headers of a file that claims a terabyte."""
GOOD = packed(member("manifest.json", b"x" * 5000), member("seal.json", b"y" * 5000))
PLAIN = gzip.decompress(GOOD)


def zeros(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A member of 24 MiB in 24 KB; a careless reader holds that of an extended header in memory."""
    info, _ = member(name, type=kind, size=24 << 20)
    return gzip.compress(info.tobuf(format=tarfile.USTAR_FORMAT) + bytes(info.size + 1024))


def nested(kind: bytes) -> bytes:
    """Headers of headers, for each of which tarfile calls itself."""
    header = member("x", type=kind, size=12)[0].tobuf(format=tarfile.USTAR_FORMAT)
    return gzip.compress((header + b"12 path=abc\n".ljust(512, b"\0")) * 3000 + bytes(1024))


def test_a_hostile_archive_is_not_unpacked_and_does_not_grow(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(archive, "LEAST_LIMIT", 8 << 20)
    monkeypatch.setattr(archive, "MOST_FILES", 3)

    def outside() -> set[Path]:
        return {entry for entry in tmp_path.rglob("*") if not entry.is_relative_to(folder)}

    def read(data: bytes) -> object:
        """The words of zlib and tarfile depend on their versions."""
        assert Path("p.tar.gz").write_bytes(data) < 1 << 20
        before = outside()
        try:
            return read_archive(Path("p.tar.gz"), folder)
        except ArchiveError as error:
            raise ArchiveError(re.sub(r"damaged: .*; give", "damaged: …; give", str(error))) from None
        finally:
            assert outside() == before
            assert not any(entry.is_symlink() for entry in folder.rglob("*"))
            assert sum(entry.stat().st_size for entry in folder.rglob("*")) <= archive.LEAST_LIMIT
            shutil.rmtree(folder)
            folder.mkdir()

    def unpacked(*members: Member) -> object:
        return read(packed(*members))

    comes_to_what_was_read("hostile_members.txt", {**globals(), "unpacked": unpacked, "read": read})


def test_a_pipe_is_not_waited_for(tmp_path: Path, folder: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, match in (("pipe", "is not a file"), ("absent", "No such file")):
        with pytest.raises(ArchiveError, match=match):
            read_archive(tmp_path / name, folder)
