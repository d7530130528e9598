"""Packing for tests: by the command in a process of its own, and here, in a thread."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aiperf.data.packed.packing import pack
from aiperf.data.packed.packing_plan import plan


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "aiperf", *map(str, words)]


def call(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=100)


def packed(source: Path, target: Path, side: int = 32) -> Path:
    """The same as the command, but for its processes."""
    planned = plan(source, target, side)
    assert planned is not None
    with ThreadPoolExecutor(1) as thread:
        pack(planned, thread, 1, lambda images: None)
    return target
