"""What the machine has of what the other parts need."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import psutil

from aiperf.device import Device, bind, count_devices
from aiperf.engines.registry import KINDS
from aiperf.hardware.cpu_names import read_processor_name
from aiperf.hardware.peak import GIB, listed
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, figures, row

NEEDED = ("torch", "numpy", "safetensors", "pillow", "psutil", "click", "rich", "tomli-w")
"""Packages that a run needs: pyproject.toml, dependencies and the extra run."""
OPTIONAL: Mapping[str, str] = {
    "scikit-learn": "runs of digits",
    "triton": "the compiled engine on a device",
    "nvidia-ml-py": "sensors of NVIDIA",
    "amdsmi": "sensors of AMD",
    **dict.fromkeys(("pytest", "pytest-timeout", "pytest-xdist", "hypothesis"), "the part `tests`"),
}
TOOLS = ("nvidia-smi", "rocm-smi", "npu-smi", "gcc", "clang", "g++", "git")


def measure(setting: Setting) -> Figures:
    """Names, versions and what is missing. A package that a run needs and that is missing is a fault, and an
    engine that cannot be used on a device for which it is made."""
    device = bind(setting.kind, 0)
    peak = listed(device.name)
    has = {name: _version(name) for name in (*NEEDED, *OPTIONAL)}
    missing = [name for name in NEEDED if not has[name]]
    unusable = {name: KINDS[name].why_not(device) for name in KINDS}
    listed_bytes = peak.memory_gib * GIB if peak and peak.memory_gib else None
    rows = [
        row("devices of this kind", count_devices(setting.kind)),
        row("memory of the device", device.memory_bytes, "GiB", listed_bytes, "list of peaks"),
        row("formats", ", ".join(device.formats)),
        row("listed peak", "yes" if peak else "no: shares of the peak are unknown"),
        row("processor of the host", f"{read_processor_name() or platform.machine()}, {os.cpu_count()} CPUs"),
        row("memory of the host", psutil.virtual_memory().total, "GiB"),
        row("load of the host, last minute", os.getloadavg()[0], "processes"),
        *(row(f"engine {name}", reason or "can be used") for name, reason in unusable.items()),
        row("packages", ", ".join(f"{name} {version}" for name, version in has.items() if version)),
        row("tools", ", ".join(tool for tool in TOOLS if shutil.which(tool)) or "none"),
        row("Python.h, with which Triton compiles", "there" if has_header() else "missing"),
    ]
    notes = [f"not installed: {name}, for {why}" for name, why in OPTIONAL.items() if not has[name]]
    faults = [f"not installed, and a run needs it: {', '.join(missing)}"] if missing else []
    faults += unusable_here(device, unusable)
    return figures(rows, faults=faults, notes=notes, commit=_commit(), packages=has, unusable=unusable)


def unusable_here(device: Device, reasons: Mapping[str, str]) -> list[str]:
    """Engines that cannot be used though they are made for devices like this one: of NVIDIA from the A100 on,
    and of AMD."""
    if device.kind != "cuda" or "bf16" not in device.formats:
        return []
    found = [f"no {name} steps: {reason}" for name, reason in reasons.items() if reason]
    if not has_header() or not any(map(shutil.which, ("gcc", "clang"))):
        found.append("no kernels of Triton: it needs gcc or clang, and Python.h")
    return found


def has_header() -> bool:
    """Whether what Triton compiles for each kernel finds Python."""
    return Path(sysconfig.get_path("include"), "Python.h").is_file()


def _version(package: str) -> str:
    """The version of a package; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _commit() -> str:
    """The commit of the checkout; empty without git, or if it is not a clone."""
    if not shutil.which("git"):
        return ""
    answer = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    return answer.stdout.strip()
