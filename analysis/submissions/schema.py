"""The published JSON Schemas, and the check of a value against one."""

from __future__ import annotations

import json
import reprlib
from functools import cache
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from aiperf.errors import AiperfError

LONGEST_MESSAGE = 160
"""Most characters of the library's message in a line for the user."""


class SchemaError(AiperfError):
    """A value that its schema does not allow."""


@cache
def schema(name: str) -> dict[str, Any]:
    """`name`: result-1, package-1 or system-1."""
    text = (resources.files("analysis.submissions") / "schemas" / f"{name}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def check(name: str, value: Any, where: str) -> None:
    """Raises SchemaError, which names `where`, the field and what is wrong with it."""
    error: ValidationError | None = best_match(Draft202012Validator(schema(name)).iter_errors(value))
    if error is None:
        return
    path, message = ".".join(str(part) for part in error.absolute_path), error.message
    if len(message) > LONGEST_MESSAGE:  # it has the whole value in it
        cut = reprlib.Repr()
        cut.maxother = cut.maxstring = 60
        message = f"{cut.repr(error.instance)} fails {error.validator}"
    raise SchemaError(f"{where}{': ' + path if path else ''}: {message}")
