"""What `validate` found here, kept so that a view of a long run need not recount.

It is this user's own file (`aiperf.host.user_cache`), so no finding of somebody else is ever believed.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np

from aiperf import __version__
from aiperf.errors import ConfigError
from aiperf.host.code import code_hash
from aiperf.host.user_cache import OwnFile
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.proposing.proposals import libraries
from aiperf.rules.rule import Finding
from nas.bounded import file_digest
from nas.frozen import frozen
from nas.record import RecordError, decode, encode


@frozen
class KeptValidation:
    """The findings on one state of one run, by one version of the program and of its libraries."""

    chain: str
    """Hash of the journal's last line, and through the chain of every line."""
    lines: int
    program: str
    code_hash: str
    libraries: Mapping[str, str]
    """Versions of what the findings depend on, besides this program."""
    files: str
    """SHA-256 over the logs, the weights and the private names that the rules read."""
    findings: tuple[Finding, ...]
    layers: Mapping[str, int]
    """Credited operations by kind of layer."""


def save(files: RunFiles, replay: Replay, findings: tuple[Finding, ...], layers: Mapping[str, int]) -> str:
    """Keeps the findings. Returns why they could not be kept, else an empty text.

    With a broken chain the last line vouches for none before it, so nothing is kept.
    """
    if replay.broken:
        return ""
    of, digest = _versions(replay), _digest(files, replay)
    chain, lines = replay.last_chain, replay.lines
    kept = KeptValidation(chain, lines, __version__, code_hash(), of, digest, findings, layers)
    return own_file(replay).keep(encode(kept))


def load(files: RunFiles, replay: Replay) -> KeptValidation | None:
    """What this user's `validate` found on exactly this run with exactly this program; None if nothing."""
    if replay.broken or (kept := decoded(own_file(replay))) is None:
        return None
    own = (replay.last_chain, replay.lines, code_hash(), _versions(replay))
    if (kept.chain, kept.lines, kept.code_hash, kept.libraries) != own:
        return None
    return kept if kept.files == _digest(files, replay) else None


def decoded(file: OwnFile) -> KeptValidation | None:
    """What a file states; None if there is none, or one of another version."""
    if (content := file.content()) is None:
        return None
    try:
        return decode(KeptValidation, content)
    except (ValueError, RecordError):
        return None


def own_file(replay: Replay) -> OwnFile:
    """The file for this state of this journal."""
    return OwnFile.at("findings", replay.last_chain, replay.lines, code_hash())


def _versions(replay: Replay) -> Mapping[str, str]:
    """What findings depend on besides this program: proposals are made again, and logarithms are numpy's."""
    here = {"python": platform.python_version(), "numpy": np.__version__}
    try:
        return here | dict(libraries(replay.opened.config))
    except ConfigError as error:  # of a search that is not installed: its rule says so
        return here | {"search": str(error)}


def _digest(files: RunFiles, replay: Replay) -> str:
    """A hash over the files that the rules read; a file that cannot be read counts with its error."""
    total = sha256()
    for path in _read_by_rules(files, replay):
        try:
            content = file_digest(path)
        except OSError as error:  # the rules report it
            content = str(error.errno)
        total.update(f"{path.name}\0{content}\0".encode())
    return total.hexdigest()


def _read_by_rules(files: RunFiles, replay: Replay) -> Iterator[Path]:
    """The files besides the journal that rules look at."""
    yield files.private
    yield from sorted(files.witnesses())
    if replay.best is not None:
        yield files.weights(replay.best.number)
