"""One part, in this process: its figures go to a file as they arise."""

from __future__ import annotations

import argparse
import json
import logging
import math
import platform
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from aiperf import __version__
from aiperf.device import KINDS, Device, bind
from aiperf.device.device import TRAINING
from aiperf.host.code import code_hash
from benchmarks.on_device.parts import BY_NAME, IDENTITY, Setting
from benchmarks.on_device.rows import Figures, figures
from benchmarks.on_device.state import replace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=(*BY_NAME, IDENTITY.name))
    parser.add_argument("--device", required=True, choices=KINDS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--span", type=float, required=True)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no more is measured")
    options = parser.parse_args()
    until = monotonic() + options.seconds
    logging.basicConfig(level=logging.WARNING)
    setting = Setting(options.device, options.out, options.span)
    device = bind(setting.kind, 0)
    identity = identify(device)

    def save(found: Figures, is_whole: bool = False) -> None:
        result = {"identity": identity, "figures": _plain(found), "is_whole": is_whole}
        replace(options.result, json.dumps(result, allow_nan=False))

    found = figures([])
    save(found)
    # On the stream on which a worker trains: a capture may hold only what was made there.
    with device.aside(TRAINING).begin():
        for found in _so_far(options.part, setting):
            save(found)
            if monotonic() > until:
                note = f"Stopped after its time, {options.seconds:.0f} s: something may be missing."
                found["notes"] = [*found["notes"], note]
                break
    save(found, is_whole=True)


def _so_far(name: str, setting: Setting) -> Iterator[Figures]:
    """The figures of a part, again and again while it measures, or once."""
    if name == IDENTITY.name:
        return
    part = BY_NAME[name]
    measure = getattr(import_module(f"benchmarks.on_device.{part.module}"), part.function)
    found = measure(setting, *part.words)
    yield from [found] if isinstance(found, dict) else found


def identify(device: Device) -> dict[str, str]:
    """The device and the software that all figures of a folder are of."""
    found = {
        "device": device.name,
        "memory": f"{device.memory_bytes / 2**30:.1f} GiB",
        "host": f"{socket.gethostname()}, {platform.machine()}",
        **device.software(),
        "program": f"aiperf-hpc {__version__}, code {code_hash()[:12]}",
    }
    if device.identity:
        found["identity"] = device.identity
    return {name: str(text) for name, text in found.items()} | {"torch": torch.__version__}


def _plain(value: Any) -> Any:
    """The value for JSON: a number that is not finite is unknown."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    main()
