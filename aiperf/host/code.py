"""A hash of the program's own source, by which all ranks are known to run the same program."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

import aiperf
import nas

SOURCES = (".py", ".c", ".h")


@cache
def code_hash() -> str:
    """SHA-256 over the names and contents of all source files of `aiperf` and `nas`."""
    total = sha256()
    for package in (aiperf, nas):
        folder = Path(package.__path__[0])
        for path in sorted(path for path in folder.rglob("*") if path.suffix in SOURCES):
            total.update(f"{package.__name__}/{path.relative_to(folder)}\0".encode())
            total.update(sha256(path.read_bytes()).digest())
    return total.hexdigest()
