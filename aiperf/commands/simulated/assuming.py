"""The assumptions that the user chose: by a machine's name or a file, with changes of single numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from aiperf.config import parse_setting
from aiperf.errors import ConfigError
from aiperf.pretending.assumptions import Assumptions, assumed
from nas.record import RecordError, decode

DEFAULT = "h100"


def chosen(words: Sequence[str], otherwise: Assumptions | None = None) -> Assumptions:
    """The assumptions that these words state; `otherwise` is used without a name. Raises ConfigError."""
    names = [word for word in words if "=" not in word]
    if len(names) > 1 or (names and otherwise is not None):
        several = " and ".join([*(["what --calibrate found"] if otherwise is not None else []), *names])
        raise ConfigError(
            f"--assume: {several}; give one name or file; write single numbers as PART.NAME=NUMBER"
        )
    found = otherwise or assumed(names[0] if names else DEFAULT)
    for word in words:
        if "=" in word:
            found = _with(found, word)
    return found


def _with(assumptions: Assumptions, setting: str) -> Assumptions:
    """The assumptions with one number changed, which their name then includes."""
    key, value = parse_setting(setting)
    part, _, name = key.partition(".")
    record: dict[str, Any] = asdict(assumptions)
    if not isinstance(record.get(part), dict) or name not in record[part]:
        known = [
            f"{one}.{each}" for one, inner in record.items() if isinstance(inner, dict) for each in inner
        ]
        raise ConfigError(f"--assume {setting}: unknown key {key}; known: {', '.join(known)}")
    record[part][name] = value
    record["name"] = f"{assumptions.name}, {key} = {value}"
    try:
        return decode(Assumptions, record)
    except (ValueError, RecordError) as error:
        raise ConfigError(f"--assume {setting}: {error}") from None
