"""Packing image folders: what the shards hold, what is refused, and what a killed packing leaves."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import psutil
import pytest
from PIL import Image

from aiperf.data.file_list import fingerprint, scan
from aiperf.data.packed import packing_plan as planning
from aiperf.data.packed.packing import pack
from aiperf.data.packed.packing_plan import PackingRecord, plan
from aiperf.data.packed.shards import alone, damaged, read_manifest
from aiperf.errors import DataError
from tests.aiperf.commands.typed import Typed
from tests.aiperf.data.packed.pack import call, command, packed
from tests.aiperf.data.sets import pictures, refused_by, write_folders
from tests.tables import ComesTo

SIDE = 32


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_folders(tmp_path_factory.mktemp("source") / "set").path)


@pytest.fixture(scope="module")
def done(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed(source, tmp_path_factory.mktemp("done") / "packed", SIDE)


def many(root: Path, images: int, size: tuple[int, int]) -> Path:
    """Photographs, from a few that are copied."""
    photographs = [Image.fromarray(pictures(1, 30, 3, seed)[0]).resize(size) for seed in range(4)]
    for number in range(images):
        for part in ("train", "val"):
            folder = root / part / f"class{number % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            if part == "train" or number < 8:
                photographs[number % 4].save(folder / f"{number:04}.jpg")
    return root


def test_a_shard_holds_the_centred_square_of_each_file_in_the_order_of_the_list(
    source: Path, done: Path
) -> None:
    listing = scan(source / "train")
    shown = []
    for index in range(len(listing.names)):
        with Image.open(listing.path(index)) as file:
            image = file.convert("RGB")
        side = min(image.size)
        left, upper = (image.width - side) / 2, (image.height - side) / 2
        box = (left, upper, left + side, upper + side)
        shown.append(np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box)))
    assert (done / "train-00000.shard").read_bytes() == np.stack(shown).tobytes()


def test_the_manifest_says_what_the_pixels_follow_from(source: Path, done: Path) -> None:
    found = json.loads((done / "manifest.json").read_text())
    decoder = found.pop("decoder")
    assert found.pop("sha256") == read_manifest(done).sha256
    assert decoder.startswith(f"Pillow {Image.__version__}, libjpeg")
    digests = [sha256((done / f"{part}-00000.shard").read_bytes()).hexdigest() for part in ("train", "test")]
    assert found == {
        "form": "aiperf-hpc/packed/1",
        "source_sha256": fingerprint(scan(source / "train"), scan(source / "val")),
        "classes": ["class0", "class1", "class2"],
        "side": SIDE,
        "channels": 3,
        "resize": "shorter side to 32 and centre crop, in one step",
        "filter": "bilinear, with antialiasing",
        "train": {"images_by_class": [12] * 3, "shards": [{"images": 36, "sha256": digests[0]}]},
        "test": {"images_by_class": [5] * 3, "shards": [{"images": 15, "sha256": digests[1]}]},
    }
    assert sorted(path.name for path in done.iterdir()) == [
        ".lock",
        "manifest.json",
        "test-00000.shard",
        "train-00000.shard",
    ]


def test_what_will_be_done_is_said_before(source: Path, tmp_path: Path) -> None:
    planned = plan(source, tmp_path / "packed", 256)
    assert planned is not None
    assert planned.text.startswith(
        "36 training and 15 test images of 3 classes at 256 x 256 x 3: 9.562 MiB in 2 shards; decoder Pillow"
    )


def test_the_same_again_packs_nothing_and_another_set_is_refused(
    source: Path, done: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.stat().st_mtime_ns for path in done.iterdir()}
    assert typed("data", "pack", source, done, "--size", SIDE) == 0
    assert typed.out == f"{done}: already holds these images; `aiperf-hpc data verify` checks them\n"
    assert {path: path.stat().st_mtime_ns for path in done.iterdir()} == before
    with pytest.raises(
        DataError, match=r"already contains other packed images \(side, resize differ\); remove it"
    ):
        plan(source, done, 2 * SIDE)
    monkeypatch.setattr(planning, "decoder_name", lambda: "Pillow 1.0, libjpeg 6b")
    with pytest.raises(DataError, match=r"already contains other packed images \(decoder differ"):
        plan(source, done, SIDE)


OTHERS = json.dumps({"shard": "train-00000.shard", "source": "other", "sha256": "0" * 64}) + "\n"


def test_a_folder_of_other_things_one_among_the_images_and_one_without_room_are_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    monkeypatch.chdir(source.parent)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(planning.shutil, "disk_usage", lambda folder: usage)

    def holding(name: str, content: str) -> str:
        (folder := Path(tempfile.mkdtemp(dir=".")).relative_to(".")).joinpath(name).write_text(content)
        return planned(Path(source.name), folder)

    def planned(images: Path, target: Path) -> str:
        return refused_by(plan, images, target, SIDE).replace(target.parts[0], "…")

    names = {"holding": holding, "planned": planned, "Path": Path, "OTHERS": OTHERS, "set": Path(source.name)}
    comes_to_what_was_read("refused_packings.txt", names)


def test_a_file_that_cannot_be_decoded_is_named_and_only_its_shard_is_made_again(tmp_path: Path) -> None:
    """And one that was damaged meanwhile."""
    root, target = many(tmp_path / "set", 130, (80, 60)), tmp_path / "packed"
    bad = Path(scan(root / "train").path(70))  # of the second of three shards
    kept = bad.read_bytes()
    bad.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(DataError, match=f"^{bad}: not a readable JPEG .*; replace it; without it"):
        packed(root, target)
    first, last = (target / f"train-0000{number}.shard" for number in (0, 2))
    assert sorted(target.glob("train-*")) == [first, last]
    before = last.stat().st_mtime_ns
    bad.write_bytes(kept)
    first.write_bytes(bytes(first.stat().st_size))
    packed(root, target)
    assert last.stat().st_mtime_ns == before
    assert damaged(target, read_manifest(target), 1, lambda images: None) == []


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"short")])
def test_a_shard_that_a_finished_set_lacks_is_made_again(
    source: Path, done: Path, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    target = Path(shutil.copytree(done, tmp_path / "packed"))
    damage(target / "test-00000.shard")
    kept = (target / "train-00000.shard").stat().st_mtime_ns
    again = plan(source, target, SIDE)
    assert again is not None
    assert [shard.name for shard in again.left] == ["test-00000.shard"]
    packed(source, target)
    assert (target / "train-00000.shard").stat().st_mtime_ns == kept
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        path.name: path.read_bytes() for path in done.iterdir()
    }


def test_a_shard_is_not_made_again_from_other_pixels(source: Path, done: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(source, tmp_path / "set"))
    one, other = root / "val/class0/0.jpg", root / "val/class0/1.jpg"
    size = max(one.stat().st_size, other.stat().st_size)
    for path in (one, other):  # of one length, so that the list of files cannot tell them apart
        path.write_bytes(path.read_bytes()[:-2].ljust(size - 2, b"\0") + b"\xff\xd9")
    target = packed(root, tmp_path / "packed", SIDE)
    (target / "test-00000.shard").unlink()
    one.write_bytes(other.read_bytes())
    with pytest.raises(DataError, match=r"test-00000.shard: packed again, it differs from the manifest"):
        packed(root, target, SIDE)


@pytest.mark.slow
def test_a_killed_packing_goes_on_where_it_was(tmp_path: Path) -> None:
    root, target = many(tmp_path / "set", 400, (800, 600)), tmp_path / "packed"
    words = ("data", "pack", root, target, "--size", 128, "--processes", 2)
    running = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        record = target / "packing.jsonl"
        until = time.monotonic() + 60
        while not (record.exists() and record.read_bytes().count(b"\n") >= 2):
            assert running.poll() is None
            assert time.monotonic() < until
            time.sleep(0.005)
        children = psutil.Process(running.pid).children(recursive=True)
    finally:
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
    assert psutil.wait_procs(children, timeout=30)[1] == []
    assert not (target / "manifest.json").exists()
    with record.open("ab") as file:
        file.write(b'{"shard": "train-0')  # the kill may come in the midst of a line
    finished = [line["shard"] for line in PackingRecord.lines(record)]
    before = {name: (target / name).stat().st_mtime_ns for name in finished}
    assert 2 <= len(finished) < 8
    with pytest.raises(DataError, match="packing is not finished; run `aiperf-hpc data pack` again"):
        read_manifest(target)
    went_on = call(*words)
    assert went_on.returncode == 0, went_on.stderr
    assert f", of which {len(finished)} are finished; decoder" in went_on.stdout
    assert {name: (target / name).stat().st_mtime_ns for name in finished} == before
    assert not list(target.glob("*.part"))
    whole = packed(root, tmp_path / "whole", 128)  # by other processes, in another order
    assert read_manifest(target) == read_manifest(whole)


def test_a_packing_that_was_planned_earlier_leaves_a_finished_set_alone(source: Path, tmp_path: Path) -> None:
    """It waited for nothing and knew of nothing; by its turn another one has made all."""
    planned = [plan(source, tmp_path / "packed", SIDE) for _ in range(2)]
    other = plan(source, tmp_path / "packed", 2 * SIDE)
    with ThreadPoolExecutor(1) as thread:
        made = [pack(each, thread, 1, lambda images: None) for each in planned if each]
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "packed").iterdir()}
        assert made == [read_manifest(tmp_path / "packed"), None]
        assert other is not None
        with pytest.raises(DataError, match="already contains other packed images"):
            pack(other, thread, 1, lambda images: None)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "packed").iterdir()} == before


def test_two_packings_do_not_write_one_folder_and_without_locks_none_does(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with alone(tmp_path), pytest.raises(DataError, match="another `data pack` is running"):
        packed(source, tmp_path)
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented")))
    with pytest.raises(DataError, match=r"\.lock: cannot be locked \(Function not implemented\); use"):
        packed(source, tmp_path / "packed")
