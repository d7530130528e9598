"""The processes that decode, and the memory that they share with the one that trains."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiperf.data.decode import decode, refusal
from aiperf.host.scheduler_warning import outlive

PIECE = 32
"""Images that a process takes at a time, so that many processes decode one request."""
FAULT_BYTES = 16 << 10
"""Room for the line on a file that cannot be decoded: its path, at most 4 KiB long, and why."""
DRAWS_BYTES = 64
"""Room for the seed of a stream, a slash and the place of an image."""
# What passes through the pipes: slot, first image, end, and a fourth number, because a length that divides a
# page is never read in two parts.
TICKET = np.dtype((np.int32, 4))


class ClassFolders(NamedTuple):
    """Where the files of one part are: `root`/`classes[label]`/name."""

    root: str
    classes: tuple[str, ...]

    def path(self, label: int, name: bytes) -> str:
        return f"{self.root}/{self.classes[label]}/{os.fsdecode(name)}"


class DecodeRequest(NamedTuple):
    """Files to decode."""

    folder: int
    """The number of the files' folder in `Decoding.folders`."""
    names: NDArray[np.bytes_]
    """File names (n,), as the system has them: they need not be UTF-8."""
    labels: NDArray[np.int64]
    draws: str
    """What the random crops and flips are drawn from, followed by each image's place, in ASCII; empty: the
    evaluation crop."""
    places: NDArray[np.int64]
    """Where each image stands in the stream (n,)."""


class Decoding(NamedTuple):
    """How files become pixels: all that the processes know besides their requests."""

    folders: Sequence[ClassFolders]
    channels: int
    size: int
    name_bytes: int
    """The length of the longest file name."""
    draft: bool
    """Whether JPEG files of training are decoded at the least scale that their crop allows."""

    def decode(self, request: DecodeRequest, pixels: NDArray[np.uint8]) -> str:
        """Decodes a request into bytes (n, size, size, channels). Returns the line that says why it could
        not; empty if it could."""
        folder = self.folders[request.folder]
        files = zip(request.labels.tolist(), request.names.tolist(), request.places.tolist())
        for index, (label, name, place) in enumerate(files):
            path = folder.path(label, name)
            draws = request.draws and f"{request.draws}{place}"
            try:
                pixels[index] = decode(path, self.channels, self.size, draws, self.draft)
            except Exception as error:  # whatever Pillow meets in a damaged file
                return refusal(path, error)
        return ""


class SharedMemory:
    """Memory of several processes without a name: the system frees it when the last of them has ended,
    however it ended."""

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        self.size = size
        self._descriptor = _unnamed(size) if descriptor is None else descriptor
        self.memory = mmap.mmap(self._descriptor, size)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self.size, DupFd(self._descriptor))

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)


def _unnamed(size: int) -> int:
    """A descriptor of so much memory. Not of /dev/shm, which is 64 MB small in many containers."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("aiperf-decoders")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _received(size: int, passed: Any) -> SharedMemory:
    """What unpickling a SharedMemory calls in the process that gets its descriptor."""
    return SharedMemory(size, passed.detach())


class Slots:
    """Requests and their pixels in shared memory. The process that trains writes a request, and those that
    decode write its pixels; the tickets in the pipes say whose turn it is."""

    def __init__(
        self, decoding: Decoding, number: int, images: int, shared: SharedMemory | None = None
    ) -> None:
        self._decoding, self.number, self.images = decoding, number, images
        pieces = -(-images // PIECE)
        request = np.dtype(
            [
                ("cancelled", np.bool_),
                ("folder", np.int64),
                ("draws", f"S{DRAWS_BYTES}"),
                ("labels", np.int64, images),
                ("places", np.int64, images),
                ("names", f"S{decoding.name_bytes}", images),
                ("failed", np.bool_, pieces),
                ("faults", f"S{FAULT_BYTES}", pieces),
            ]
        )
        shape = (number, images, decoding.size, decoding.size, decoding.channels)
        pixel_bytes = prod(shape)
        self._shared = shared or SharedMemory(pixel_bytes + number * request.itemsize)
        self.pixels = np.frombuffer(self._shared.memory, np.uint8, pixel_bytes).reshape(shape)
        self._requests = np.frombuffer(self._shared.memory, request, number, pixel_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Slots, (self._decoding, self.number, self.images, self._shared)

    def write(self, slot: int, request: DecodeRequest) -> NDArray[np.int32]:
        """Returns the tickets of a request (pieces, 4)."""
        assert len(request.draws) <= DRAWS_BYTES  # numpy would cut it
        images, written = len(request.labels), self._requests[slot]
        written["folder"], written["draws"] = request.folder, request.draws.encode()
        written["cancelled"] = written["failed"] = False
        for name in ("labels", "places", "names"):
            written[name][:images] = getattr(request, name)
        first = np.arange(0, images, PIECE, dtype=np.int32)
        tickets = np.full((len(first), 4), slot, np.int32)
        tickets[:, 1], tickets[:, 2] = first, np.minimum(first + PIECE, images)
        return tickets

    def cancel(self, slot: int) -> None:
        """Leaves nothing to decode in the pieces of a slot that no process has begun."""
        self._requests[slot]["cancelled"] = True

    def decode(self, slot: int, first: int, end: int) -> None:
        """Decodes one piece of a request."""
        request = self._requests[slot]
        if request["cancelled"]:
            return
        labels, places, names = (request[name][first:end] for name in ("labels", "places", "names"))
        piece = DecodeRequest(int(request["folder"]), names, labels, request["draws"].decode(), places)
        if fault := self._decoding.decode(piece, self.pixels[slot, first:end]):
            request["faults"][first // PIECE] = os.fsencode(fault)[:FAULT_BYTES]
            request["failed"][first // PIECE] = True

    def fault(self, slot: int) -> str:
        """The line on the first file of a request that could not be decoded; empty if all could."""
        request = self._requests[slot]
        failed = request["failed"]
        return os.fsdecode(request["faults"][failed.argmax()]) if failed.any() else ""


def serve(slots: Slots, tickets: Connection, done: Connection) -> None:
    """The whole life of a process that decodes: one piece after the other, until the other end is closed."""
    outlive()  # the closing validation still needs this process
    threading.Thread(target=end_with_parent, daemon=True).start()
    with suppress(BrokenPipeError):  # the other end was closed, or its process was killed
        while ticket := os.read(tickets.fileno(), TICKET.itemsize):
            slot, first, end, _ = np.frombuffer(ticket, np.int32).tolist()
            slots.decode(slot, first, end)
            os.write(done.fileno(), ticket)


def end_with_parent() -> None:
    """Ends this process at once, however the one that trains ends, also in the middle of a file."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
