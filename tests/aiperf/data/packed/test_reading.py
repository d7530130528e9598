"""Packed images as a run reads them: the same on all ranks, checked, and copied to a disk of the node.

One file, since all of it reads the same packed set, which takes longest to make.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image

from aiperf.config import DataConfig
from aiperf.data import Data, load
from aiperf.data.decode import random_box
from aiperf.data.host_share import ReusedMemory
from aiperf.data.image_files import look
from aiperf.data.packed import staging
from aiperf.data.packed.loading import cut
from aiperf.data.packed.shards import Maps, PackedPart, Shard, read_manifest, write_manifest
from aiperf.errors import DataError
from tests.aiperf.commands.typed import Typed
from tests.aiperf.data.packed.pack import packed
from tests.aiperf.data.sets import CPU, pictures, refusal, write_folders
from tests.tables import ComesTo

AUGMENTED = "resized-crop-flip"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    return write_folders(tmp_path_factory.mktemp("source") / "set")


@pytest.fixture(scope="module")
def written(folders: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    target = packed(Path(folders.path), tmp_path_factory.mktemp("written") / "packed")
    return replace(folders, name="packed", path=str(target))


@pytest.fixture
def staged(config: DataConfig, tmp_path: Path) -> DataConfig:
    return replace(config, stage=str(tmp_path / "disk"))


def anew(path: Path, content: bytes) -> None:
    """Replaces a file by a new one: processes that map a file get SIGBUS if it is cut off."""
    path.unlink()
    path.write_bytes(content)


def images(data: Data, ranks: int, steps: int = 7, batch_size: int = 8) -> torch.Tensor:
    """Images of some steps of all ranks, in the order of the steps."""
    streams = [data.train.stream(batch_size, 3, rank, ranks) for rank in range(ranks)]
    return torch.cat([next(stream)[0].clone() for _ in range(steps) for stream in streams])


def test_threads_change_nothing(written: DataConfig) -> None:
    augmented = replace(written, augmentation=AUGMENTED)
    one, four = (load(replace(augmented, loader_processes=threads), CPU, 1) for threads in (1, 4))
    assert torch.equal(images(one, 1, batch_size=100), images(four, 1, batch_size=100))


def test_training_keeps_its_threads(written: DataConfig) -> None:
    """The readers have one thread of OpenMP each, and say so for themselves alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        load(replace(written, loader_processes=3), CPU, 1)
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as later:
            assert later.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)


def test_validation_is_of_the_images_that_validate_from_the_folder(
    folders: DataConfig, written: DataConfig
) -> None:
    one, other = (load(config, CPU, 1) for config in (folders, written))
    for name in ("validation", "test"):
        labels = [torch.cat([label for _, label in getattr(data, name).sweep(4)]) for data in (one, other)]
        shown = [torch.cat([image for image, _ in getattr(data, name).sweep(4)]) for data in (one, other)]
        assert torch.equal(*labels)
        # Resized twice instead of once: not the same pixels, but nearer to their own than to any other.
        apart = torch.cdist(shown[1].flatten(1), shown[0].flatten(1))
        assert apart.argmin(1).tolist() == list(range(len(apart)))


def test_the_evaluation_crop_of_256_at_224_is_the_pixels_themselves() -> None:
    image = pictures(1, 256, 3)[0]
    assert np.array_equal(cut(image, 224, ""), image[16:240, 16:240])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_random_crop_is_what_pillow_makes_of_it(channels: int) -> None:
    image = np.array(Image.fromarray(pictures(1, 16, 3)[0]).resize((64, 64)))[..., :channels].copy()
    flips = 0
    for number in range(20):
        source = random.Random(f"1/{number}")
        box = random_box(source, 64, 64)
        flip = source.random() < 0.5
        crop = Image.fromarray(image.squeeze()).crop(tuple(map(int, box)))
        expected = np.asarray(crop.resize((48, 48), Image.Resampling.BILINEAR)).reshape(48, 48, channels)
        found = cut(image, 48, f"1/{number}").astype(int)
        # A crop that is mirrored first may round otherwise in its last bit.
        assert np.abs(found - (expected[:, ::-1] if flip else expected)).max() <= 1
        flips += flip
    assert 4 < flips < 16


