"""What `validate` found, kept next to the journal, so that a report of a long run need not recount."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from aiperf import __version__
from aiperf.code import code_hash
from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from aiperf.journal import strict
from aiperf.journal.replay import Replay
from aiperf.os_error import unwritable
from aiperf.rules.rule import Finding
from nas.bounded import read_bytes
from nas.record import RecordError, decode, encode


@dataclass(frozen=True)
class KeptValidation:
    """The findings on one state of one journal, by one version of the program."""

    chain: str
    """Hash of the journal's last line."""
    lines: int
    program: str
    code_hash: str
    findings: tuple[Finding, ...]
    layers: Mapping[str, int]
    """Credited operations by kind of layer."""


def save(files: RunFiles, replay: Replay, findings: tuple[Finding, ...], layers: Mapping[str, int]) -> None:
    """Writes the findings. Raises AiperfError if the directory cannot be written."""
    kept = KeptValidation(replay.last_chain, replay.lines, __version__, code_hash(), findings, layers)
    try:
        files.validation.write_text(json.dumps(encode(kept), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise AiperfError(unwritable(error, files.validation, "copy the run")) from None


def load(files: RunFiles, replay: Replay) -> KeptValidation | None:
    """The findings on exactly this journal by exactly this program; None if there are none."""
    try:
        kept = decode(KeptValidation, strict.parsed(read_bytes(files.validation)))
    except (
        OSError,
        ValueError,
        RecordError,
        RecursionError,
    ):  # absent, unreadable or of another version: it is made anew
        return None
    own = (replay.last_chain, replay.lines, code_hash())
    return kept if (kept.chain, kept.lines, kept.code_hash) == own else None
