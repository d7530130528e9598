"""What the device achieves at most in each format, by `aiperf-hpc peak`, compared with the list of peaks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from aiperf.hardware.peak import listed, peak_ops_per_second
from aiperf.journal.strict import once
from analysis.readings.limits import Machine
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, figures, row
from nas.record import decode, encode

SECONDS, SMALL_SECONDS = 40.0, 6.0
BEYOND = 1.02
"""Largest multiple of a listed peak: more means a wrong list, or a clock above the vendor's boost."""
LEAST_SHARE = 0.5
"""Least share of a listed peak: if a product of large matrices is slower, something slows the device down."""
FULL_FORMATS = ("bf16", "fp16")


def measure(setting: Setting) -> Figures:
    """More than the listed peak is a fault, and less than half of it in 16 bits."""
    machine = _measured(setting)
    rows, faults = [], []
    for format in dict.fromkeys(record.format for record in machine.products):
        best = machine.fastest(format)
        assert best is not None
        peak = peak_ops_per_second(machine.device, format, machine.memory_bytes)
        side = f"{best.side:,}²" if best.side else "tall"
        rows.append(row(f"{format} products, {side}", best.rate.fastest, "OPS", peak, "list of peaks"))
        rows.append(row(f"{format} products, typical", best.rate.typical, "OPS"))
        if peak and best.rate.fastest > BEYOND * peak:
            faults.append(f"{format}: more than the listed peak: look at the list and at the clocks")
        if peak and format in FULL_FORMATS and best.rate.fastest < LEAST_SHARE * peak:
            faults.append(f"{format}: less than half of the listed peak: look at power and clocks")
    rows.append(row("memory, read and written", machine.copy.fastest, "B/s"))
    if machine.upload is not None:
        rows.append(row("from the host, pinned", machine.upload.fastest, "B/s"))
    peak_of = listed(machine.device)
    source = f"listed peaks: {peak_of.source.document}" if peak_of else "this device has no listed peak"
    smaller = f"{SMALL_SECONDS:.0f} s in place of {SECONDS:.0f}" if setting.is_small else ""
    return figures(rows, faults=faults, notes=[source], smaller=smaller, peak=encode(machine))


def _measured(setting: Setting) -> Machine:
    """Runs `aiperf-hpc peak`, as a user does."""
    path = setting.folder / "peak.json"
    seconds = setting.sized(SECONDS, SMALL_SECONDS)
    command = [sys.executable, "-m", "aiperf", "peak", "--device", setting.kind]
    subprocess.run([*command, "--seconds", str(seconds), "-o", str(path)], check=True)
    return read(path)


def read(path: Path) -> Machine:
    """The output of `peak -o`."""
    return decode(Machine, json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once))
