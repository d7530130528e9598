"""The processes that pack: each decodes files into their places in a shard."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from aiperf.data.decode import decode_whole
from aiperf.data.decoders import server
from aiperf.data.decoding_process import end_with_parent
from aiperf.errors import DataError
from aiperf.scheduler_warning import outlive


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
    shard = os.open(path, os.O_WRONLY)
    try:
        content, written = memoryview(pixels.data).cast("B"), 0
        while written < len(content):
            written += os.pwrite(shard, content[written:], offset + written)
    finally:
        os.close(shard)
    return len(files), ""


def _begin() -> None:
    outlive()
    threading.Thread(target=end_with_parent, daemon=True).start()
