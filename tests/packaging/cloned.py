"""The repository as a person would clone it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.house.tree import ROOT, files


def cloned(folder: Path) -> Path:
    """The repository's files in this folder, and nothing that was made from them."""
    for path in files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / path)
    return folder
