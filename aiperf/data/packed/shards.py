"""What lies in a folder of packed images: shards of pixels, read by memory map, and the manifest that
describes them."""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aiperf.errors import DataError
from aiperf.os_error import reason, unreadable
from aiperf.wording import first_few
from nas.bounded import file_digest, read_text
from nas.frozen import frozen
from nas.record import RecordError, decode, encode

MANIFEST = "manifest.json"
"""Written last: a folder with it holds a whole set."""
PACKING = "packing.jsonl"
"""The finished shards of a packing that is not finished; removed when the manifest is written."""
LOCK = ".lock"
"""A file that is locked by the one process that writes in a folder. It is never removed: whoever opened it
before would then hold a lock that nobody else sees."""
FORMS = "aiperf-hpc/packed/"
FORM = f"{FORMS}1"
"""The form of the folder, with its version: other ones are refused."""
SIDE = 256
"""Customary shorter side of ImageNet's images before a crop of 224 (Krizhevsky et al., NIPS 2012)."""
FILTER = "bilinear, with antialiasing"
"""How pixels are scaled, as the manifest records it."""
# Each shard is mapped, and keeps a file open: 256 leave room below the usual limit of 1,024 for the shards
# of test and whatever else a rank opens. Small sets have small shards, so that a packing that was killed
# loses little of its work.
MOST_SHARDS, LEAST_IMAGES = 256, 64
MOST_IMAGES = 10**8
"""The most images of a part: the label of each is held in memory."""


@frozen
class Shard:
    """Images of consecutive numbers: bytes (images, side, side, channels), and nothing else in the file."""

    images: int
    sha256: str


@frozen
class PackedPart:
    """Training or test. The images lie in the order of the source: by class, in a class by file name."""

    images_by_class: tuple[int, ...]
    shards: tuple[Shard, ...]

    @property
    def labels(self) -> NDArray[np.int64]:
        """The label of each image (n,), in the order of the images."""
        return np.repeat(np.arange(len(self.images_by_class)), self.images_by_class)


@frozen
class Packed:
    """A whole packed set, as its manifest describes it."""

    form: str
    source_sha256: str
    """The fingerprint of the image folder, as its own manifest has it."""
    classes: tuple[str, ...]
    side: int
    channels: int
    resize: str
    filter: str
    decoder: str
    """The library that decoded the files: another version may give other pixels."""
    train: PackedPart
    test: PackedPart

    @property
    def sha256(self) -> str:
        """The SHA-256 of this manifest as JSON with sorted keys and without spaces, which covers labels and
        decoder as well as all pixels."""
        text = json.dumps(encode(self), sort_keys=True, separators=(",", ":"))
        return sha256(text.encode()).hexdigest()

    @property
    def shards(self) -> list[tuple[str, Shard]]:
        """All of them with the names of their files."""
        return [
            (shard_name(name, number), shard)
            for name, part in (("train", self.train), ("test", self.test))
            for number, shard in enumerate(part.shards)
        ]

    @property
    def image_bytes(self) -> int:
        """Size of one image, a byte for each channel of a pixel."""
        return self.side * self.side * self.channels

    @property
    def images(self) -> int:
        """Number of images of both parts."""
        return sum(shard.images for _, shard in self.shards)

    @property
    def total_bytes(self) -> int:
        """Size of all shards."""
        return self.images * self.image_bytes


def shard_name(part: str, number: int) -> str:
    """File name of a shard of `train` or `test`."""
    return f"{part}-{number:05}.shard"


