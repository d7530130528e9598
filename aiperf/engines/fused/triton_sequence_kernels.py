"""The kernels in Triton for rows of sequences: RMS norm, rotary positions, and a gated activation.

A tile of an RMS norm has whole rows, so that each is read once; those of the other kernels are as of images.
Numbers are computed in fp32 and rounded once. Nothing is atomic, as in triton_kernels.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from aiperf.engines.fused.triton_tiles import SIZES, number, place, tile


@triton.jit(do_not_specialize=SIZES)
def normalise_rows(
    values,
    weight,
    out,
    inverse,
    rows,
    chunk,
    units,
    epsilon,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """values · inverse · weight; `inverse` is 1 / sqrt(mean of squares + epsilon) of each row."""
    column, exists, begin, end = place(tl.program_id(0), units, rows, chunk, UNIT, CHANNELS)
    scale = number(weight, column, exists)[None, :]
    features = (units * UNIT).to(tl.float32)
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, units, UNIT, ROWS)
        value = number(values, at, mask)
        own = 1.0 / tl.sqrt_rn(tl.sum(value * value, 1) / features + epsilon)
        lines = row + tl.arange(0, ROWS)
        tl.store(inverse + lines, own, mask=lines < end)
        tl.store(out + at, (value * own[:, None] * scale).to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=SIZES)
def row_gradients(
    first,
    second,
    third,
    values,
    weight,
    inverse,
    gradient,
    partial,
    rows,
    chunk,
    units,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    READERS: tl.constexpr,
):
    """The gradient of the values: inverse · (weight · g − scaled · mean of weight · g · scaled), where g is
    the sum of the readers' gradients, and scaled = values · inverse. `partial` is (chunks, features): sums of
    g · scaled over each chunk of rows."""
    column, exists, begin, end = place(tl.program_id(0), units, rows, chunk, UNIT, CHANNELS)
    scale = number(weight, column, exists)[None, :]
    features = (units * UNIT).to(tl.float32)
    sums = tl.zeros((ROWS, CHANNELS), tl.float32)
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, units, UNIT, ROWS)
        g = number(first, at, mask)
        if READERS > 1:
            g += number(second, at, mask)
        if READERS > 2:
            g += number(third, at, mask)
        lines = row + tl.arange(0, ROWS)
        own = number(inverse, lines, lines < end)[:, None]
        scaled = number(values, at, mask) * own
        sums += g * scaled
        g *= scale
        along = (tl.sum(g * scaled, 1) / features)[:, None]
        found = own * (g - scaled * along)
        tl.store(gradient + at, found.to(gradient.dtype.element_ty), mask=mask)
    at = (begin // chunk) * (units * UNIT) + column
    tl.store(partial + at, tl.sum(sums, 0), mask=exists)


@triton.jit(do_not_specialize=SIZES)
def finish_rows(partial, to_weight, chunks, channels, PARTS: tl.constexpr, CHANNELS: tl.constexpr):
    """Adds up the sums of all chunks: the gradient of the weight."""
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    exists = column < channels
    sums = tl.zeros((PARTS, CHANNELS), tl.float32)
    for part in range(0, chunks, PARTS):
        parts = part + tl.arange(0, PARTS)
        at = parts[:, None] * channels + column[None, :]
        sums += tl.load(partial + at, mask=(parts < chunks)[:, None] & exists[None, :], other=0.0)
    tl.store(to_weight + column, tl.sum(sums, 0), mask=exists)


@triton.jit(do_not_specialize=SIZES)
def turn(
    values,
    turns,
    out,
    rows,
    chunk,
    units,
    heads,
    positions,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BACK: tl.constexpr,
):
    """Each head turned by the angles of its position, as the pairs (first half, second half), or turned back.
    A row is one head of one position, a column one pair. `turns` are cosines, then sines."""
    column, exists, begin, end = place(tl.program_id(0), units, rows, chunk, UNIT, CHANNELS)
    pairs = units * UNIT
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, 2 * units, UNIT, ROWS)
        lines = row + tl.arange(0, ROWS)
        angle = (lines // heads % positions)[:, None] * pairs + column[None, :]
        cosine, sine = number(turns, angle, mask), number(turns, angle + positions * pairs, mask)
        if BACK:
            sine = -sine
        one, two = number(values, at, mask), number(values, at + pairs, mask)
        tl.store(out + at, (one * cosine - two * sine).to(out.dtype.element_ty), mask=mask)
        tl.store(out + at + pairs, (one * sine + two * cosine).to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=SIZES)
def silu_product(
    z,
    x,
    out,
    rows,
    chunk,
    units,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """silu(z) · x"""
    column, exists, begin, end = place(tl.program_id(0), units, rows, chunk, UNIT, CHANNELS)
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, units, UNIT, ROWS)
        gate = number(z, at, mask)
        found = gate * tl.sigmoid(gate) * number(x, at, mask)
        tl.store(out + at, found.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=SIZES)
def silu_gradients(
    first,
    z,
    x,
    to_z,
    to_x,
    rows,
    chunk,
    units,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Gradients of z and x, of silu(z) · x."""
    column, exists, begin, end = place(tl.program_id(0), units, rows, chunk, UNIT, CHANNELS)
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, units, UNIT, ROWS)
        g, gate = number(first, at, mask), number(z, at, mask)
        share = tl.sigmoid(gate)
        tl.store(to_x + at, (g * gate * share).to(to_x.dtype.element_ty), mask=mask)
        found = g * number(x, at, mask) * share * (1.0 + gate * (1.0 - share))
        tl.store(to_z + at, found.to(to_z.dtype.element_ty), mask=mask)
