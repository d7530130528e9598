"""Hides the fields of a journal's lines when they are written (`aiperf.journal.hidden` has their names)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiperf.host.secret_shapes import without_secrets
from aiperf.journal.hidden import changed
from aiperf.journal.hidden_text import TextHider, learn_this_process
from aiperf.journal.names import PrivateFile

LEARNT = ("host", "job")
"""Kinds of field whose values are looked for in texts from then on."""
_NAMED_SETTINGS = {"job": "job", "container": "image"}
"""Settings of the form "Slurm 4711", whose first word is shown."""


class Hider:
    """Hides the fields of lines that are written."""

    def __init__(self, file: PrivateFile, environment: Mapping[str, str]) -> None:
        self.file = file
        self._texts = TextHider(self._commit)
        learn_this_process(self._texts, environment)
        for kind, value in file.known():  # of a run that goes on
            self._texts.learn(kind, value)

    def hidden(self, record: dict[str, Any]) -> dict[str, Any]:
        """The line as it is written. Raises OSError if a new value cannot be written to the private file."""
        return changed(record, self._change)

    def _change(self, holds: str, value: Any) -> Any:
        if holds in ("text", "folder"):
            return self._texts.text(value) if holds == "text" else self._texts.folder(value)
        if holds == "command":
            return self._texts.command(tuple(value))
        if holds == "settings":
            return {name: self._setting(name, text) for name, text in value.items()}
        if holds == "process":
            return self.file.commit(holds, value)
        if holds == "path":
            self._texts.learn("path", value)
        return value and self._commit(holds, value)

    def _setting(self, name: str, text: str) -> str:
        kind, _, rest = without_secrets(text).partition(" ")
        if name in _NAMED_SETTINGS and rest:
            return f"{kind} {self._commit(_NAMED_SETTINGS[name], rest)}"
        return self._texts.text(text)

    def _commit(self, kind: str, value: str) -> str:
        if kind in LEARNT:
            self._texts.learn(kind, value)
        return str(self.file.commit(kind, value))
