"""An image folder to shards: decoded by many processes, restartable, each shard whole or not there."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np

from aiperf.data.decode import decode_whole
from aiperf.data.decoders import server
from aiperf.data.decoding_process import end_with_parent
from aiperf.data.packed.packing_plan import (
    PackingPlan,
    PackingRecord,
    PlannedShard,
    with_finished,
    with_undamaged,
)
from aiperf.data.packed.shards import PACKING, Packed, Shard, alone, to_disk, write_manifest
from aiperf.errors import DataError
from aiperf.host.scheduler_warning import outlive
from aiperf.os_error import unwritable
from aiperf.wording import first_few
from nas.bounded import file_digest

PIECE = 32
"""Images that a process decodes at a time: some hundredths of a second."""
AHEAD = 4
"""Pieces for each process that wait for it."""
HASHERS = 4
"""Threads that hash finished shards and wait until they are on the disk."""


def pack(
    plan: PackingPlan, processes: Executor, workers: int, show: Callable[[int], object]
) -> Packed | None:
    """Makes the shards that are not there yet, then the manifest. `show` is given the images done so far.

    The target is looked at again, because another packing may have written there since the plan was made;
    returns None if it has made all. Raises DataError, which names the files that cannot be decoded once all
    other shards are made: with these replaced, the next call makes only theirs.
    """
    try:
        with alone(plan.target, f"{plan.target}: another `data pack` is running there; wait until it ends"):
            now = with_finished(plan)
            if now is None:
                return None
            return _packed(with_undamaged(now, HASHERS), processes, workers, show)
    except OSError as error:
        reason = unwritable(error, error.filename or plan.target, "fix this")
        raise DataError(f"{reason}, then run the same command to continue") from None
    except BrokenProcessPool:
        raise DataError(
            "a packing process was killed, perhaps because memory ran out; run the same command with fewer "
            "--processes to continue"
        ) from None


def _packed(plan: PackingPlan, processes: Executor, workers: int, show: Callable[[int], object]) -> Packed:
    """Packs what is left. The record goes last: a packing that is killed before can be continued."""
    with closing(PackingRecord(plan.target / PACKING)) as record:
        hashes = plan.finished | _made(plan, processes, workers, record, show)
        train, test = (
            tuple(Shard(shard.images, hashes[shard.name]) for shard in part) for part in plan.parts
        )
        bare = plan.result
        packed = replace(bare, train=replace(bare.train, shards=train), test=replace(bare.test, shards=test))
        write_manifest(plan.target, packed)
        record.remove()
    return packed


def _made(
    plan: PackingPlan, processes: Executor, workers: int, record: PackingRecord, show: Callable[[int], object]
) -> dict[str, str]:
    """SHA-256 of the shards that were made, by name."""
    left = {shard.name: -(-shard.images // PIECE) for shard in plan.left}  # pieces that are not decoded
    done, faults = plan.images_finished, list[str]()
    hashes, decoding = dict[str, Future[str]](), dict[Future[tuple[int, str]], PlannedShard]()
    pieces = _pieces(plan)
    # In threads, because they wait for the disk while the processes decode.
    with futures.ThreadPoolExecutor(HASHERS) as hashers:
        while True:
            while len(decoding) < AHEAD * workers and (piece := next(pieces, None)) is not None:
                decoding[processes.submit(piece[1])] = piece[0]
            if not decoding:
                break
            for future in futures.wait(decoding, return_when=futures.FIRST_COMPLETED).done:
                shard, (images, line) = decoding.pop(future), future.result()
                done += images
                show(done)
                if line:
                    faults.append(line)
                    continue  # one of its pieces stays left, so its shard is not finished
                left[shard.name] -= 1
                if not left[shard.name]:
                    hashes[shard.name] = hashers.submit(_finish, plan, shard, record)
            if any(future.done() and future.exception() for future in hashes.values()):
                break  # its fault is raised below, now and not after all other shards
    made = {name: future.result() for name, future in hashes.items()}
    if faults:
        raise DataError(first_few(faults))
    return made


def _pieces(plan: PackingPlan) -> Iterator[tuple[PlannedShard, Callable[[], tuple[int, str]]]]:
    """Shard by shard. The file of a shard has its whole length before its first piece is written."""
    side, channels = plan.result.side, plan.result.channels
    for shard in plan.left:
        path = plan.target / shard.unfinished
        with path.open("wb") as file:
            file.truncate(shard.images * plan.result.image_bytes)
        for first in range(shard.first, shard.stop, PIECE):
            files = [shard.listing.path(index) for index in range(first, min(first + PIECE, shard.stop))]
            offset = (first - shard.first) * plan.result.image_bytes
            yield shard, partial(decode_into, str(path), offset, files, channels, side)


def _finish(plan: PackingPlan, shard: PlannedShard, record: PackingRecord) -> str:
    """The SHA-256 of a whole shard, which is on the disk before it has its name and stands in the record."""
    target = plan.target
    unfinished = target / shard.unfinished
    to_disk(unfinished)
    digest = file_digest(unfinished)
    if plan.expected.get(shard.name, digest) != digest:
        raise DataError(
            f"{target / shard.name}: packed again, it differs from the manifest, because source files were "
            f"changed; remove the folder and pack again"
        )
    unfinished.rename(target / shard.name)
    to_disk(target)
    record.add(json.dumps({"shard": shard.name, "source": shard.source, "sha256": digest}))
    return digest


def packing_processes(processes: int) -> ProcessPoolExecutor:
    """Processes that outlive Ctrl-C, for the one that started them ends them, and never outlive that one."""
    return ProcessPoolExecutor(processes, mp_context=server(__name__), initializer=_begin)


def decode_into(path: str, offset: int, files: Sequence[str], channels: int, side: int) -> tuple[int, str]:
    """Decodes files into the shard at `path`, from this byte on. Returns how many were decoded, and a line on
    the first that could not be; then nothing is written."""
    pixels = np.empty((len(files), side, side, channels), np.uint8)
    for index, file in enumerate(files):
        try:
            pixels[index] = decode_whole(file, channels, side)
        except DataError as error:
            return index, str(error)
    # Without a lock: several processes write into a shard at once, each into its own place.
    shard = os.open(path, os.O_WRONLY)
    try:
        content, written = memoryview(pixels.data).cast("B"), 0
        while written < len(content):
            written += os.pwrite(shard, content[written:], offset + written)
    finally:
        os.close(shard)
    return len(files), ""


def _begin() -> None:
    """What a packing process does before its first piece."""
    outlive()
    threading.Thread(target=end_with_parent, daemon=True).start()
