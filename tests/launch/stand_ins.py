"""Programs of a machine that the tests write themselves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, programs: Mapping[str, str]) -> None:
    """Puts programs, by their names, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in programs.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
