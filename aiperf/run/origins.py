"""Checks that a run is resumed as it was started: with the same program and configuration, and measured, or
pretended under the same assumptions."""

from __future__ import annotations

from aiperf.code import code_hash
from aiperf.config import Config, load_preset
from aiperf.errors import ConfigError, JournalError
from aiperf.files import RunFiles
from aiperf.journal.events import Opened, Origin
from aiperf.journal.replay import Replay
from aiperf.os_error import unwritable
from aiperf.pretending.assumptions import Assumptions, assumed, assumptions_toml
from aiperf.proposing.proposals import libraries
from aiperf.ranks.ranks import Ranks


def write_assumptions(pretend: Assumptions | None, files: RunFiles) -> None:
    """Writes the assumptions of a run that pretends next to its journal, so that it can be repeated. Raises
    JournalError."""
    if pretend is None:
        return
    try:
        files.assumptions.write_text(assumptions_toml(pretend), encoding="utf-8")
    except OSError as error:
        raise JournalError(unwritable(error, files.assumptions)) from None


def refuse_other_origin(replay: Replay, ranks: Ranks, files: RunFiles) -> None:
    """Refuses to continue a measured run with pretending workers, a pretended one without, or with another
    machine model: figures of different origins cannot be added up. Raises ConfigError."""
    origin, pretend = replay.opened.origin, ranks.options.pretend
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


def refuse_other_program(opened: Opened, files: RunFiles) -> None:
    """Refuses a resume by another version of the program or of a library that proposes trials, because all
    proposals of a run must follow from one program. Raises JournalError."""
    if opened.code_hash != code_hash():
        raise JournalError(
            f"{files.journal} was started by another version of the program ({opened.program}, code "
            f"{opened.code_hash[:12]}); resume it with that version, or start a new run"
        )
    here = libraries(opened.config)
    if other := [f"{name} {was}" for name, was in opened.libraries.items() if here.get(name) != was]:
        raise JournalError(
            f"{files.journal}: its proposals depend on {', '.join(other)}; here it is "
            f"{', '.join(f'{name} {now}' for name, now in here.items())}; resume it with those"
        )


def refuse_edited(config: Config, files: RunFiles) -> None:
    """Refuses a run directory whose config.toml was edited after the start: the configuration is in the
    journal, so the change would silently have no effect. Raises ConfigError."""
    if files.config.exists() and load_preset(str(files.config)) != config:
        raise ConfigError(
            f"{files.config} was edited after the run started, but a run has one configuration; remove the "
            f"file to continue as before, or start a new run: aiperf-hpc run --preset {files.config}"
        )
