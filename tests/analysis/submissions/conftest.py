"""Notaries of this folder wait for no disk."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def no_disk() -> Iterator[None]:
    """To wait for one takes most of a notary's time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda file: None)
        yield
