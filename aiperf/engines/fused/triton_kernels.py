"""The kernels in Triton of batch norms, for images whose channels are last in memory.

Each reads images as a matrix: rows are pixels, columns are channels. Sums are made in fp32: each program
writes those of its rows, and a finalising kernel adds these up in a fixed order. Nothing is atomic, so
results are the same in each run.
"""

from __future__ import annotations

import triton
import triton.language as tl

from aiperf.engines.fused.triton_tiles import SIZES, gradient_of, number, place, tile

NOTHING: tl.constexpr = tl.constexpr(0)
FROM_IMAGES: tl.constexpr = tl.constexpr(1)
FROM_BITS: tl.constexpr = tl.constexpr(2)
"""How it is known which gradients an activation cut off: none, from its input computed again, from a bit for
each element."""
RELU6: tl.constexpr = tl.constexpr(2)
"""As in `backend.Activation`."""


@triton.jit(do_not_specialize=SIZES)
def sum_images(
    images,
    partial,
    rows,
    chunk,
    units,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Mean, and sum of squared distances from it, of each channel over each chunk of rows.

    `partial` is (2, chunks, channels). Sums are of the distance from the chunk's first row, because in fp32
    E[x²] − E[x]² has no digits left if the mean is far from 0.
    """
    column, exists, begin, end = place(tl.program_id(0), units, rows, chunk, UNIT, CHANNELS)
    channels = units * UNIT
    shift = number(images, begin.to(tl.int64) * channels + column, exists)
    one = tl.zeros((ROWS, CHANNELS), tl.float32)
    two = tl.zeros((ROWS, CHANNELS), tl.float32)
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, units, UNIT, ROWS)
        away = tl.where(mask, number(images, at, mask) - shift[None, :], 0.0)
        one += away
        two += away * away
    sums, count = tl.sum(one, 0), (end - begin).to(tl.float32)
    at = (begin // chunk) * channels + column
    tl.store(partial + at, shift + sums / count, mask=exists)
    chunks = tl.cdiv(rows, chunk)
    tl.store(partial + chunks * channels + at, tl.sum(two, 0) - sums * (sums / count), mask=exists)


@triton.jit(do_not_specialize=SIZES)
def finish_statistics(
    partial,
    statistics,
    running_mean,
    running_variance,
    rows,
    chunk,
    channels,
    momentum,
    epsilon,
    PARTS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Mean and 1 / deviation of each channel from the sums of its chunks, by the formula of Chan, Golub and
    LeVeque (1979); moves the running statistics."""
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    exists = column < channels
    chunks = tl.cdiv(rows, chunk)
    shift = tl.load(partial + column, mask=exists, other=0.0)
    one = tl.zeros((PARTS, CHANNELS), tl.float32)
    two = tl.zeros((PARTS, CHANNELS), tl.float32)
    for part in range(0, chunks, PARTS):
        parts = part + tl.arange(0, PARTS)
        at = parts[:, None] * channels + column[None, :]
        mask = (parts < chunks)[:, None] & exists[None, :]
        count = tl.minimum(rows - parts * chunk, chunk).to(tl.float32)[:, None]
        away = tl.where(mask, tl.load(partial + at, mask=mask, other=0.0) - shift[None, :], 0.0)
        one += count * away
        two += count * away * away + tl.load(partial + chunks * channels + at, mask=mask, other=0.0)
    total = rows.to(tl.float32)
    sums = tl.sum(one, 0)
    mean = shift + sums / total
    # Not tl.maximum: NaN must stay NaN.
    squares = tl.sum(two, 0) - sums * (sums / total)
    variance = tl.where(squares < 0.0, 0.0, squares) / total
    tl.store(statistics + column, mean, mask=exists)
    tl.store(statistics + channels + column, 1.0 / tl.sqrt_rn(variance + epsilon), mask=exists)
    old = tl.load(running_mean + column, mask=exists)
    tl.store(running_mean + column, old + momentum * (mean - old), mask=exists)
    old = tl.load(running_variance + column, mask=exists)
    # The running variance is the unbiased one, as torch's; the batch itself is normalised by the biased one.
    learnt = variance * (total / (total - 1.0))
    tl.store(running_variance + column, old + momentum * (learnt - old), mask=exists)


@triton.jit
def _cut_off(value, ACTIVATION: tl.constexpr):
    """The activation. Comparisons let NaN through."""
    if ACTIVATION != NOTHING:
        value = tl.where(value < 0.0, 0.0, value)
    if ACTIVATION == RELU6:
        value = tl.where(value > 6.0, 6.0, value)
    return value


@triton.jit
def _is_cut(value, ACTIVATION: tl.constexpr):
    """Where the activation lets no gradient through: never that of a NaN, which must not be turned into 0."""
    cut = value <= 0.0
    if ACTIVATION == RELU6:
        cut = cut | (value >= 6.0)
    return cut


@triton.jit
def _bytes(row, block, units, UNIT: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Offsets of the bits of the tile that begins at `row`: 8 of its elements a byte, one tile after the
    other. Kernels that read images in other chunks have the same tiles."""
    blocks = tl.cdiv(units * UNIT, CHANNELS)
    tiles = tl.cast(row // ROWS, tl.int64) * blocks + block % blocks
    return tiles * (ROWS * CHANNELS // 8) + tl.arange(0, ROWS * CHANNELS // 8)


@triton.jit
def _affine(mean, spread, weight, bias, epsilon, column, exists, OF_VARIANCE: tl.constexpr):
    """Mean, scale and bias of each column. `spread` is the variance, or 1 / deviation."""
    deviation = number(spread, column, exists)
    if OF_VARIANCE:
        deviation = 1.0 / tl.sqrt_rn(deviation + epsilon)
    scale = number(weight, column, exists) * deviation
    return number(mean, column, exists)[None, :], scale[None, :], number(bias, column, exists)[None, :]


@triton.jit(do_not_specialize=SIZES)
def normalise(
    images,
    residual,
    out,
    bits,
    mean,
    spread,
    weight,
    bias,
    residual_mean,
    residual_spread,
    residual_weight,
    residual_bias,
    rows,
    chunk,
    units,
    epsilon,
    residual_epsilon,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    OF_NORM: tl.constexpr,
    MARKS: tl.constexpr,
    OF_VARIANCE: tl.constexpr,
):
    """activation((images − mean) · weight / deviation + bias + residual), with the residual normalised in
    the same way if it is OF_NORM. If it MARKS, it writes a bit for each element that the activation cut
    off."""
    # The last programs begin: what the kernel before has read last may still be cached.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    column, exists, begin, end = place(block, units, rows, chunk, UNIT, CHANNELS)
    middle, scale, offset = _affine(mean, spread, weight, bias, epsilon, column, exists, OF_VARIANCE)
    if OF_NORM:
        other_middle, other_scale, other_offset = _affine(
            residual_mean,
            residual_spread,
            residual_weight,
            residual_bias,
            residual_epsilon,
            column,
            exists,
            OF_VARIANCE,
        )
        offset += other_offset
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, units, UNIT, ROWS)
        value = (number(images, at, mask) - middle) * scale + offset
        if OF_NORM:
            value += (number(residual, at, mask) - other_middle) * other_scale
        elif HAS_RESIDUAL:
            value += number(residual, at, mask)
        rounded = _cut_off(value, ACTIVATION).to(out.dtype.element_ty)
        tl.store(out + at, rounded, mask=mask)
        if MARKS:
            cut = tl.reshape(_is_cut(rounded.to(tl.float32), ACTIVATION), (ROWS * CHANNELS // 8, 8))
            packed = tl.sum(cut.to(tl.int32) << tl.arange(0, 8)[None, :], 1)
            tl.store(bits + _bytes(row, block, units, UNIT, ROWS, CHANNELS), packed.to(tl.uint8))


@triton.jit(do_not_specialize=SIZES)
def sum_gradients(
    first,
    second,
    images,
    bits,
    kept,
    partial,
    statistics,
    weight,
    bias,
    rows,
    chunk,
    units,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HAS_SECOND: tl.constexpr,
    CUT: tl.constexpr,
    KEEPS: tl.constexpr,
):
    """Sums of g and of g · normalised images over each chunk of rows, where g is the gradient before the
    activation; writes g, too, if it is the residual's. `partial` is (2, chunks, channels)."""
    block = tl.program_id(0)
    column, exists, begin, end = place(block, units, rows, chunk, UNIT, CHANNELS)
    channels = units * UNIT
    middle = number(statistics, column, exists)[None, :]
    deviation = number(statistics, channels + column, exists)[None, :]
    scale = number(weight, column, exists)[None, :] * deviation
    offset = number(bias, column, exists)[None, :]
    one = tl.zeros((ROWS, CHANNELS), tl.float32)
    two = tl.zeros((ROWS, CHANNELS), tl.float32)
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, units, UNIT, ROWS)
        if CUT == FROM_BITS:
            # Before the images: what is loaded stays in registers while the bits pass through shared memory.
            packed = tl.load(bits + _bytes(row, block, units, UNIT, ROWS, CHANNELS)).to(tl.int32)
            cut = tl.reshape(((packed[:, None] >> tl.arange(0, 8)[None, :]) & 1) != 0, (ROWS, CHANNELS))
        away = number(images, at, mask) - middle
        g = gradient_of(first, second, at, mask, HAS_SECOND)
        if CUT == FROM_IMAGES:
            g = tl.where(_is_cut(away * scale + offset, ACTIVATION), 0.0, g)
        if CUT == FROM_BITS:
            g = tl.where(cut, 0.0, g)
        if KEEPS:
            rounded = g.to(kept.dtype.element_ty)
            tl.store(kept + at, rounded, mask=mask)
            g = rounded.to(tl.float32)  # the sums are of what the next kernel reads
        one += g
        two += tl.where(mask, g * away, 0.0)
    at = (begin // chunk) * channels + column
    tl.store(partial + at, tl.sum(one, 0), mask=exists)
    chunks = tl.cdiv(rows, chunk)
    sums = tl.sum(two * deviation, 0)
    tl.store(partial + chunks * channels + at, sums, mask=exists)


@triton.jit(do_not_specialize=SIZES)
def finish_gradients(
    partial, to_bias, to_weight, chunks, channels, PARTS: tl.constexpr, CHANNELS: tl.constexpr
):
    """Adds up the sums of all chunks: the gradients of bias and weight."""
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    exists = column < channels
    one = tl.zeros((PARTS, CHANNELS), tl.float32)
    two = tl.zeros((PARTS, CHANNELS), tl.float32)
    for part in range(0, chunks, PARTS):
        parts = part + tl.arange(0, PARTS)
        at = parts[:, None] * channels + column[None, :]
        mask = (parts < chunks)[:, None] & exists[None, :]
        one += tl.load(partial + at, mask=mask, other=0.0)
        two += tl.load(partial + chunks * channels + at, mask=mask, other=0.0)
    tl.store(to_bias + column, tl.sum(one, 0), mask=exists)
    tl.store(to_weight + column, tl.sum(two, 0), mask=exists)


@triton.jit(do_not_specialize=SIZES)
def to_images(
    first,
    second,
    images,
    gradient,
    statistics,
    weight,
    bias,
    to_weight,
    to_bias,
    rows,
    chunk,
    units,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HAS_SECOND: tl.constexpr,
    CUT: tl.constexpr,
):
    """The gradient of the images: weight / deviation · (g − mean of g − normalised images · mean of g ·
    normalised images)."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    column, exists, begin, end = place(block, units, rows, chunk, UNIT, CHANNELS)
    total = rows.to(tl.float32)
    middle = number(statistics, column, exists)[None, :]
    deviation = number(statistics, units * UNIT + column, exists)[None, :]
    scale = number(weight, column, exists)[None, :] * deviation
    offset = number(bias, column, exists)[None, :]
    along = deviation * (number(to_weight, column, exists)[None, :] / total)
    shared = number(to_bias, column, exists)[None, :] / total
    for row in range(begin, end, ROWS):
        at, mask = tile(row, end, column, exists, units, UNIT, ROWS)
        away = number(images, at, mask) - middle
        g = gradient_of(first, second, at, mask, HAS_SECOND)
        if CUT == FROM_IMAGES:
            g = tl.where(_is_cut(away * scale + offset, ACTIVATION), 0.0, g)
        found = scale * (g - shared - away * along)
        tl.store(gradient + at, found.to(gradient.dtype.element_ty), mask=mask)
