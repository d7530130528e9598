"""Which share of its ceiling a run usually reaches: measured runs on machines of the same kind.

The table that comes with the program holds our own measured runs. A site adds its own in a file of the same
form, `references.toml` in the current folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aiperf import toml
from aiperf.errors import ConfigError
from aiperf.journal.replay import Replay
from aiperf.os_error import unreadable
from aiperf.wire.formats import AUTO
from aiperf.wire.reports import Processor
from aiperf.wording import percent
from analysis.readings.run_tables import changed_settings
from nas.bounded import read_text
from nas.frozen import frozen
from nas.record import RecordError, decode

STANDS_FOR = {"own": "digits"}
"""A preset of which nothing is usual, because its images are a user's, and the one that has the same seed."""
OWN = Path("references.toml")
"""A site's own references, in the current folder."""
INSTRUCTIONS = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512 with bf16", "avx512f": "AVX-512", "avx2": "AVX2"}
"""Flags of x86 processors by which their kinds are distinguished, from the fastest to the slowest."""


@frozen
class Reference:
    """Runs of one preset on one kind of machine."""

    preset: str
    """Name of the preset."""
    kind: str
    """As `kind_of_machine` names it."""
    minutes: float
    """Length of the span: a search needs time to grow its networks, so a shorter run reaches less."""
    least: float
    """Lowest share of the ceiling that one of them reached, 0 to 1."""
    greatest: float
    runs: int
    """Number of runs."""
    processor: str
    """Model of the processor or device."""
    commit: str
    """Commit of the program that was measured."""
    date: str
    conditions: str
    """What else is worth knowing, such as how quiet the machine was."""

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.greatest <= 1:
            raise ConfigError(
                f"least is {self.least}, greatest is {self.greatest}; both are shares of the ceiling"
            )
        if self.runs < 1:
            raise ConfigError(f"runs is {self.runs}; it must be at least 1")


@frozen
class _Table:
    """A file of references."""

    reference: tuple[Reference, ...]


def kind_of_machine(replay: Replay) -> str:
    """ "2 processors with AMX", or "8 × NVIDIA H200"; empty if the ranks are not all alike."""
    devices = list(replay.devices.values())
    kinds = {_kind(each.processor) if each.processor else each.device for each in devices}
    if len(kinds) != 1 or not (kind := kinds.pop()):
        return ""
    processors = {each.host: each.processor.logical for each in devices if each.processor}
    if processors:
        return f"{sum(processors.values())} processors with {kind}"
    return f"{len(devices)} × {kind}"


def _kind(processor: Processor) -> str:
    """The fastest instruction set of a processor that tells kinds apart; empty for another architecture."""
    return next((name for flag, name in INSTRUCTIONS.items() if flag in processor.flags), "")


def references() -> Sequence[Reference]:
    """Those of the current folder, then those of the program. Raises ConfigError."""
    # Not by `importlib.resources`, which imports the readers of archives.
    shipped = Path(__file__).with_name("references.toml").read_text(encoding="utf-8")
    found = _read(shipped, "references.toml of the program")
    if not OWN.is_file():
        return found
    try:
        return [*_read(read_text(OWN, toml.LARGEST_BYTES), str(OWN)), *found]
    except OSError as error:
        raise ConfigError(unreadable(error, OWN, "correct or remove it")) from None


def usual_text(replay: Replay) -> str:
    """ "9.8 to 12.1 % is usual for 2 minutes of digits on 2 processors with AMX (n = 5)"; if only runs of
    another length or with other settings are known, or of the preset that stands for this one, "for
    comparison, …"; empty without a reference. Raises ConfigError for a broken file of the site."""
    kind, config = kind_of_machine(replay), replay.opened.config
    preset, minutes = config.preset, config.limits.minutes
    presets = (preset, STANDS_FOR.get(preset, preset))
    alike = [each for each in references() if each.kind == kind and each.preset in presets]
    if not alike:
        return ""
    found = min(alike, key=lambda each: (each.preset != preset, abs(each.minutes - minutes)))
    shares = f"{percent(found.least, 1).removesuffix(' %')} to {percent(found.greatest, 1)}"
    about = f"{found.minutes:g} minutes of {found.preset} on {kind} (n = {found.runs})"
    is_same = (found.preset, found.minutes) == (preset, minutes) and _as_its_preset(replay)
    return f"{'' if is_same else 'for comparison, '}{shares} is usual for {about}"


def _as_its_preset(replay: Replay) -> bool:
    """Whether a run trains what its preset trains, and was not ended before its deadline: networks of another
    size reach another share, and so do those of the first seconds."""
    changed = [
        name
        for name, usual in changed_settings(replay.opened.config).items()
        if usual != AUTO and name != "random_seed" and not name.startswith("limits.")
    ]
    ended = replay.leg.ended if replay.legs else None
    return not changed and (ended is None or ended.reason == "deadline")


def _read(text: str, where: str) -> Sequence[Reference]:
    """The references in a file. Raises ConfigError, which names `where`."""
    try:
        return decode(_Table, toml.parsed(text)).reference
    except (ValueError, RecursionError, RecordError, ConfigError) as error:
        raise ConfigError(f"{where}: {error}; correct or remove it") from None
