"""How the kernels in Triton are launched: which Triton is needed, and how images and sequences are divided
among programs.

Triton is imported when the first kernel is launched: a wheel of torch for a CPU comes without it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from math import gcd
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nas.frozen import frozen

if TYPE_CHECKING:
    from torch._library.custom_ops import CustomOpDef

OLDEST = (3, 2)
"""Triton of torch 2.6, the oldest torch that is supported."""
TILE = 2048
"""Elements that a program reads at once: 16 for each of its 128 threads, so two loads of 16 bytes in bf16."""
WIDTHS = (128, 64, 32)
"""Channels of a tile, if there are as many; 32 of them in bf16 are the 64 bytes that AMD's devices load."""
ALIGNED = 16
"""Channels by which a row is aligned at most, as far as the compiler must know it."""
PROGRAMS = 2048
"""Programs that make sums, four of which run on each of some 130 multiprocessors at once: the last round of
them leaves few idle. The number is the same on all devices, so that sums are made in the same order."""
FEWEST_TILES = 4
"""Tiles of a program that makes sums, at least: it writes 16 bytes for each channel, and they are read."""
MORE_PROGRAMS = 4 * PROGRAMS
"""Programs that make no sums; more, shorter ones leave fewer multiprocessors idle at the end."""
PARTS, FEW_CHANNELS = 256, 8
"""Sums and channels that a finalising program reads at once. Few images' sums take more than eight rounds."""
WIDEST_ROW = 8192
"""Features of a row that is normalised, at most: one program holds it whole, so that it is read once."""
SLOTS = 512
"""Elements of a tile for each warp: 16 for each of 32 threads, 8 for each of AMD's 64."""
OPTIONS = {"enable_fp_fusion": True}
"""Products and sums may be rounded once. Triton 3.10 has another default than 3.9, which warns of it."""


def why_no_triton() -> str:
    """Reason why this process has no Triton that the kernels were written for; empty if it has. Its
    distribution has other names in builds for AMD, so the module is asked."""
    try:
        version = import_module("triton").__version__
    except ModuleNotFoundError:
        return "the package triton is not installed here"
    except ImportError as error:
        return f"triton cannot be imported: {error}".splitlines()[0]
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        return f"triton is {version}; the kernels need {'.'.join(map(str, OLDEST))} or newer"
    return ""


@frozen
class Tiling:
    """How a matrix is divided among programs."""

    rows: int
    """Pixels of all images, or positions of all sequences."""
    chunk: int
    """Rows of one program."""
    unit: int
    """The largest power of two that divides the channels, at most ALIGNED."""
    units: int
    """Channels / unit."""
    tile: tuple[int, int]
    """Rows and channels of a tile."""

    @property
    def channels(self) -> int:
        """Columns of the matrix."""
        return self.unit * self.units

    @property
    def chunks(self) -> int:
        """Number of blocks of rows; a kernel that makes sums writes one partial sum for each."""
        return -(-self.rows // self.chunk)

    @property
    def programs(self) -> int:
        """Number of programs: one for each chunk and each block of columns."""
        return self.chunks * -(-self.channels // self.tile[1])

    @property
    def constants(self) -> dict[str, int]:
        """What is compiled into a kernel. The number of units is not, so networks of other widths share code
        if these three are equal."""
        return {"UNIT": self.unit, "ROWS": self.tile[0], "CHANNELS": self.tile[1]}

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sizes that a kernel is given when it is launched, in the order of its arguments."""
        return self.rows, self.chunk, self.units

    @property
    def bytes_of_bits(self) -> int:
        """Bytes of one bit for each element, of whole tiles. The edges of a matrix have bits that no kernel
        reads."""
        height, width = self.tile
        return -(-self.rows // height) * -(-self.channels // width) * height * width // 8

    @property
    def warps(self) -> int:
        """Warps of a program: more than Triton's four if a tile is one wide row."""
        return max(4, self.tile[0] * self.tile[1] // SLOTS)


def tiling(rows: int, channels: int, programs: int, fewest_tiles: int = 1) -> Tiling:
    """The tiling of `rows` rows by about `programs` programs, of at least `fewest_tiles` tiles each."""
    # Fewer channels than half a width would leave most of a tile empty; then it is as wide as the next power
    # of two, because Triton's ranges have only such lengths.
    wide = [width for width in WIDTHS if width < 2 * channels] or [1 << (channels - 1).bit_length()]
    # The width with the fewest columns that do not exist, and of equal ones the widest.
    width = min(wide, key=lambda each: (-(-channels // each) * each, -each))
    height = TILE // width
    chunks = max(1, programs // -(-channels // width))
    tiles = max(fewest_tiles, -(-rows // (chunks * height)))
    unit = gcd(channels, ALIGNED)
    return Tiling(rows, tiles * height, unit, channels // unit, (height, width))


def by_image(images: Tensor) -> Tiling:
    """The tiling in which each chunk is one image."""
    batch, channels, height, width = images.shape
    found = tiling(batch * height * width, channels, 1)
    return Tiling(found.rows, height * width, found.unit, found.units, found.tile)


def for_sums(images: Tensor) -> Tiling:
    """The tiling of images by programs that make sums of each channel."""
    return tiling(images.numel() // images.shape[1], images.shape[1], PROGRAMS, FEWEST_TILES)


def for_each(rows: int, channels: int) -> Tiling:
    """The tiling of a matrix of which no sums are made."""
    return tiling(rows, channels, MORE_PROGRAMS)


def whole_rows(values: Tensor, programs: int, fewest_tiles: int = 1) -> Tiling:
    """The tiling of sequences by about `programs` programs, in which each tile has whole rows."""
    features = values.shape[-1]
    rows, width, unit = values.numel() // features, 1 << (features - 1).bit_length(), gcd(features, ALIGNED)
    height = max(1, TILE // width)
    tiles = max(fewest_tiles, -(-rows // (programs * height)))
    return Tiling(rows, tiles * height, unit, features // unit, (height, width))


def rows_for_sums(values: Tensor) -> Tiling:
    """The tiling of sequences by programs that also make sums of each feature."""
    return whole_rows(values, PROGRAMS, FEWEST_TILES)


def rows_for_each(values: Tensor) -> Tiling:
    """The tiling of sequences whose rows are normalised, without sums over rows."""
    return whole_rows(values, MORE_PROGRAMS)


@cache
def kernels() -> Mapping[str, Any]:
    """The kernels by name; their modules import Triton. No two of them have a kernel of one name."""
    norms = import_module("aiperf.engines.fused.triton_kernels")
    gates = import_module("aiperf.engines.fused.triton_gate_kernels")
    sequences = import_module("aiperf.engines.fused.triton_sequence_kernels")
    return ChainMap(vars(norms), vars(gates), vars(sequences))


def launch(name: str, programs: int, *arguments: object, **constants: int) -> None:
    """Launches `programs` programs of a kernel on the current stream. `constants` are compiled into it, or
    are options of the compiler. Raises what Triton's compiler raises when a kernel is first launched with
    these constants."""
    kernels()[name][(programs,)](*arguments, **constants, **OPTIONS)


def operator(
    name: str, schema: str, changes: tuple[str, ...] = ()
) -> Callable[[Callable[..., object]], CustomOpDef]:
    """A decorator that makes a function an operator of torch. The schema is stated, because torch 2.6 infers
    none from annotations of today."""
    return torch.library.custom_op(f"aiperf::{name}", mutates_args=changes, schema=schema)
