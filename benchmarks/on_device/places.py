"""The same work on another device than the first: by its index, by its UUID, on a MIG slice. Device 0 must
stay untouched: no context, no memory."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from aiperf.device import Device, bind, count_devices
from aiperf.device.device import TRAINING
from aiperf.engines.engine import Engine
from aiperf.engines.graphed import Graphed
from aiperf.host import variables
from aiperf.measuring.precision import used_formats
from benchmarks.on_device.meter import Meter
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.process import ROOT, environment
from benchmarks.on_device.rows import Figures, Row, figures, row
from benchmarks.on_device.trials import Trials, generated
from nas.seeds import residual

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Takes indices, UUIDs and the UUIDs of MIG slices: CUDA programming guide, "CUDA Environment Variables"."""
MIG = re.compile(r"\(UUID: (MIG-[^)]+)\)")
"""A slice in the list of `nvidia-smi -L`."""
BATCH, STEPS = 50, 40
TIMEOUT_SECONDS = 120.0
MOST_BYTES = 64 << 20
"""Growth of the memory of device 0 above which it was touched: a context takes 300 MB and more."""


@dataclass(frozen=True)
class Worked:
    """What a process found on its device."""

    told: str
    faults: list[str]
    identity: str
    first_bytes: int | None
    """Memory in use on the first device of the host after the work; None if it is unknown."""


def measure(setting: Setting) -> Iterator[Figures]:
    """Work that fails elsewhere, another device than the one that was named, and a touched device 0 are
    faults."""
    rows, faults = list[Row](), list[str]()
    here = _worked(bind(setting.kind, 0))
    rows.append(row("device 0", here.told))
    faults += [f"device 0: {fault}" for fault in here.faults]
    notes = [
        f"Each: formats, {STEPS} steps of a trial that a thread has prepared, sensors.",
        f"All parts on another device or slice: {VISIBLE}=UUID python benchmarks/device.py --out ANOTHER",
    ]
    found = figures(rows, faults=faults, notes=notes)
    yield found
    count, identity = count_devices(setting.kind), bind(setting.kind, 0).identity
    places: dict[str, tuple[int, Mapping[str, str]] | str] = {
        "device 1": (1, {}) if count > 1 else f"{count} {setting.kind} device is visible",
        "by UUID": _by_uuid(setting.kind, identity),
        "on a MIG slice": _by_slice(setting.kind),
    }
    for name, place in places.items():
        if isinstance(place, str):
            rows.append(row(name, f"left out: {place}"))
            continue
        said, reasons = _elsewhere(setting, name, *place)
        rows.append(row(name, said))
        faults += [f"{name}: {reason}" for reason in reasons]
        yield found


def _by_uuid(kind: str, identity: str) -> tuple[int, Mapping[str, str]] | str:
    """The last device by its UUID, or why it is not tried."""
    if kind != "cuda" or not identity or torch.version.hip:  # HIP spells it otherwise than torch does
        return f"{kind} devices are not chosen by a UUID"
    last = bind(kind, count_devices(kind) - 1).identity
    return 0, {VISIBLE: last if last.startswith(("GPU-", "MIG-")) else f"GPU-{last}"}


def _by_slice(kind: str) -> tuple[int, Mapping[str, str]] | str:
    """The first MIG slice, or why none is tried."""
    if kind != "cuda" or not shutil.which("nvidia-smi"):
        return "there is no nvidia-smi to list slices"
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60).stdout
    found = MIG.search(listed)
    return (0, {VISIBLE: found[1]}) if found else "no device is partitioned"


def _elsewhere(setting: Setting, name: str, index: int, changes: Mapping[str, str]) -> tuple[str, list[str]]:
    """What a process on that device tells, and what is wrong with it."""
    result = setting.folder / "logs" / f"place-{name.replace(' ', '-')}.json"
    result.parent.mkdir(parents=True, exist_ok=True)
    result.unlink(missing_ok=True)
    words = ["--device", setting.kind, "--index", str(index), "--result", str(result)]
    before = _bytes_of_first() if index else None
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks.on_device.place", *words],
            cwd=ROOT,
            env={**environment(), **changes},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        return "failed", [f"it is not over after {error.timeout:.0f} s"]
    print(ended.stdout, ended.stderr, sep="\n", flush=True)
    if ended.returncode or not result.exists():
        last = (ended.stderr.strip().splitlines() or ["no reason was given"])[-1]
        return "failed", [f"exit code {ended.returncode}: {last}"]
    found = Worked(**json.loads(result.read_text(encoding="utf-8")))
    wanted = changes.get(VISIBLE, "").removeprefix("GPU-").removeprefix("MIG-")
    reasons = list(found.faults)
    if wanted and wanted not in found.identity:
        reasons.append(f"the device is {found.identity}, not {wanted}")
    after = found.first_bytes
    if before is not None and after is not None and after - before > MOST_BYTES:
        reasons.append(f"device 0 was touched: {(after - before) / 2**20:.0f} MiB more there")
    return found.told, reasons


def _worked(device: Device) -> Worked:
    """Does the work on a device. Whatever it raises ends the part."""
    format = device.formats[0]
    faults = [
        f"a {kind} in {format} is made in {used}"
        for kind, used in used_formats(device, format).items()
        if used != format
    ]
    seed = residual()
    engine = Engine.name if Graphed.why_not(device) else Graphed.name
    trials = Trials.of(
        generated(seed.input[1], seed.classes, BATCH, format, **{"data.channels": seed.input[0]}),
        device,
        engine,
    )
    meter = Meter(device)
    with ThreadPoolExecutor(1, "prepare") as threads, meter.during("work"):
        running = trials.begin(threads.submit(trials.prepared, seed).result())
        made = running.make(STEPS)
    faults += [f"{engine} steps: {reason}" for reason in running.reasons]
    watts = meter.use("work").watts
    is_slice = variables.word(os.environ, VISIBLE).startswith("MIG-")  # of which NVML reports no power
    if device.sensors and watts is None and not is_slice:
        faults.append(f"its sensors ({device.sensors}) report no power")
    running.close()
    rate = made.examples / made.seconds
    power = "power unknown" if watts is None else f"{watts:.0f} W"
    told = f"{device.name}, {rate:,.0f} images/s by {engine} steps, {power}"
    return Worked(told, faults, device.identity, _bytes_of_first())


def _bytes_of_first() -> int | None:
    """Memory in use on the first device of the host, as the vendor's tool reports it: asking torch would open
    a context there. None without the tool."""
    if not shutil.which("nvidia-smi"):
        return None
    first = variables.word(os.environ, VISIBLE).split(",")[0] or "0"  # the physical one that torch calls 0
    command = ["nvidia-smi", "-i", first, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    return int(told) << 20 if told.isdecimal() else None


def work(kind: str, index: int, result: Path) -> None:
    """Does the work in this process, and writes what it found."""
    device = bind(kind, index)
    with device.aside(TRAINING).begin():
        result.write_text(json.dumps(asdict(_worked(device))), encoding="utf-8")
