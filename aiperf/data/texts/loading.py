"""The source `text`: a file, a folder, or the text that comes with this program."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from aiperf.config import DataConfig
from aiperf.data.manifest import text_manifest
from aiperf.data.resident import to_device
from aiperf.data.split import Data
from aiperf.data.texts.bundled import bundled_text
from aiperf.data.texts.grid import Grid, WindowSource, WindowSplit
from aiperf.data.texts.reading import Text, text_at
from aiperf.errors import DataError
from aiperf.windows import TextWindows

HELD_BYTES = 1 << 30
"""Up to here a text lies on an accelerator whole; a larger one is read from the host, batch by batch."""


class HeldWindows(WindowSource):
    """Out of a text that lies on the device."""

    read = False

    def __init__(self, text: Tensor, size: int) -> None:
        self.size = size
        self._text = text
        self._along = torch.arange(size + 1, device=text.device)

    def show(self, places: Tensor) -> Tensor:
        return self._text[to_device(places, self._text.device)[:, None] + self._along]


class ReadWindows(WindowSource):
    """Out of a text that lies on the host."""

    def __init__(self, text: Text, size: int, device: torch.device, read: bool) -> None:
        self.size = size
        self.read = read
        self._text = text
        self._device = device

    def show(self, places: Tensor) -> Tensor:
        return to_device(torch.from_numpy(self._text.windows(places.numpy(), self.size + 1)), self._device)


def is_held(device: torch.device, num_bytes: int) -> bool:
    """Whether a text is copied to the device. A processor reads the map: a copy would be one a rank."""
    return device.type != "cpu" and num_bytes <= HELD_BYTES


def load_text(config: DataConfig, device: torch.device) -> Data:
    """Divided by position. Raises DataError where a part has no window, or fewer than are configured."""
    text = text_at(Path(config.path)) if config.path else bundled_text()
    found = TextWindows(text.bytes, config.size)
    counts = _counts(config, text.where, found)
    digest, windows = _windows(text, config, device)
    told = text_manifest(config, counts, digest, found.official_training, synthetic=False)
    told |= {"bytes": text.bytes, "bytes_left_out": found.left_out(sum(counts))}
    starts = [part.start for part in found.parts]
    # However short an epoch is, epochs together go through all windows.
    whole = Grid(found.training, starts[0], config.size, offsets=config.size)
    held_out = (Grid(number, start, config.size) for number, start in zip(counts[1:], starts[1:]))
    validation, test = (WindowSplit(grid, windows) for grid in held_out)
    return Data(WindowSplit(whole, windows, counts[0]), validation, test, told)


def _counts(config: DataConfig, where: str, found: TextWindows) -> list[int]:
    """Windows of training in an epoch, of validation and of the test."""
    if min(found.training, found.validation, found.test) < 1:
        raise DataError(
            f"{where}: {found.bytes:,} bytes are too few: each part needs a window of data.size = "
            f"{config.size} bytes; give a text of at least {found.enough_bytes:,} bytes, or lower data.size"
        )
    counts = {"training": found.training, "validation": found.validation, "test": found.test}
    wanted = {name: getattr(config, f"{name}_examples") for name in ("training", "validation")}
    short = [name for name, number in wanted.items() if number > counts[name]]
    if short:
        told = "; ".join(
            f"data.{name}_examples is {wanted[name]:,}, but the {name} part has {counts[name]:,} windows of "
            f"{config.size} bytes"
            for name in short
        )
        lower = " ".join(f"--set data.{name}_examples={counts[name]}" for name in short)
        raise DataError(f"{where}: {told}; lower {'them' if short[1:] else 'it'}: {lower}")
    counts |= {name: number for name, number in wanted.items() if number}
    return list(counts.values())


def _windows(text: Text, config: DataConfig, device: torch.device) -> tuple[str, WindowSource]:
    """The SHA-256 and what shows the windows, in one reading."""
    digest = sha256()
    held = is_held(device, text.bytes)
    copy = torch.empty(text.bytes if held else 0, dtype=torch.uint8, device=device)
    done = 0
    for chunk in text.chunks():
        digest.update(chunk)
        if held:
            copy[done : done + len(chunk)] = torch.frombuffer(chunk, dtype=torch.uint8)
        done += len(chunk)
    if held:
        return digest.hexdigest(), HeldWindows(copy, config.size)
    return digest.hexdigest(), ReadWindows(text, config.size, device, read=bool(config.path))
