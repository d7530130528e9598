"""What the program reads of power, clocks and energy, against the vendor's own tool, idle and at work."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import pairwise
from statistics import median
from time import monotonic, sleep

from aiperf.device import Device, bind
from aiperf.measuring.ceiling import Multiply, measure_products
from aiperf.telemetry import sensor as telemetry
from aiperf.telemetry.node import open_node
from aiperf.telemetry.sensor import Sensor
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, Row, figures, row

Values = Mapping[str, float]

IDLE_SECONDS, LOAD_SECONDS = 5.0, 20.0
SMALL_SECONDS = 2.0
PERIOD_SECONDS = 0.5
WORK_SECONDS = 1.0
"""Length of the work that is submitted before each reading: the vendor's tool takes a part of a second to
answer."""
SETTLED = 4
"""Readings at work that are left out: power rises for some seconds."""
ALLOWED: Mapping[str, float] = {"power_watts": 0.1, "clock_hertz": 0.05, "energy_joules": 0.1}
"""Largest relative difference from the vendor's tool, which reads at another moment."""
UNITS: Mapping[str, str] = {
    "power_watts": "W",
    "clock_hertz": "Hz",
    "memory_clock_hertz": "Hz",
    "temperature_celsius": "°C",
    "utilisation": "%",
    "memory_bytes": "GiB",
}
"""Values of which the median of the readings is compared, with their units. Energy is compared by itself."""
SIDE = 2048
ANSWER_SECONDS = 20.0
"""Time for the vendor's tool to answer; a value that comes later is unknown."""

NVIDIA: Mapping[str, tuple[str, float]] = {
    "power.draw": ("power_watts", 1.0),
    "clocks.sm": ("clock_hertz", 1e6),
    "clocks.mem": ("memory_clock_hertz", 1e6),
    "temperature.gpu": ("temperature_celsius", 1.0),
    "utilization.gpu": ("utilisation", 0.01),
    "memory.used": ("memory_bytes", float(1 << 20)),
}
"""Fields that `nvidia-smi --query-gpu` is asked for, with the names and factors here."""


@dataclass(frozen=True)
class Reading:
    """Values at one moment, in seconds of the monotonic clock: of the program's sensor and of the vendor's
    tool."""

    at: float
    own: Values
    tool: Values


def measure(setting: Setting) -> Figures:
    """A sensor that is there and cannot be read, or differs from the vendor's tool, is a fault."""
    device = bind(setting.kind, 0)
    tool_name, tool = _tool(device)
    if not device.sensors:
        return _without(setting, device)
    sensor = Sensor("device", partial(_opened, device))
    idle = _readings(sensor, tool, IDLE_SECONDS, lambda: sleep(PERIOD_SECONDS))
    busy = _readings(sensor, tool, LOAD_SECONDS, _load(device))
    rows, faults = _compared(idle, busy, tool_name)
    if not busy or not busy[-1].own:
        sensor.ask()
        faults.append(f"{device.sensors}: {sensor.answer(monotonic() + 10)[1] or 'no values'}")
    notes = [] if tool_name else ["the vendor's own tool is not installed: nothing to compare with"]
    return figures(rows, faults=faults, notes=notes, tool=tool_name, readings=_series(idle, busy))


def _opened(device: Device) -> Callable[[], telemetry.Reading]:
    """The function that reads the device, as the program opens it."""
    found: Callable[[], telemetry.Reading]
    found = import_module(f"aiperf.telemetry.{device.sensors}").open_device(device.identity)
    return found


def _load(device: Device) -> Callable[[], None]:
    """Products for about a second, submitted and not waited for but for those before."""
    format = device.formats[0]
    device.declare(format)
    side = SIDE if device.kind == "cpu" else 4 * SIDE
    rate = max(each.rate.fastest for each in measure_products(device, format, 0.2))
    work = Multiply(device, format, side, side, side)
    pieces = max(1, round(WORK_SECONDS * rate / (2 * side**3)))

    def once() -> None:
        device.synchronise()
        for _ in range(pieces):
            work()

    return once


def _readings(
    sensor: Sensor, tool: Callable[[], Values], seconds: float, between: Callable[[], None]
) -> list[Reading]:
    """Readings of both for this many seconds, with `between` called before each."""
    until, found = monotonic() + seconds, list[Reading]()
    while monotonic() < until:
        between()
        sensor.ask()
        values, _ = sensor.answer(monotonic() + 5)
        numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
        found.append(Reading(monotonic(), numbers, tool()))
    return found


