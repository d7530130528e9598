"""How a kernel in Triton reads a matrix: a program takes one block of columns and `chunk` rows, a tile after
the other.

The number of columns, `channels`, is passed as `units` of `UNIT` channels, so that the compiler knows by how
much a row is aligned.
"""

from __future__ import annotations

import triton
import triton.language as tl

SIZES = ("rows", "chunk", "units", "chunks", "channels", "heads", "positions")
"""Arguments whose values make no other code; else a network's last, smaller batch would be compiled for."""


@triton.jit
def place(block, units, rows, chunk, UNIT: tl.constexpr, CHANNELS: tl.constexpr):
    """The columns of a program, which of them exist, its first row, and the row after its last."""
    blocks = tl.cdiv(units * UNIT, CHANNELS)
    column = (block % blocks) * CHANNELS + tl.arange(0, CHANNELS)
    begin = (block // blocks) * chunk
    return column, column < units * UNIT, begin, tl.minimum(begin + chunk, rows)


@triton.jit
def tile(row, end, column, exists, units, UNIT: tl.constexpr, ROWS: tl.constexpr):
    """Offsets of a tile's elements, and which of them exist. The rows may hold more than 2³¹ elements."""
    lines = tl.arange(0, ROWS)
    within = lines[:, None] * (units * UNIT) + column[None, :]
    return tl.cast(row, tl.int64) * (units * UNIT) + within, ((row + lines) < end)[:, None] & exists[None, :]


@triton.jit
def number(pointer, at, mask):
    """Numbers in fp32, and 0 where none exist. All kernels compute in fp32, and round when they store."""
    return tl.load(pointer + at, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def gradient_of(first, second, at, mask, HAS_SECOND: tl.constexpr):
    """The gradient of the output of a step with one or two readers, in fp32."""
    gradient = number(first, at, mask)
    if HAS_SECOND:
        gradient += number(second, at, mask)
    return gradient
