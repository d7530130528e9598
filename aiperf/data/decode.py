"""JPEG and PNG files decoded and cropped in processes of their own."""

from __future__ import annotations

import atexit
import multiprocessing
import random
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from aiperf.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Decoders", "Item", "Piece", "check_file", "evaluation_box", "random_box"]

# Images a message of a decoding process. A step is put together from several, so that its first
# images come soon and one step is decoded by many processes.
PIECE = 32
PREFETCH = 4
"""Pieces that each process prepares ahead."""
# The customary evaluation crop: 224 out of a shorter side of 256 (Krizhevsky et al., NIPS 2012).
EVALUATED_SHARE = 224 / 256
# Szegedy et al., "Going deeper with convolutions", CVPR 2015, section 6: area and aspect of the crops.
CROP_AREA = (0.08, 1.0)
CROP_ASPECT = (3 / 4, 4 / 3)
CROP_TRIES = 10
MODES = {1: "L", 3: "RGB"}
# What converts to 8 bits a channel without loss of range; 16-bit PNGs would be clipped.
READABLE_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
JPEG_END = b"\xff\xd9"
PNG_END = b"IEND\xaeB`\x82"

Box = tuple[float, float, float, float]
"""Left, upper, right, lower, in pixels of the file."""


class Item(NamedTuple):
    """One image to decode. The processes know nothing else, so they serve every split and trial."""

    path: str
    label: int
    draws: str
    """What the random crop and flip are drawn from; empty: the evaluation crop."""


Piece = tuple[Tensor, Tensor]
"""Bytes (m, size, size, channels) and labels (m,), m ≤ PIECE."""


class Decoders:
    """Groups of decoding processes, each busy with one plan at a time and kept for the next.

    They are started by a server without MPI, threads or a device context, none of which survives a fork.
    """

    def __init__(self, channels: int, size: int, processes: int, pin: bool) -> None:
        self._decoder = _Decoder(channels, size)
        self._processes = processes
        self._pin = pin
        self._idle: list[tuple[_Plan, DataLoader[Piece]]] = []
        self._busy: WeakSet[Generator[Piece, None, None]] = WeakSet()
        _LIVING.add(self)

    def run(self, plan: Iterator[list[Item]]) -> Iterator[Piece]:
        """The pieces of a plan in its order; decoding begins at once, before the first is asked for.

        Raises DataError for a file that cannot be decoded, when its piece is asked for.
        """
        group, loader = self._idle.pop() if self._idle else self._start()
        group.plan = plan
        started = self._pieces(group, loader, iter(loader))
        self._busy.add(started)
        # Once more for each plan: what is registered last runs first, and torch's own wait for each
        # process at the end, five seconds, is registered when its group starts.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        return started

    def close(self) -> None:
        """Ends every plan and all processes. Those of a later `run` are started anew."""
        for pieces in list(self._busy):
            pieces.close()
        self._idle.clear()

    def _pieces(
        self, group: _Plan, loader: DataLoader[Piece], pieces: Iterator[Piece | str]
    ) -> Generator[Piece, None, None]:
        reusable = False
        try:
            for piece in pieces:
                if isinstance(piece, str):
                    raise DataError(piece)
                yield piece
            reusable = True
        except GeneratorExit:
            reusable = True
            raise
        finally:
            group.plan = iter(())
            if reusable:  # after any other end the processes may be dead; they are not asked again
                self._idle.append((group, loader))

    def _start(self) -> tuple[_Plan, DataLoader[Piece]]:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "PIL.Image"])
        group = _Plan()
        loader: DataLoader[Piece] = DataLoader(
            self._decoder,
            generator=torch.Generator(),  # else each plan would move the training's own generator on
            batch_sampler=group,
            num_workers=self._processes,
            collate_fn=_as_it_is,
            pin_memory=self._pin,
            multiprocessing_context=context,
            prefetch_factor=PREFETCH,
            persistent_workers=True,
            worker_init_fn=_ignore_interrupts,
        )
        return group, loader


