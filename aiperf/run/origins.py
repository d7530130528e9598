"""Whether a run goes on as it was begun: measured, or pretended by the same assumptions."""

from __future__ import annotations

from aiperf.errors import ConfigError, JournalError
from aiperf.files import RunFiles
from aiperf.journal.events import Origin
from aiperf.journal.replay import Replay
from aiperf.pretending.assumptions import Assumptions, assumed, assumptions_toml
from aiperf.ranks.ranks import Ranks


def write_assumptions(pretend: Assumptions | None, files: RunFiles) -> None:
    """Beside the journal of a run that pretends, so that it can be repeated. Raises JournalError."""
    if pretend is None:
        return
    try:
        files.assumptions.write_text(assumptions_toml(pretend), encoding="utf-8")
    except OSError as error:
        raise JournalError(f"{files.assumptions} cannot be written: {error.strerror}") from None


def refuse_other_origin(replay: Replay, ranks: Ranks, files: RunFiles) -> None:
    """What was measured and what was pretended have no sum, and the errors of one assumed machine are no test
    of what was found on another. Raises ConfigError."""
    origin, pretend = replay.opened.origin, ranks.wanted.pretend
    if origin is not Origin.PRETENDED and pretend is not None:
        raise ConfigError(
            f"{files.journal} belongs to a run that was {origin.value}; resume it without --pretend"
        )
    if origin is not Origin.PRETENDED:
        return
    go_on = f"resume it with --pretend {files.assumptions}"
    if pretend is None:
        raise ConfigError(f"{files.journal}: its workers pretended to train; {go_on}")
    if assumed(str(files.assumptions)) != pretend:
        raise ConfigError(f"{files.journal}: its workers pretended with another machine model; {go_on}")
