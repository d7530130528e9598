"""Whether the shards are what their manifest says, byte by byte."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aiperf.data.packed.shards import Packed, Shard, wrong_size
from nas.bounded import file_digest


def damaged(folder: Path, packed: Packed, threads: int, show: Callable[[int], object]) -> list[str]:
    """A line for each shard that is missing or damaged; `show` is given the images that were looked at."""

    def look(shard: tuple[str, Shard]) -> str:
        return fault(folder / shard[0], packed, shard[1])

    told, seen = list[str](), 0
    with ThreadPoolExecutor(threads) as pool:
        for (_, shard), line in zip(packed.shards, pool.map(look, packed.shards)):
            seen += shard.images
            show(seen)
            told += [line] if line else []
    return told


def fault(path: Path, packed: Packed, shard: Shard) -> str:
    """What is wrong with a shard; empty where it is whole and its SHA-256 right."""
    if told := wrong_size(path, packed, shard):
        return told
    try:
        found = file_digest(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return "" if found == shard.sha256 else f"{path}: is damaged: its SHA-256 does not match the manifest"
