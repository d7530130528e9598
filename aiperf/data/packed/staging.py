"""Shards copied to a disk of the node before they are read, each checked on its way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from aiperf.data.packed.shards import (
    MANIFEST,
    Packed,
    Shard,
    alone,
    fault,
    read_manifest,
    write_manifest,
    wrong_sizes,
)
from aiperf.errors import DataError
from aiperf.host.other_users import OTHERS_WRITE, NotOurs, make_private
from aiperf.os_error import unreadable, unwritable
from aiperf.wording import bytes_text

COPIERS = 8
"""Threads that wait for the shared file system and for the disk."""
BLOCK_BYTES = 4 << 20
"""Bytes that are read, hashed and written at a time."""


def stage_shards(folder: Path, packed: Packed, disk: Path) -> Path:
    """The folder on this disk, one for each user, that holds the same shards.

    The first rank of a host copies, the others wait for it. An earlier copy is used again: as it is if
    nothing was written since it was checked, else if its SHA-256 is right. Raises DataError, also for a
    folder that other users can write to.
    """
    target = disk / f"aiperf-packed-{os.getuid()}-{packed.sha256[:16]}"
    try:
        make_private(target, OTHERS_WRITE)
        if _unchanged(target, packed):  # before the lock, for the folder may be readable only
            return target
        with alone(target):
            if not _unchanged(target, packed):
                _fill(folder, target, packed)
    except NotOurs as error:
        raise DataError(f"{error}; set data.stage to a folder of your own on a disk of the node") from None
    except OSError as error:
        otherwise = "set data.stage to a folder on a local disk of the node"
        raise DataError(unwritable(error, error.filename or target, otherwise)) from None
    return target


def _unchanged(target: Path, packed: Packed) -> bool:
    """Whether all shards are there, and none was written after the manifest, which is written last."""
    try:
        if read_manifest(target) != packed or wrong_sizes(target, packed):
            return False
    except DataError:
        return False
    checked = (target / MANIFEST).stat().st_mtime_ns
    return all((target / name).stat().st_mtime_ns < checked for name, _ in packed.shards)


def _fill(folder: Path, target: Path, packed: Packed) -> None:
    """Copies the shards that the target lacks or has damaged, then the manifest. Raises DataError."""
    with ThreadPoolExecutor(COPIERS) as copiers:
        faults = copiers.map(lambda one: fault(target / one[0], packed, one[1]), packed.shards)
        left = [one for one, found in zip(packed.shards, faults) if found]
        _refuse_no_room(target, packed, left)
        failed = [*filter(None, copiers.map(lambda one: _copied(folder, target, *one), left))]
    if failed:
        raise DataError(f"{failed[0]}; `aiperf-hpc data verify {folder}` lists all damaged shards")
    write_manifest(target, packed)


def _refuse_no_room(target: Path, packed: Packed, left: list[tuple[str, Shard]]) -> None:
    """Raises DataError before anything is copied, if the disk has less room than these shards."""
    needed = sum(shard.images for _, shard in left) * packed.image_bytes
    free = shutil.disk_usage(target).free
    if free < needed:
        raise DataError(
            f"data.stage: {bytes_text(needed)} needed in {target}, but only {bytes_text(free)} free; free "
            f"some space, or omit data.stage"
        )


def _copied(folder: Path, target: Path, name: str, shard: Shard) -> str:
    """What is wrong with the source of a shard that was copied; empty if its copy is whole and right."""
    digest, unfinished = sha256(), target / f".{name}.part"
    with unfinished.open("wb") as copy:
        for block in _blocks(folder / name):
            digest.update(block)
            copy.write(block)
        # On the disk before it has its name, so that no loss of power leaves a shard without its content.
        copy.flush()
        os.fsync(copy.fileno())
    if digest.hexdigest() != shard.sha256:
        unfinished.unlink()
        return f"{folder / name}: its SHA-256 does not match the manifest"
    unfinished.rename(target / name)
    return ""


def _blocks(path: Path) -> Iterator[bytes]:
    """Raises DataError, so that no fault of the source is taken for one of the disk it is copied to."""
    try:
        with path.open("rb") as source:
            while block := source.read(BLOCK_BYTES):
                yield block
    except OSError as error:
        raise DataError(unreadable(error, path, "copy the shards again")) from None
