"""The description of a system, as a submission has it: read from a file, and completed by the user.

Its fields are those of MLPerf's system descriptions, so that a site need not describe a machine twice:
analysis/submissions/system.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from aiperf.commands.arguments import Whole
from aiperf.commands.messages import say_line
from aiperf.commands.user_files import reading
from aiperf.errors import AiperfError
from aiperf.journal import strict
from nas.bounded import read_bytes


def given_system(path: Path, known: Collection[str]) -> dict[str, str]:
    """A file with fields of a system description."""
    try:
        with reading(path, "`package --print-system` prints a template"):
            record: Any = strict.parsed(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise AiperfError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(record, dict):
        raise AiperfError(f"{path} is not a JSON object; `package --print-system` prints a template")
    if unknown := sorted(record.keys() - set(known)):
        raise AiperfError(f"{path}: unknown field {unknown[0]!r}; known: {', '.join(known)}")
    for name, value in record.items():
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise AiperfError(f'{path}: {name} is {json.dumps(value):.60}, not text; use "" for unknown')
    return {name: str(value).strip() for name, value in record.items()}


def complete(system: dict[str, str]) -> None:
    """Asks the user for missing fields. Without a terminal it raises AiperfError, but only for required
    fields."""
    from analysis.submissions.system import choices, fields

    missing = missing_fields(system)
    if not sys.stdin.isatty():
        if missing:
            lacking = ", ".join(_with_choices(name) for name in missing)
            raise AiperfError(
                f"the system description lacks {lacking}; add them to a file (`package "
                f"--print-system` prints a template) and give it with --system"
            )
        return
    say_line("System description. Press Return to skip an optional field.")
    for name, about in fields().items():
        if not system[name]:
            question = f"{name} ({about.rstrip('.')})"
            default = None if name in missing else ""
            system[name] = (
                _chosen(question, options)
                if (options := choices(name))
                else click.prompt(question, default=default, show_default=False)
            )


def missing_fields(system: Mapping[str, str]) -> list[str]:
    """Required fields that are empty."""
    from analysis.submissions.system import needed

    return [name for name in needed() if not system[name]]


def question_about(name: str) -> str:
    """The name of a field, its meaning, and the answers that it may have."""
    from analysis.submissions.system import choices, fields

    options = choices(name)
    one_of = f" One of: {'; '.join(options)}." if options else ""
    return f"{name}: {fields()[name]}{one_of}"


def _with_choices(name: str) -> str:
    """The name of a field with the answers that it may have."""
    from analysis.submissions.system import choices

    options = choices(name)
    return f"{name} (one of: {'; '.join(options)})" if options else name


def _chosen(question: str, options: Sequence[str]) -> str:
    """Asks for one of the options by its number, because an option may be a whole line."""
    click.echo("\n".join(f"  {number}  {option}" for number, option in enumerate(options, start=1)), err=True)
    return options[click.prompt(question, type=Whole(1, len(options)), err=True) - 1]
