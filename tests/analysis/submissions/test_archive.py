"""Archives from strangers: refused with a reason, and nothing outside the folder is touched."""

from __future__ import annotations

import gzip
import io
import os
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.submissions import archive
from analysis.submissions.archive import ArchiveError, read_archive, write_archive
from tests.tables import ComesTo

Members = list[tuple[tarfile.TarInfo, bytes]]


def member(name: str, data: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def packed(path: Path, members: Members) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


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
    assert read_archive(packed(tmp_path / "p.tar.gz", [member(name, honest)]), folder) == [name]
    (folder / name).unlink()
    monkeypatch.setattr(archive, "LARGEST_GROWTH", 10_000)
    with pytest.raises(ArchiveError, match=rf" of {len(bomb):,} bytes; it is not unpacked"):
        read_archive(packed(tmp_path / "q.tar.gz", [member(name, bomb)]), folder)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_a_large_header_is_never_held(tmp_path: Path, folder: Path, form: int) -> None:
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz", format=form) as tar:
        tar.addfile(tarfile.TarInfo("m" * (1 << 17)))
    with pytest.raises(
        ArchiveError, match=r"p\.tar\.gz contains a header of 131,\d+ bytes; it is not unpacked"
    ):
        read_archive(tmp_path / "p.tar.gz", folder)


def test_a_hostile_member_is_not_unpacked(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    monkeypatch.chdir(tmp_path)

    def outside() -> set[Path]:
        return {entry for entry in tmp_path.rglob("*") if not entry.is_relative_to(folder)}

    def unpacked(*members: tuple[tarfile.TarInfo, bytes]) -> object:
        path = packed(Path("p.tar.gz"), list(members))
        before = outside()
        try:
            return read_archive(path, folder)
        finally:
            assert outside() == before
            assert not any(entry.is_symlink() for entry in folder.rglob("*"))
            shutil.rmtree(folder)
            folder.mkdir()

    comes_to_what_was_read("hostile_members.txt", {**globals(), "unpacked": unpacked})


def zeros(info: tarfile.TarInfo) -> bytes:
    """A member of 24 MiB in 24 KB."""
    info.size = 24 << 20
    return gzip.compress(info.tobuf(format=tarfile.USTAR_FORMAT) + bytes(info.size + 1024))


def bomb(path: Path) -> None:
    path.write_bytes(zeros(tarfile.TarInfo("manifest.json")))


def header_bomb(path: Path) -> None:
    """A member's extended header of 24 MiB, which a careless reader holds in memory."""
    info = tarfile.TarInfo("././@PaxHeader")
    info.type = tarfile.XHDTYPE
    path.write_bytes(zeros(info))


def sparse(path: Path) -> None:
    """A file with holes that claims a terabyte."""
    headers = {"GNU.sparse.size": str(1 << 40), "GNU.sparse.map": "0,0"}
    packed(path, [member("manifest.json", b"", pax_headers=headers)])


@pytest.mark.parametrize("make", [bomb, header_bomb, sparse])
def test_a_bomb_does_not_grow(
    make: Callable[[Path], None], tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "LEAST_LIMIT", 8 << 20)
    path = tmp_path / "bomb.tar.gz"
    make(path)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(ArchiveError):
        read_archive(path, folder)
    assert sum(entry.stat().st_size for entry in folder.rglob("*")) <= archive.LEAST_LIMIT


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_of_headers_have_an_end(kind: bytes, tmp_path: Path, folder: Path) -> None:
    """tarfile calls itself for each."""
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 12
    header = info.tobuf(format=tarfile.USTAR_FORMAT) + b"12 path=abc\n".ljust(512, b"\0")
    path = tmp_path / "p.tar.gz"
    path.write_bytes(gzip.compress(header * 3000 + bytes(1024)))
    with pytest.raises(ArchiveError, match="endlessly nested headers"):
        read_archive(path, folder)


def test_so_many_files_are_too_many(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 3)
    path = packed(tmp_path / "p", [member(f"runs/{n}/journal.jsonl") for n in range(4)])
    with pytest.raises(ArchiveError, match="more than 3 files"):
        read_archive(path, folder)


def test_what_is_no_archive_is_refused(tmp_path: Path, folder: Path) -> None:
    good = packed(tmp_path / "good", [member("manifest.json", b"x" * 5000), member("seal.json", b"y" * 5000)])
    data = good.read_bytes()
    plain = gzip.decompress(data)
    cases = {
        "empty": b"",
        "text": b"hello",
        "gzip of text": gzip.compress(b"hello"),
        "cut": data[: len(data) // 2],
        "flipped": data[:40] + bytes([data[40] ^ 1]) + data[41:],
        "more behind": gzip.compress(plain + b"more"),
        "broken header": gzip.compress(plain[:6000] + b"?" + plain[6001:]),
    }
    for name, content in cases.items():
        (tmp_path / "case").write_bytes(content)
        (folder / name).mkdir()
        with pytest.raises(ArchiveError):
            read_archive(tmp_path / "case", folder / name)
    os.mkfifo(tmp_path / "pipe")  # which is not waited for
    with pytest.raises(ArchiveError, match="is not a file"):
        read_archive(tmp_path / "pipe", folder)
    with pytest.raises(ArchiveError, match="No such file"):
        read_archive(tmp_path / "absent", folder)