def _compared(idle: Sequence[Reading], busy: Sequence[Reading], tool: str) -> tuple[list[Row], list[str]]:
    """Rows for each value, idle and at work, and faults where the two differ at work."""
    rows, faults = list[Row](), list[str]()
    for state, readings in (("idle", idle), ("at work", busy[SETTLED:])):
        for name, unit in UNITS.items():
            own = [each.own[name] for each in readings if name in each.own]
            told = [each.tool[name] for each in readings if name in each.tool]
            if not (own or told):
                continue
            value, expected = (median(values) if values else None for values in (own, told))
            rows.append(row(f"{name.split('_')[0]}, {state}", value, unit, expected, tool))
            faults += _differs(name, state, value, expected) if state == "at work" else []
    own_joules, told_joules = joules(busy)
    rows.append(
        row("energy of the work", own_joules, "J", told_joules, f"{tool}: power × time" if tool else "")
    )
    faults += _differs("energy_joules", "of the work", own_joules, told_joules)
    return rows, faults


def _differs(name: str, state: str, value: float | None, expected: float | None) -> list[str]:
    """A fault, if the two differ by more than is allowed."""
    if value is None or not expected or name not in ALLOWED:
        return []
    if abs(value / expected - 1) <= ALLOWED[name]:
        return []
    return [f"{name}, {state}: {value:.4g} here, {expected:.4g} by the vendor's tool"]


def joules(readings: Sequence[Reading]) -> tuple[float | None, float | None]:
    """Energy between the first and the last reading: by the device's own counter, and by the tool's power."""
    own = [each.own["energy_joules"] for each in readings if "energy_joules" in each.own]
    powered = [(each.at, each.tool["power_watts"]) for each in readings if "power_watts" in each.tool]
    told = sum(
        (later - earlier) * (watts + next_watts) / 2
        for (earlier, watts), (later, next_watts) in pairwise(powered)
    )
    return own[-1] - own[0] if len(own) > 1 else None, told if len(powered) > 1 else None


def _series(idle: Sequence[Reading], busy: Sequence[Reading]) -> dict[str, object]:
    """All readings, for the JSON."""
    return {
        state: [{"at": each.at, "own": dict(each.own), "tool": dict(each.tool)} for each in readings]
        for state, readings in (("idle", idle), ("at_work", busy))
    }


def _tool(device: Device) -> tuple[str, Callable[[], Values]]:
    """The vendor's own tool by name, and what reads by it; no name where it is not installed."""
    if device.sensors == "nvidia" and shutil.which("nvidia-smi"):
        prefix = "" if device.identity.startswith(("GPU-", "MIG-")) else "GPU-"
        command = ["nvidia-smi", f"--query-gpu={','.join(NVIDIA)}", "--format=csv,noheader,nounits"]
        command += ["-i", f"{prefix}{device.identity}"]
        return "nvidia-smi", lambda: of_nvidia(_answer(command))
    if device.sensors == "amd" and shutil.which("rocm-smi"):
        command = ["rocm-smi", "--showpower", "--showtemp", "--showbus", "--json"]
        return "rocm-smi", lambda: of_amd(_answer(command), device.pci_address)
    return "", dict


def _answer(command: Sequence[str]) -> str:
    """Output of a command; empty if it fails or does not answer."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def of_nvidia(line: str) -> dict[str, float]:
    """The values in one line of nvidia-smi; a missing one, "[N/A]", is left out."""
    found = {}
    for (name, factor), text in zip(NVIDIA.values(), line.strip().split(",")):
        try:
            found[name] = float(text) * factor
        except ValueError:
            continue
    return found


def of_amd(text: str, address: str) -> dict[str, float]:
    """Power and temperature of the device with that PCI address in rocm-smi's JSON, whose names differ
    between releases, and which numbers devices otherwise than torch. A domain has four digits, or eight."""
    if not text.strip():
        return {}
    found: dict[str, float] = {}
    for values in json.loads(text).values():
        if not address or not str(values.get("PCI Bus", "")).lower().endswith(address):
            continue
        for name, value in values.items():
            text = str(value).replace(".", "", 1)
            if "power (w)" in name.lower() and text.isdecimal():  # "N/A (Secondary die)" of an MI250
                found.setdefault("power_watts", float(value))
            if "junction" in name.lower() and "(c)" in name.lower() and text.isdecimal():
                found.setdefault("temperature_celsius", float(value))
    return found


def _without(setting: Setting, device: Device) -> Figures:
    """A processor: the power that the sensors of the node report at work, if this user may read them."""
    told = f"no sensor of {device.kind} devices is read: energy and OPS/W are unknown"
    try:
        read = open_node() if device.kind == "cpu" else None
    except LookupError as error:
        read, told = None, f"{told}; {error}"
    if read is None:
        return figures([row("sensors", "none")], notes=[told])
    read()
    work, until = _load(device), monotonic() + SMALL_SECONDS
    while monotonic() < until:
        work()
    rows, reading = [row("sensors", "none")], read()
    for name, text in (("power_watts", "node"), ("processors_power_watts", "processors")):
        if isinstance(value := reading.get(name), (int, float)):
            rows.append(row(f"{text}, at work", float(value), "W"))
    return figures(rows, notes=[told], smaller=f"{SMALL_SECONDS:.0f} s of work")
