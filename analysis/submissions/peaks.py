"""Peaks that the operator of a list adds for devices that this program does not list yet."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path

from aiperf import toml
from aiperf.errors import AiperfError
from aiperf.hardware.device_names import reads_like, refused_letters
from aiperf.hardware.peak import PEAKS, Peak, Source, listed
from aiperf.os_error import unreadable
from nas.bounded import read_text
from nas.frozen import frozen
from nas.record import RecordError, decode

LEAST_SOURCE = 10
"""Minimum number of characters of a source: a title and a year."""


@frozen
class GivenPeak:
    """The table of one device; its name is the name of the table."""

    source: str
    """The vendor's document: title, year, table."""
    fp32: float | None = None
    """Dense operations per second / 10^12, with accumulation in fp32; likewise in the other formats."""
    tf32: float | None = None
    bf16: float | None = None
    fp16: float | None = None
    memory_gib: float | None = None
    """Memory of the device in GiB."""

    def __post_init__(self) -> None:
        figures = {name: getattr(self, name) for name in ("fp32", "tf32", "bf16", "fp16")}
        given = {name: figure for name, figure in figures.items() if figure is not None}
        if not given:
            raise ValueError("it has no figure; give fp32, tf32, bf16 or fp16")
        if self.memory_gib is not None:
            given["memory_gib"] = self.memory_gib
        for name, figure in given.items():
            if not 0 < figure < inf:
                raise ValueError(f"{name} is {figure}; it must be above 0")
        if len(self.source.strip()) < LEAST_SOURCE:
            raise ValueError("source must name the vendor's document, its year and table")


def read_peaks(path: Path) -> Mapping[str, Peak]:
    """The devices in a TOML file, one table per device. Raises AiperfError, which names file and device."""
    try:
        tables = toml.parsed(read_text(path, toml.LARGEST_BYTES))
    except OSError as error:
        raise AiperfError(unreadable(error, path, "give a TOML file with peaks")) from None
    except (ValueError, RecursionError) as error:
        raise AiperfError(f"{path}: {error}") from None
    return {name: _peak(name, table, f"{path}, {name!r:.80}") for name, table in tables.items()}


def _peak(name: str, table: object, where: str) -> Peak:
    """The peak of a device that its table gives. Raises AiperfError for a device that is listed or whose name
    looks like a listed one: a list must not give one device two peaks."""
    if listed(name) is not None:
        raise AiperfError(f"{where}: this program lists the device already; omit it")
    if letters := refused_letters(name):
        raise AiperfError(f"{where}: the name contains {letters[0]}, which looks like another letter")
    if other := next((known for known in PEAKS if reads_like(name, known)), None):
        raise AiperfError(f"{where}: the name looks like {other}, but differs from it")
    try:
        given = decode(GivenPeak, table)
    except (ValueError, RecordError) as error:
        raise AiperfError(f"{where}: {error}") from None
    source = Source(given.source, None)
    return Peak(given.fp32, given.tf32, given.bf16, given.fp16, source, given.memory_gib)
