"""What a packing will do: which shards it makes, which are finished, and whether there is room."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import BinaryIO

import numpy as np

from aiperf.data.decode import decoder_name
from aiperf.data.file_list import FileList, fingerprint
from aiperf.data.imagefolder import channels_and_side, list_files
from aiperf.data.packed.shards import (
    FILTER,
    FORM,
    LOCK,
    MANIFEST,
    PACKING,
    Packed,
    PackedPart,
    Shard,
    images_a_shard,
    read_manifest,
    resize_text,
    shard_name,
    wrong_size,
)
from aiperf.errors import DataError
from aiperf.os_error import unreadable
from aiperf.wording import bytes_text
from nas.bounded import file_digest, read_bytes
from nas.frozen import frozen

KEYS = {"shard", "source", "sha256"}
"""Those of a line in the record of a packing."""


@frozen
class PlannedShard:
    """A shard that a packing makes: its file, and its images as a range of the list."""

    name: str
    listing: FileList
    first: int
    stop: int
    """The first image of the list that is not in it any more."""
    source: str
    """Hash of the names and bytes of its files, and of how they are decoded: what its pixels follow from."""

    @property
    def images(self) -> int:
        return self.stop - self.first

    @property
    def unfinished(self) -> str:
        """Name of the shard's file while it is written, so that a shard with its own name is always whole."""
        return f".{self.name}.part"


@frozen
class PackingPlan:
    """A packing before it begins."""

    target: Path
    parts: tuple[tuple[PlannedShard, ...], tuple[PlannedShard, ...]]
    """Training and test."""
    result: Packed
    """Without the hashes of the shards."""
    finished: dict[str, str]
    """SHA-256 of the shards that an earlier packing finished, by name."""
    expected: dict[str, str]
    """The digests of all shards by name, if the target has a manifest and lacks some of its shards; else
    empty."""

    @property
    def shards(self) -> tuple[PlannedShard, ...]:
        return self.parts[0] + self.parts[1]

    @property
    def left(self) -> tuple[PlannedShard, ...]:
        """The shards that are still to be made."""
        return tuple(shard for shard in self.shards if shard.name not in self.finished)

    @property
    def images(self) -> int:
        """Number of images of all shards."""
        return sum(shard.images for shard in self.shards)

    @property
    def images_finished(self) -> int:
        """Number of images of the shards that an earlier packing finished."""
        return sum(shard.images for shard in self.shards if shard.name in self.finished)

    @property
    def bytes_left(self) -> int:
        """Size of the shards that are still to be made."""
        return sum(shard.images for shard in self.left) * self.result.image_bytes

    @property
    def text(self) -> str:
        """What will be done, in a line, before it is."""
        train, test = (sum(shard.images for shard in part) for part in self.parts)
        packed, shape = self.result, f"{self.result.side} x {self.result.side} x {self.result.channels}"
        total = bytes_text((train + test) * packed.image_bytes)
        begun = f", of which {len(self.finished)} are finished" if self.finished else ""
        return (
            f"{train:,} training and {test:,} test images of {len(packed.classes):,} classes at {shape}: "
            f"{total} in {len(self.shards)} shards{begun}; decoder {packed.decoder}. "
            f"{'. '.join(part[0].listing.text for part in self.parts)}"
        )


def plan(source: Path, target: Path, side: int) -> PackingPlan | None:
    """What is to be packed; None if the target already holds these images, packed alike.

    Raises DataError for a source that is not an image folder, and for a target that holds something else or
    has no room.
    """
    for part in (source / name for name in ("train", "val", "test")):
        if target.resolve().is_relative_to(part.resolve()):
            raise DataError(f"{target}: is inside the source folder; choose a folder outside {part}")
    training, test = list_files(source)
    (channels, _), decoder = channels_and_side(training), decoder_name()
    how = f"{resize_text(side)}; {FILTER}; {decoder}; {channels} channels"
    parts = tuple(
        tuple(_planned(name, listing, how)) for name, listing in (("train", training), ("test", test))
    )
    by_class = [tuple(np.bincount(files.labels).tolist()) for files in (training, test)]
    result = Packed(
        form=FORM,
        source_sha256=fingerprint(training, test),
        classes=training.classes,
        side=side,
        channels=channels,
        resize=resize_text(side),
        filter=FILTER,
        decoder=decoder,
        train=PackedPart(by_class[0], ()),
        test=PackedPart(by_class[1], ()),
    )
    return with_finished(PackingPlan(target, (parts[0], parts[1]), result, {}, {}))


def with_finished(plan: PackingPlan) -> PackingPlan | None:
    """The plan with the shards that the target holds now; None if it holds all. Raises DataError as
    `plan`."""
    if (plan.target / MANIFEST).exists():
        there = _same_packing(plan.target, plan.result)
        hashes = {name: shard.sha256 for name, shard in there.shards}
        whole = {
            name: shard.sha256
            for name, shard in there.shards
            if not wrong_size(plan.target / name, there, shard)
        }
        if whole == hashes:
            return None
        # Lost shards are made again, and must be what the manifest says: `expected`.
        found = replace(plan, finished=whole, expected=hashes)
    else:
        found = replace(plan, finished=_finished(plan), expected={})
    _refuse_no_room(found)
    return found


