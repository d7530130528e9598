"""The source `text`: a file, a folder, or the text that comes with this program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from aiperf.data.splits import Data, text_manifest
from aiperf.data.texts.grid import Grid, WindowSource, WindowSplit
from aiperf.data.texts.reading import Text, text_at
from aiperf.errors import DataError
from aiperf.tasks.data import DataConfig
from aiperf.tasks.language.known_texts import BUNDLED_TEXT
from aiperf.tasks.language.text_windows import TextWindows
from nas.modules import to_device
from nas.portable.preparation import TextPreparation

HELD_BYTES = 1 << 30
"""Up to here a text lies on an accelerator whole; a larger one is read from the host, batch by batch."""
LIMITED = ("training", "validation")
"""Parts of which a configuration may take fewer windows than they have."""

WHERE = "the bundled text"
PACKED = "python_docs.txt.xz"
"""The file of the bundled text, next to this one."""


class HeldWindows(WindowSource):
    """Windows of a text that lies on the device whole."""

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
    """A text divided by position. Raises DataError if a part has no window, or fewer than are configured."""
    text = text_at(Path(config.path)) if config.path else bundled_text()
    found = TextWindows(text.bytes, config.size)
    counts = _counts(config, text.where, found)
    digest, windows = _windows(text, config, device)
    manifest = text_manifest(config, counts, digest, found.official_training)
    manifest |= {"bytes": text.bytes, "bytes_left_out": found.left_out(sum(counts))}
    starts = [part.start for part in found.parts]
    # However short an epoch is, epochs together go through all windows.
    whole = Grid(found.training, starts[0], config.size, offsets=config.size)
    held_out = (Grid(number, start, config.size) for number, start in zip(counts[1:], starts[1:]))
    validation, test = (WindowSplit(grid, windows) for grid in held_out)
    train = WindowSplit(whole, windows, counts[0])
    return Data(train, validation, test, manifest, text.note, TextPreparation(config.size))


def _counts(config: DataConfig, where: str, found: TextWindows) -> list[int]:
    """Windows of training in an epoch, of validation and of the test."""
    counts = {"training": found.training, "validation": found.validation, "test": found.test}
    wanted = {name: getattr(config, f"{name}_examples") for name in LIMITED}
    if min(counts.values()) < 1:
        wrong = (
            f"{found.bytes:,} bytes are too few: each part needs a window of data.size = {config.size} bytes"
        )
    else:
        wrong = "; ".join(
            f"data.{name}_examples is {number:,}, but the {name} part has {counts[name]:,} windows of "
            f"{config.size} bytes"
            for name, number in wanted.items()
            if number > counts[name]
        )
    if wrong:
        raise DataError(f"{where}: {wrong}; {_remedies(wanted, found)}")
    counts |= {name: number for name, number in wanted.items() if number}
    return list(counts.values())


def _remedies(wanted: Mapping[str, int], found: TextWindows) -> str:
    """Two remedies, of which each is enough: whoever follows one is not refused again."""
    enough = found.enough_bytes(*(max(1, number) for number in wanted.values()))
    longer = f"give a text of at least {enough:,} bytes"
    lower = found.to_lower({f"{name}_examples": number for name, number in wanted.items()})
    if not lower:
        least = replace(found, size=2).enough_bytes()
        return f"{longer}, or of {least:,} to {enough:,} with a smaller data.size"
    settings = " ".join(f"--set data.{name}={number}" for name, number in lower.items())
    return f"lower {'it' if len(lower) == 1 else 'them'}: {settings}; or {longer}"


def _windows(text: Text, config: DataConfig, device: torch.device) -> tuple[str, WindowSource]:
    """The SHA-256 and what shows the windows, in one reading."""
    # One reading for both, because a text may be larger than the cache of files.
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


class HeldText:
    """Bytes that lie in memory."""

    note = ""

    def __init__(self, where: str, text: bytearray) -> None:
        self.where = where
        self.bytes = len(text)
        self._text = text
        self._array = np.frombuffer(text, np.uint8)

    def chunks(self) -> Iterator[memoryview]:
        yield memoryview(self._text)

    def windows(self, places: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
        shown: NDArray[np.uint8] = sliding_window_view(self._array, length)[places]
        return shown


def bundled_text() -> HeldText:
    """The sources of the documentation of Python, unpacked in memory. README.md next to this file says what
    they are, and benchmarks/text/bundled.py made them. Raises DataError if they are not what the repository
    pins."""
    packed = resources.files("aiperf") / "data" / "texts" / PACKED
    try:
        import lzma  # here: a Python that was built without liblzma has none

        text = lzma.decompress(packed.read_bytes())
    except ImportError:
        raise DataError(
            f"{WHERE}: this Python was built without lzma; build it with liblzma, or unpack {packed} with "
            f"xz -dc and set data.path to the file"
        ) from None
    except (OSError, lzma.LZMAError) as error:
        raise DataError(f"{WHERE}: {packed} cannot be read: {error}; reinstall this program") from None
    digest = sha256(text).hexdigest()
    if digest != BUNDLED_TEXT.sha256:
        raise DataError(f"{WHERE}: SHA-256 {digest} instead of {BUNDLED_TEXT.sha256}; reinstall this program")
    return HeldText(WHERE, bytearray(text))
