"""OUT/device.json: what was measured so far, written whole after each part."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from benchmarks.on_device.rows import row

FORM = "aiperf-hpc/device/2"
DONE, FAILED, UNFINISHED = "done", "failed", "unfinished"
ROW = row("", None)


class StateError(ValueError):
    """A folder whose figures cannot be continued here."""


@dataclass
class Measured:
    """The figures of one folder."""

    folder: Path
    settings: dict[str, Any]
    """Settings that all parts have in common: kind of device, seconds of a run."""
    identity: dict[str, str] = field(default_factory=dict)
    """Device, driver, versions, program: as the first part saw them."""
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Parts by name: state, began, seconds, figures, error."""

    @property
    def json(self) -> Path:
        return self.folder / "device.json"

    @property
    def text(self) -> Path:
        return self.folder / "device.txt"

    def state(self, part: str) -> str:
        """State of a part; empty if it was not begun."""
        return str(self.parts.get(part, {}).get("state", ""))

    def record(self) -> dict[str, Any]:
        """What is written as JSON."""
        return {"form": FORM, "settings": self.settings, "identity": self.identity, "parts": self.parts}

    def save(self, page: str) -> None:
        """Both files, each replaced as a whole."""
        replace(self.json, json.dumps(self.record(), indent=1, allow_nan=False) + "\n")
        replace(self.text, page)

    def identify(self, identity: dict[str, str]) -> None:
        """Raises StateError where figures of another device or program lie there."""
        for name in {**self.identity, **identity} if self.identity else ():
            had, has = self.identity.get(name, "none"), identity.get(name, "none")
            if had != has:
                raise StateError(
                    f"{self.json} is of {name} {had!r}, this is {has!r}; give another --out, or --again all"
                )
        self.identity = identity


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Holds a lock, so that one call at a time measures in the folder; its file is never removed.

    Raises StateError if another call is at work, or if the file cannot be locked.
    """
    path = folder / "device.lock"
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise StateError(
                f"another call is at work in {folder}; wait for it, or give another --out"
            ) from None
        except OSError as error:
            raise StateError(
                f"{path} cannot be locked ({error.strerror}); give an --out on a local disk"
            ) from None
        # Where this process is killed, the one that then ends the part holds the lock until it has.
        os.set_inheritable(file.fileno(), True)
        yield


def opened(folder: Path, settings: dict[str, Any]) -> Measured:
    """The figures in the folder; none if it has no file of figures.

    Raises StateError for another program's file, a damaged one, or one of other settings.
    """
    new = Measured(folder, settings)
    if not new.json.exists():
        return new
    try:
        text = new.json.read_text(encoding="utf-8")
        record = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (OSError, ValueError, RecursionError) as error:
        raise StateError(f"{new.json} cannot be read ({error}); give another --out") from None
    if not isinstance(record, dict) or record.get("form") != FORM:
        raise StateError(f"{new.json} is not of the form {FORM}; give another --out")
    if fault := _fault(record, settings):
        raise StateError(f"{new.json}: {fault}; restore it, or give another --out")
    for name, value in record["settings"].items():
        if settings[name] != value:
            raise StateError(
                f"{new.json} was measured with {name} {value}, not {settings[name]}; "
                f"give --{name.split('_')[0]} {value}, or another --out"
            )
    return Measured(folder, settings, record["identity"], record["parts"])


def _fault(record: dict[str, Any], settings: dict[str, Any]) -> str:
    """What is wrong with the structure of a file of figures; empty if nothing is."""
    had, identity, parts = (record.get(name) for name in ("settings", "identity", "parts"))
    if not isinstance(had, dict) or had.keys() != settings.keys():
        return f"its settings are not {' and '.join(settings)}"
    if not identity or not _has(identity, dict) or not _has(list(identity.values()), list, str):
        return "its identity is not of names and texts"
    if not _has(parts, dict):
        return "its parts are not by name"
    return next((f"its part {name} is damaged" for name, part in parts.items() if not _is_part(part)), "")


TEXTS = ("title", "began", "error")
"""Keys of a part that are texts."""


def _is_part(part: object) -> bool:
    """Whether it has what the page reads: a file may have been edited."""
    if not isinstance(part, dict) or part.get("state") not in (DONE, FAILED, UNFINISHED):
        return False
    figures, seconds = part.get("figures"), part.get("seconds")
    if not _has([part.get(name) for name in TEXTS], list, str) or not isinstance(seconds, int | float):
        return False
    return figures is None or (isinstance(figures, dict) and _are_figures(figures))


def _are_figures(figures: dict[str, Any]) -> bool:
    """Whether they have rows, notes, faults, what is slow, and both texts."""
    texts = [figures.get("smaller"), figures.get("left_out")]
    lists = all(_has(figures.get(name), list, str) for name in ("notes", "faults", "slow"))
    rows = figures.get("rows")
    return lists and _has(texts, list, str) and _has(rows, list, dict) and all(map(_is_row, rows))


def _is_row(found: dict[str, Any]) -> bool:
    """Whether it has the keys and types of `rows.row`."""
    if found.keys() != ROW.keys() or not _has([found[name] for name in ("what", "unit", "by")], list, str):
        return False
    values = all(isinstance(found[name], str | int | float | None) for name in ("found", "expected"))
    numbers = (found[name] for name in ("ratio", "watts", "hertz"))
    return values and all(isinstance(number, int | float | None) for number in numbers)


def _has(value: Any, kind: type, each: type = object) -> bool:
    """Whether a container is of type `kind`, and all its members of type `each`."""
    return isinstance(value, kind) and all(isinstance(one, each) for one in value)


def _finite(text: str) -> float:
    """A number of the file. Raises ValueError for one that is not finite, which JSON does not know."""
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def replace(path: Path, text: str) -> None:
    """Writes a file so that it is never half written."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)