def test_a_batch_that_is_held_is_not_written_into(written: DataConfig) -> None:
    held = [image for image, _ in islice(load(written, CPU, 1).train.stream(6, 1), 20)]
    once = [image.clone() for image, _ in islice(load(written, CPU, 1).train.stream(6, 1), 20)]
    assert torch.equal(torch.cat(held), torch.cat(once))


def test_memory_is_used_again_when_nobody_holds_it() -> None:
    blocks = ReusedMemory(torch.float32, pinned=False)
    first = blocks.take(4, 5)
    place, part = first.data_ptr(), first[1:].T
    del first
    assert blocks.take(4, 5).data_ptr() != place  # a view of it is still there
    del part
    assert blocks.take(2, 3).data_ptr() == place


def test_the_manifest_of_a_run_holds_the_packing(folders: DataConfig, written: DataConfig) -> None:
    shards = read_manifest(Path(written.path))
    expected = dict(load(folders, CPU, 1).manifest) | {"name": "packed"}
    expected["packed"] = {
        "side": 32,
        "resize": shards.resize,
        "filter": "bilinear, with antialiasing",
        "decoder": shards.decoder,
        "shards": 2,
        "sha256": shards.sha256,
    }
    assert load(written, CPU, 1).manifest == expected


def test_a_look_finds_them_by_their_manifest_also_damaged_and_takes_no_other_for_one(
    folders: DataConfig, config: DataConfig, tmp_path: Path
) -> None:
    folder, found = Path(config.path), look(Path(config.path))
    assert (found.training.name, found.channels, found.size) == ("packed", 3, 24)
    assert load(replace(config, size=32), CPU, 1).manifest["size"] == 32, "it may be as large as they are"
    (folder / "train-00000.shard").rename(folder / "away")
    assert look(folder).training.name == "packed"
    (folder / "away").rename(folder / "train-00000.shard")
    (folder / "manifest.json").write_text("{")
    with pytest.raises(DataError, match="is not a manifest of packed images"):
        look(folder)
    root = Path(shutil.copytree(folders.path, tmp_path / "set"))
    for content in ('{"form": "web app"}', '["a"]', "{", "\xff"):
        (root / "manifest.json").write_text(content, encoding="latin-1")
        assert look(root).training.name == "imagefolder", content


def test_maps_are_not_counted_as_memory_that_may_be_written(written: DataConfig) -> None:
    """Else the system would hold memory ready for all shards, in each rank."""
    folder = Path(written.path)
    packed_set = read_manifest(folder)
    assert not Maps(folder, packed_set, "train", packed_set.train)[0].flags.writeable