_LIVING: WeakSet[Decoders] = WeakSet()


def _close_all() -> None:
    for decoders in list(_LIVING):
        decoders.close()


def check_file(path: Path) -> None:
    """Raises DataError for a file that cannot be decoded: by its header and end, in doubt by decoding it."""
    try:
        with path.open("rb") as file:
            file.seek(-min(len(PNG_END), path.stat().st_size), 2)
            end = file.read()
        with _open(str(path)) as image:
            if not end.endswith((JPEG_END, PNG_END)):
                image.load()
    except Exception as error:  # whatever Pillow meets in a damaged file
        raise DataError(_refusal(str(path), error)) from None


def evaluation_box(width: int, height: int) -> Box:
    """The centred square of 224/256 of the shorter side.

    Scaled to `size` in one go it shows what resizing the shorter side to size · 256/224 and then
    cropping the centre shows.
    """
    side = min(width, height) * EVALUATED_SHARE
    left, upper = (width - side) / 2, (height - side) / 2
    return left, upper, left + side, upper + side


def random_box(source: random.Random, width: int, height: int) -> Box:
    """A crop of random area and aspect; where none fits, the largest centred square."""
    for _ in range(CROP_TRIES):
        area = width * height * source.uniform(*CROP_AREA)
        aspect = CROP_ASPECT[0] * (CROP_ASPECT[1] / CROP_ASPECT[0]) ** source.random()
        wide, high = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
        if 0 < wide <= width and 0 < high <= height:
            left, upper = source.randint(0, width - wide), source.randint(0, height - high)
            return left, upper, left + wide, upper + high
    side = min(width, height)
    left, upper = (width - side) // 2, (height - side) // 2
    return left, upper, left + side, upper + side


class _Plan(Sampler[list[Item]]):
    """What a group of processes is to decode; set anew before each iteration."""

    def __init__(self) -> None:
        self.plan: Iterator[list[Item]] = iter(())

    def __iter__(self) -> Iterator[list[Item]]:
        return self.plan


class _Decoder(Dataset[Piece]):
    """Runs in the decoding processes."""

    def __init__(self, channels: int, size: int) -> None:
        self._channels = channels
        self._size = size

    def __getitems__(self, items: list[Item]) -> Piece | str:
        """The piece, or the line that says why there is none (an exception would lose its own words)."""
        pixels = np.empty((len(items), self._size, self._size, self._channels), np.uint8)
        for index, item in enumerate(items):
            try:
                pixels[index] = self._decode(item)
            except Exception as error:  # whatever Pillow meets in a damaged file
                return _refusal(item.path, error)
        return torch.from_numpy(pixels), torch.tensor([item.label for item in items])

    def _decode(self, item: Item) -> np.ndarray:
        from PIL.Image import Resampling, Transpose

        with _open(item.path) as file:
            image = file.convert(MODES[self._channels])
        flip = False
        if item.draws:
            source = random.Random(item.draws)
            box = random_box(source, *image.size)
            flip = source.random() < 0.5
        else:
            box = evaluation_box(*image.size)
        shown = image.resize((self._size, self._size), Resampling.BILINEAR, box)
        if flip:
            shown = shown.transpose(Transpose.FLIP_LEFT_RIGHT)
        return np.asarray(shown).reshape(self._size, self._size, self._channels)


def _open(path: str) -> Image:
    from PIL import Image

    image = Image.open(path, formats=("JPEG", "PNG"))
    if image.mode not in READABLE_MODES:
        image.close()
        raise ValueError(f"pixels of mode {image.mode}, not 8 bits a channel")
    return image


def _refusal(path: str, error: Exception) -> str:
    return f"{path}: is no readable JPEG or PNG ({type(error).__name__}: {error}); replace or remove it"


def _ignore_interrupts(worker: int) -> None:
    """Ctrl-C reaches every process of the terminal, but the closing validation still needs this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _as_it_is(piece: Any) -> Any:
    return piece