def with_undamaged(plan: PackingPlan, threads: int) -> PackingPlan:
    """The plan without the finished shards whose SHA-256 is another one now, for which all of them are
    read."""
    with ThreadPoolExecutor(threads) as pool:
        found = pool.map(file_digest, (plan.target / name for name in plan.finished))
        kept = {name: digest for (name, digest), now in zip(plan.finished.items(), found) if now == digest}
    return replace(plan, finished=kept)


def _planned(name: str, listing: FileList, how: str) -> Iterator[PlannedShard]:
    """The shards of a part, in the order of its list of files."""
    total = len(listing.names)
    size = images_a_shard(total)
    for number, first in enumerate(range(0, total, size)):
        stop = min(first + size, total)
        source = sha256(f"{how}\n".encode())
        for index in range(first, stop):
            source.update(f"{listing.sizes[index]}\t{listing.labels[index]}\t".encode())
            source.update(bytes(listing.names[index]) + b"\n")
        yield PlannedShard(shard_name(name, number), listing, first, stop, source.hexdigest())


def _same_packing(target: Path, wanted: Packed) -> Packed:
    """The finished packing in the target. Raises DataError if it is one of something else."""
    there = read_manifest(target)
    keys = ("source_sha256", "classes", "side", "channels", "resize", "filter", "decoder")
    if different := [key for key in keys if getattr(there, key) != getattr(wanted, key)]:
        raise DataError(
            f"{target}: already contains other packed images ({', '.join(different)} differ); remove it, or "
            f"choose another folder"
        )
    return there


def _finished(plan: PackingPlan) -> dict[str, str]:
    """SHA-256 by name of the shards that an earlier packing recorded. Raises DataError if it packed other
    images."""
    try:
        there = {entry.name for entry in plan.target.iterdir()} - {LOCK}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DataError(unreadable(error, plan.target, "choose another folder")) from None
    if PACKING not in there:
        if there:
            raise DataError(f"{plan.target}: contains other files; choose an empty or a new folder")
        return {}
    wanted, found = {shard.name: shard for shard in plan.shards}, dict[str, str]()
    for line in PackingRecord.lines(plan.target / PACKING):
        shard = wanted.get(line["shard"])
        if shard is None or line["source"] != shard.source:
            raise DataError(
                f"{plan.target}: {line['shard']} was packed from other files, or with another size or "
                "decoder; remove the folder, or choose another one"
            )
        if not wrong_size(plan.target / shard.name, plan.result, Shard(shard.images, "")):
            found[shard.name] = line["sha256"]
    return found


def _refuse_no_room(plan: PackingPlan) -> None:
    """Raises DataError if the disk has less room than the shards that are left."""
    folder = plan.target.absolute()
    while not folder.exists():
        folder = folder.parent
    # What a killed packing left of an unfinished shard is written over.
    stale = (plan.target / shard.unfinished for shard in plan.left)
    reused = sum(512 * path.stat().st_blocks for path in stale if path.exists())
    free = shutil.disk_usage(folder).free + reused
    if free < plan.bytes_left:
        raise DataError(
            f"{plan.target}: {bytes_text(plan.bytes_left)} needed, but only {bytes_text(free)} free; free "
            f"some space, or choose a folder on another disk"
        )


class PackingRecord:
    """The record of a packing that is not finished: a line for each finished shard. One process adds lines,
    which is alone in the folder."""

    def __init__(self, path: Path) -> None:
        self._path, self._adding = path, Lock()
        self._file: BinaryIO = path.open("ab")
        self._file.truncate(path.read_bytes().rfind(b"\n") + 1)  # of a line that was torn

    def close(self) -> None:
        self._file.close()

    def add(self, line: str) -> None:
        """From any thread; it is on the disk when this returns."""
        with self._adding:
            self._file.write(f"{line}\n".encode())
            self._file.flush()
            os.fsync(self._file.fileno())

    def remove(self) -> None:
        """Removes the file, once the manifest says what it said."""
        self._path.unlink()

    @staticmethod
    def lines(path: Path) -> Iterator[dict[str, str]]:
        """Reads the record of an earlier packing; its last line may be torn, and is omitted. Raises
        DataError."""
        try:
            *whole, _ = read_bytes(path).split(b"\n")
        except OSError as error:
            raise DataError(unreadable(error, path, "remove the folder and pack again")) from None
        for number, raw in enumerate(whole, start=1):
            try:
                line = json.loads(raw)
                if set(line) != KEYS or not all(isinstance(value, str) for value in line.values()):
                    raise ValueError("it has other keys")
            except (ValueError, TypeError) as error:
                raise DataError(
                    f"{path}:{number}: not a packing record ({error}); remove the folder and pack again"
                ) from None
            yield line
