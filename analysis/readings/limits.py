"""The ceilings of devices, as measured by `peak` or by a run before its clock started."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiperf.config import FORMATS
from aiperf.errors import AiperfError
from aiperf.hardware.peak import peak_ops_per_second
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.journal.strict import once
from aiperf.os_error import unreadable
from aiperf.wire.reports import Rate
from aiperf.wording import percent, rate, scaled
from analysis.readings.robust import median
from analysis.table import aligned
from nas.bounded import read_bytes
from nas.frozen import frozen
from nas.record import RecordError, decode, encode

FORM = "aiperf-hpc/peak/1"


@frozen
class Limits:
    """The two ceilings of a roofline, of one device in one format."""

    device: str
    format: str
    ops_per_second: float
    """Ceiling of matrix products."""
    bytes_per_second: float
    """Ceiling of memory: bytes read and written."""


@frozen
class Record:
    """Rate of matrix products of one size in one format, in operations per second."""

    format: str
    side: int
    """Side of the square matrices; 0 for tall ones."""
    rate: Rate


@frozen
class Machine:
    """What `peak` measured."""

    device: str
    memory_bytes: int
    """Memory of the device."""
    software: Mapping[str, str]
    """Versions by name."""
    products: tuple[Record, ...]
    """By format and size, in the order of measurement."""
    copy: Rate
    """Bytes per second, read and written."""
    upload: Rate | None
    """Bytes per second from the host; None if the device has the host's memory."""
    form: str = FORM

    def fastest(self, format: str) -> Record | None:
        """None where the format was not measured."""
        found = [record for record in self.products if record.format == format]
        return max(found, key=lambda record: record.rate.fastest, default=None)

    def limits(self, formats: Sequence[str]) -> Limits:
        """The limits in the first of these formats that was measured.

        Raises AiperfError if none was measured, or if a rate is not a positive number.
        """
        product = next(filter(None, map(self.fastest, formats)), None)
        if product is None:
            measured = ", ".join(dict.fromkeys(record.format for record in self.products)) or "nothing"
            raise AiperfError(f"{' or '.join(formats)} was not measured, only {measured}; see --bytes")
        limits = Limits(self.device, product.format, product.rate.fastest, self.copy.fastest)
        if not all(0 < rate < math.inf for rate in (limits.ops_per_second, limits.bytes_per_second)):
            raise AiperfError(f"rates of {self.device} that are not positive numbers; measure again")
        return limits


def limits_of(run: Replay) -> Limits | None:
    """The median over the ranks in the last leg that measured; None if none did, or if its values are not
    possible."""
    ceilings = next((list(leg.ceilings.values()) for leg in reversed(run.counted_legs) if leg.ceilings), [])
    if not ceilings or ceilings[0].format not in FORMATS:
        return None
    products = median([ceiling.product.fastest for ceiling in ceilings])
    copies = median([ceiling.copy.fastest for ceiling in ceilings])
    if min(products, copies) <= 0:
        return None
    return Limits(ceilings[0].device, ceilings[0].format, products, copies)


def read_limits(path: Path, formats: Sequence[str]) -> Limits:
    """The limits in an output of `peak -o`, in the first of these formats that it has, or in the directory of
    a run, in the run's own format.

    Raises AiperfError for a path that is neither.
    """
    if path.is_dir():
        found = limits_of(replay(read_journal(RunFiles(path).journal)))
        if found is None:
            raise AiperfError(f"{path}: this run did not measure its devices; give the output of `peak -o`")
        return found
    try:
        record = json.loads(read_bytes(path), object_pairs_hook=once)
        machine = decode(Machine, record)
    except OSError as error:
        raise AiperfError(unreadable(error, path, "`aiperf-hpc peak -o FILE` writes such a file")) from None
    except (ValueError, RecordError, RecursionError) as error:
        raise AiperfError(f"{path} is not an output of `aiperf-hpc peak -o`: {error}") from None
    try:
        return machine.limits(formats)
    except AiperfError as error:
        raise AiperfError(f"{path}: {error}") from None


def machine_json(machine: Machine) -> str:
    """The output of `peak -o`, which `read_limits` reads."""
    return json.dumps(encode(machine), indent=1) + "\n"


def machine_text(machine: Machine) -> str:
    """One row per format and size; the fastest of a format is also compared with the listed peak."""
    rows = [["format", "side", "fastest", "typical", "spread", "of the listed peak"]]
    for record in machine.products:
        found, side = record.rate, f"{record.side:,}" if record.side else "tall"
        of_peak = _of_peak(machine, record) if machine.fastest(record.format) is record else ""
        rates = rate(found.fastest), rate(found.typical), percent(found.spread, 1)
        rows.append([record.format, side, *rates, of_peak])
    for name, moved in (("memory", machine.copy), ("from the host", machine.upload)):
        if moved is not None:
            speeds = (scaled(each, "B/s") for each in (moved.fastest, moved.typical))
            rows.append([name, "", *speeds, percent(moved.spread, 1), ""])
    notes = (
        "Square matrices of random numbers, multiplied; a multiply-accumulate is two operations. Memory:\n"
        "bytes read and written by a copy. Fastest and median of windows of some hundredths of a second."
    )
    return f"{machine.device}\n\n{aligned(rows)}\n\n{notes}\n"


def _of_peak(machine: Machine, record: Record) -> str:
    """The fastest rate as a share of the data sheet's."""
    listed = peak_ops_per_second(machine.device, record.format, machine.memory_bytes)
    return "not listed" if listed is None else f"{percent(record.rate.fastest / listed, 1)} of {rate(listed)}"