def test_what_the_system_refuses_is_told_with_its_remedy(
    config: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map; and to look at files whose names may be read: the superuser of the tests may do both."""
    monkeypatch.setattr(mmap, "mmap", Mock(side_effect=OSError(errno.ENOMEM, "why")))
    with pytest.raises(DataError, match=r"train-00000.shard: why; request more memory"):
        load(config, CPU, 1)
    refused = PermissionError(errno.EACCES, "Permission denied", config.path)
    monkeypatch.setattr(Path, "exists", Mock(side_effect=refused))
    with pytest.raises(DataError, match=f"^{config.path}: Permission denied; make it readable"):
        look(Path(config.path))


def test_verify_names_the_damaged_shards(config: DataConfig, typed: Typed) -> None:
    folder = Path(config.path)
    assert typed("data", "verify", folder) == 0
    assert typed.out.startswith(f"{folder}: OK, 51 of 51 images verified, ")
    shard = folder / "train-00000.shard"
    content = bytearray(shard.read_bytes())
    content[1234] ^= 1
    anew(shard, content)
    (folder / "test-00000.shard").unlink()
    assert typed("data", "verify", folder) == 1
    assert typed.out.splitlines() == [
        f"{shard}: is damaged: its SHA-256 does not match the manifest",
        f"{folder / 'test-00000.shard'}: No such file or directory",
    ]
    assert "2 of 2 shards are missing or damaged; copy them again" in typed.err


def counted(by_class: tuple[int, ...], *shards: int) -> Callable[[Path], None]:
    """With a right SHA-256 of the manifest: whoever can write it can compute that."""
    part = PackedPart(by_class, tuple(Shard(images, "0" * 64) for images in shards))
    return lambda folder: write_manifest(folder, replace(read_manifest(folder), train=part))


def edited(edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """By hand, with the shards as they were: the counts still agree."""

    def damage(folder: Path) -> None:
        whole = json.loads((folder / "manifest.json").read_text())
        edit(whole)
        (folder / "manifest.json").write_text(json.dumps(whole))

    return damage


def test_what_cannot_be_read_is_refused(
    folders: DataConfig, refused: Callable[..., str], here: Path, comes_to_what_was_read: ComesTo
) -> None:
    """The disk is not blamed for a shard that the source lacks."""
    comes_to_what_was_read("refused_packed.txt", {**globals(), "refused": refused, "folders": folders})


def test_staged_shards_are_copied_once_and_read_there_without_a_lock(
    staged: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(3) as ranks:  # of one host, all at once
        together = list(ranks.map(lambda _: load(staged, CPU, 1), range(3)))
    (copy,) = Path(staged.stage).iterdir()
    stamps = {path.name: path.stat().st_mtime_ns for path in copy.glob("*.shard")}
    assert sorted(stamps) == ["test-00000.shard", "train-00000.shard"]
    for shard in Path(staged.path).glob("*.shard"):
        assert (copy / shard.name).read_bytes() == shard.read_bytes()
        shard.unlink()
    assert all(data.manifest == together[0].manifest for data in together)
    # Its source may be gone: what is there was checked. And it may be readable only.
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.EACCES, "Permission denied")))
    again = load(staged, CPU, 1)
    assert torch.equal(images(again, 1), images(together[0], 1))
    assert {path.name: path.stat().st_mtime_ns for path in copy.glob("*.shard")} == stamps


def later(path: Path) -> None:
    """As a file is that was written some seconds from now: clocks of file systems tick slowly."""
    then = path.stat().st_mtime_ns + 5 * 10**9
    os.utime(path, ns=(then, then))


def damage_shard(copy: Path) -> None:
    shard = copy / "train-00000.shard"
    anew(shard, bytes(shard.stat().st_size))
    later(shard)


@pytest.mark.parametrize(
    "spoil",
    [
        damage_shard,
        lambda copy: (copy / "manifest.json").write_text("{"),
        lambda copy: ((copy / "manifest.json").unlink(), damage_shard(copy)),
        lambda copy: anew(copy / "test-00000.shard", b"short"),
    ],
    ids=["shard", "manifest", "interrupted", "size"],
)
def test_a_staged_set_that_was_spoilt_is_put_right(
    staged: DataConfig, spoil: Callable[[Path], object]
) -> None:
    once = images(load(staged, CPU, 1), 1)
    (copy,) = Path(staged.stage).iterdir()
    spoil(copy)
    assert torch.equal(images(load(staged, CPU, 1), 1), once)
    for shard in Path(staged.path).glob("*.shard"):
        assert (copy / shard.name).read_bytes() == shard.read_bytes()


def test_a_staged_set_that_another_user_may_have_put_there_is_refused(staged: DataConfig) -> None:
    load(staged, CPU, 1)
    (copy,) = Path(staged.stage).iterdir()
    remedy = "set data.stage to a folder of your own on a disk of the node"
    copy.chmod(0o777)
    changed = "can be changed by other users (mode 777; `chmod go-w` corrects it)"
    assert refusal(staged) == f"{copy} {changed}; {remedy}"


def test_a_shard_that_is_damaged_on_its_way_is_not_staged(staged: DataConfig) -> None:
    shard = Path(staged.path) / "train-00000.shard"
    anew(shard, bytes(shard.stat().st_size))
    assert "train-00000.shard: its SHA-256 does not match the manifest; `aiperf" in refusal(staged)
    (copy,) = Path(staged.stage).iterdir()
    assert not (copy / "manifest.json").exists()
    assert not (copy / "train-00000.shard").exists()


def test_a_disk_without_room_is_refused(staged: DataConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(staged.path)._replace(free=1000)
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda folder: usage)
    line = refusal(staged)
    assert line.startswith(f"data.stage: 153 KiB needed in {staged.stage}/")
    assert line.endswith(", but only 1000 B free; free some space, or omit data.stage")
