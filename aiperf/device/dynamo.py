"""Loading torch's compiler, which torch imports for a group of ranks and for operators that are written in
Python, whether a step is compiled or not.

This import creates the folder of inductor's cache and writes its path into the environment. By default it is
a folder in TMPDIR whose name anybody can guess: another user who had put a file there would end every run,
and every run would leave the folder behind. An engine that compiles chooses its own folder.
"""

from __future__ import annotations

import os
from importlib import import_module

from aiperf.host import variables

CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""Variable with the folder of inductor's cache. Inductor loads code from it without a look at its owner, and
its default is a folder in /tmp whose name anybody can guess."""
_EXISTS = os.sep
"""A folder that need not be created, and in which nothing is written by the import."""


def load_dynamo() -> None:
    """Imports it, and leaves file system and environment as they were. To be called before torch
    does it."""
    stated = variables.raw(os.environ, CACHE)
    os.environ[CACHE] = _EXISTS
    try:
        import_module("torch._dynamo")
    finally:
        if stated is None:
            del os.environ[CACHE]
        else:
            os.environ[CACHE] = stated
