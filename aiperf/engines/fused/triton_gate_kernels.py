"""The kernels in Triton of gates and means, for images whose channels are last in memory. A chunk is one
image, of which one program reads all pixels of some channels."""

from __future__ import annotations

import triton
import triton.language as tl

from aiperf.engines.fused.triton_tiles import SIZES, gradient_of, number, place, tile


@triton.jit(do_not_specialize=SIZES)
def gate(
    images,
    gates,
    out,
    rows,
    chunk,
    units,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Images times the gate of their channel; a chunk is one image."""
    column, exists, begin, end = place(tl.program_id(0), units, rows, chunk, UNIT, CHANNELS)
    factor = number(gates, (begin // chunk) * (units * UNIT) + column, exists)[None, :]
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, units, UNIT, ROWS)
        tl.store(out + at, (number(images, at, mask) * factor).to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=SIZES)
def gate_gradients(
    first,
    second,
    images,
    gates,
    gradient,
    to_gates,
    rows,
    chunk,
    units,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    HAS_SECOND: tl.constexpr,
):
    """Gradients of the images, and of each gate: a sum over its image, which one program reads."""
    column, exists, begin, end = place(tl.program_id(0), units, rows, chunk, UNIT, CHANNELS)
    own = (begin // chunk) * (units * UNIT) + column
    factor = number(gates, own, exists)[None, :]
    sums = tl.zeros((ROWS, CHANNELS), tl.float32)
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, units, UNIT, ROWS)
        g = gradient_of(first, second, at, mask, HAS_SECOND)
        sums += g * number(images, at, mask)
        tl.store(gradient + at, (g * factor).to(gradient.dtype.element_ty), mask=mask)
    tl.store(to_gates + own, tl.sum(sums, 0).to(to_gates.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=SIZES)
def mean(
    images,
    out,
    rows,
    chunk,
    units,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The mean of each channel of each image; a chunk is one image."""
    column, exists, begin, end = place(tl.program_id(0), units, rows, chunk, UNIT, CHANNELS)
    sums = tl.zeros((ROWS, CHANNELS), tl.float32)
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, units, UNIT, ROWS)
        sums += number(images, at, mask)
    found = tl.sum(sums, 0) / (end - begin).to(tl.float32)
    at = (begin // chunk) * (units * UNIT) + column
    tl.store(out + at, found.to(out.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=SIZES)
def mean_gradient(
    gradient,
    out,
    rows,
    chunk,
    units,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The gradient of a mean, shared equally by the pixels of its image."""
    column, exists, begin, end = place(tl.program_id(0), units, rows, chunk, UNIT, CHANNELS)
    own = number(gradient, (begin // chunk) * (units * UNIT) + column, exists)
    share = (own / (end - begin).to(tl.float32)).to(out.dtype.element_ty)[None, :]
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, units, UNIT, ROWS)
        tl.store(out + at, tl.broadcast_to(share, (ROWS, CHANNELS)), mask=mask)