def images_a_shard(images: int) -> int:
    """By their number alone, so that every site has the same shards."""
    return max(LEAST_IMAGES, -(-images // MOST_SHARDS))


def resize_text(side: int) -> str:
    """How images become squares of this side, as the manifest records it."""
    return f"shorter side to {side} and centre crop, in one step"


def write_manifest(folder: Path, packed: Packed) -> None:
    """Writes the manifest with its own SHA-256, which shows later changes."""
    write_durably(folder / MANIFEST, json.dumps({**encode(packed), "sha256": packed.sha256}, indent=1) + "\n")


def write_durably(path: Path, text: str) -> None:
    """Writes a file whole or not at all: it is on the disk before it gets its name, and its name before this
    returns."""
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_text(text, encoding="utf-8")
    to_disk(unfinished)
    unfinished.rename(path)
    to_disk(path.parent)


@contextmanager
def alone(folder: Path, busy: str = "") -> Iterator[None]:
    """Waits for another process that holds the folder; with `busy` raises DataError of these words instead.

    Makes the folder. Raises DataError if the file system has no locks, and OSError for a folder that
    cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except OSError as error:
            if busy and error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                raise DataError(busy) from None
            raise DataError(
                f"{folder / LOCK}: cannot be locked ({error.strerror}); use a file system with locks "
                f"(Lustre: mount it with -o flock)"
            ) from None
        yield


def to_disk(path: Path) -> None:
    """Waits until a file, or the names in a folder, would survive a loss of power."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def is_packed(folder: Path) -> bool:
    """Whether there are packed images, whole or not: many a folder has a manifest.json of something else."""
    if any((folder / name).exists() for name in (PACKING, shard_name("train", 0))):
        return True
    try:
        record = json.loads(read_text(folder / MANIFEST))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and str(record.get("form", "")).startswith(FORMS)


def read_manifest(folder: Path) -> Packed:
    """Raises DataError for a folder that holds no whole packed set."""
    path = folder / MANIFEST
    try:
        record = json.loads(read_text(path))
        digest = record.pop("sha256", "") if isinstance(record, dict) else ""
        packed = decode(Packed, record)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and (folder / PACKING).exists():
            raise DataError(
                f"{folder}: packing is not finished; run `aiperf-hpc data pack` again to continue"
            ) from None
        otherwise = "give a folder written by `aiperf-hpc data pack`"
        raise DataError(unreadable(error, path, otherwise)) from None
    except (ValueError, RecordError, RecursionError) as error:
        raise DataError(
            f"{path}: is not a manifest of packed images ({error}); pack the images again"
        ) from None
    wrong = next(_contradictions(packed), "")
    if not wrong and digest != packed.sha256:
        wrong = "its SHA-256 does not match its content, so it was changed or damaged"
    if wrong:
        raise DataError(f"{path}: {wrong}; pack the images again")
    return packed


def check_sizes(folder: Path, packed: Packed) -> None:
    """Raises DataError, which names the shards that are missing or of another size."""
    if lines := wrong_sizes(folder, packed):
        raise DataError(f"{first_few(lines)}; copy the shards again, or pack the images again")


def wrong_sizes(folder: Path, packed: Packed) -> list[str]:
    """A line for each shard that is missing or of another size than the manifest says."""
    return [line for name, shard in packed.shards if (line := wrong_size(folder / name, packed, shard))]


def wrong_size(path: Path, packed: Packed, shard: Shard) -> str:
    """What is wrong with the size of a shard, or why it cannot be known; empty if it is right."""
    expected = shard.images * packed.image_bytes
    try:
        found = path.stat().st_size
    except OSError as error:
        return f"{path}: {reason(error)}"
    return "" if found == expected else f"{path}: has {found:,} bytes, not {expected:,}"


def _contradictions(packed: Packed) -> Iterator[str]:
    """Yields what in a manifest cannot be. Anybody may have written it, and the loader relies on its
    numbers."""
    if packed.form != FORM:
        yield f"its form is {packed.form!r}, and {FORM!r} is read"
    if packed.side < 1 or packed.channels not in (1, 3):
        yield f"images of side {packed.side} and {packed.channels} channels cannot be"
    for name, part in (("train", packed.train), ("test", packed.test)):
        by_class, shards = part.images_by_class, [shard.images for shard in part.shards]
        size = images_a_shard(sum(by_class))
        if len(by_class) != len(packed.classes) or len(by_class) < 2 or min(by_class) < 1:
            yield f"{name} does not have images of each of {len(packed.classes)} classes"
        elif min(shards, default=0) < 1 or sum(shards) != sum(by_class):
            yield f"{name} has {sum(by_class)} images, and its shards hold {sum(shards)}"
        elif any(images != size for images in shards[:-1]) or shards[-1] > size:
            yield f"the shards of {name} do not hold {size} images each"
        elif sum(by_class) > MOST_IMAGES:
            yield f"{name} has {sum(by_class):,} images; the limit is {MOST_IMAGES:,}"


class Maps:
    """The shards of one part, mapped into memory: one image is one piece of a file. Images are
    taken by number. The sizes of the files have been checked: a map beyond the end of a file kills."""

    def __init__(self, folder: Path, packed: Packed, name: str, part: PackedPart) -> None:
        self._shape = (packed.side, packed.side, packed.channels)
        self._bytes = packed.image_bytes
        self._images = images_a_shard(len(part.labels))
        self._maps = [map_file(folder / shard_name(name, number)) for number in range(len(part.shards))]
        self._arrays = [np.frombuffer(each, np.uint8).reshape(-1, *self._shape) for each in self._maps]

    def __getitem__(self, image: int) -> NDArray[np.uint8]:
        """Bytes (side, side, channels), to be read only."""
        shard, index = divmod(image, self._images)
        pixels: NDArray[np.uint8] = self._arrays[shard][index]
        return pixels

    def announce(self, images: Iterable[int]) -> None:
        """Images that will be read soon: the system fetches them together, not page by page as each is read.

        From a cold disk this made 10,800 images per second of 1,400.
        """
        if not hasattr(mmap, "MADV_WILLNEED"):
            return
        for image in images:
            shard, index = divmod(image, self._images)
            first = index * self._bytes
            aligned = first - first % mmap.PAGESIZE
            self._maps[shard].madvise(mmap.MADV_WILLNEED, aligned, first + self._bytes - aligned)


def map_file(path: Path) -> mmap.mmap:
    """To be read only: what may be written counts as memory of each rank, however large. Raises DataError."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise DataError(f"{path}: is empty; pack the images again") from None
    except OSError as error:
        raise DataError(unreadable(error, path, "copy the shards again")) from None


def damaged(folder: Path, packed: Packed, threads: int, show: Callable[[int], object]) -> list[str]:
    """A line for each shard that is missing or damaged; `show` is given the images that were looked at."""

    def look(shard: tuple[str, Shard]) -> str:
        return fault(folder / shard[0], packed, shard[1])

    lines, images = list[str](), 0
    with ThreadPoolExecutor(threads) as pool:
        for (_, shard), line in zip(packed.shards, pool.map(look, packed.shards)):
            images += shard.images
            show(images)
            lines += [line] if line else []
    return lines


def fault(path: Path, packed: Packed, shard: Shard) -> str:
    """What is wrong with a shard; empty if it is whole and its SHA-256 is right."""
    if line := wrong_size(path, packed, shard):
        return line
    try:
        found = file_digest(path)
    except OSError as error:
        return f"{path}: {reason(error)}"
    return "" if found == shard.sha256 else f"{path}: is damaged: its SHA-256 does not match the manifest"
