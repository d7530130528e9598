"""What each layer's passes take besides the tensors of the graph, for the backward pass or for a moment.

As torch's own modules and autograd do it in eager steps (derivatives.yaml of PyTorch states what an operation
saves). What a library takes inside one operation, as oneDNN's and cuDNN's workspaces, is not in it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from nas.layers import (
    GELU,
    AdaptiveAveragePool,
    Add,
    Attention,
    AveragePool,
    BatchNorm,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Dropout,
    Embedding,
    Experts,
    Flatten,
    Gate,
    GlobalPool,
    LayerNorm,
    Linear,
    MaxPool,
    Positions,
    Product,
    ReLU,
    ReLU6,
    RMSNorm,
    SiLU,
    SquaredReLU,
)
from nas.layers.convolutions import TOO_FEW_CHANNELS
from nas.memory.footprint import INDEX, WIDE, Footprint, Output, Read, footprint


def _product(narrow: int, read: Read) -> Footprint:
    """Autocast copies what a product reads to its format; each reader of a tensor has its own copy."""
    copy = 0 if read.width == narrow else read.num * narrow
    keeps = () if copy else (0,)
    return Footprint(narrow, keeps, inside=copy, backward=copy, narrow_weights=narrow < WIDE)


@footprint.register
def _(layer: Conv2d, narrow: int, *reads: Read) -> Footprint:
    found = _product(narrow, reads[0])
    (channels, *area) = reads[0].shape
    if layer.kernel == 1 and layer.strides != (1, 1) and layer.groups == 1 and channels < TOO_FEW_CHANNELS:
        # nas.modules takes the pixels first, by a pool that keeps what it reads.
        pixels = channels * prod(along.num for along in layer.windows(area)) * narrow
        found = replace(found, keeps=(0,), inside=found.inside + pixels, backward=found.backward + pixels)
    return replace(found, blocked_weights=True)


@footprint.register
def _(layer: DepthwiseConv2d, narrow: int, *reads: Read) -> Footprint:
    return footprint(layer.convolution(reads[0].shape), narrow, *reads)


@footprint.register(Dense)
@footprint.register(Linear)
def _(layer: Dense | Linear, narrow: int, *reads: Read) -> Footprint:
    return _product(narrow, reads[0])


@footprint.register
def _(layer: BatchNorm, narrow: int, *reads: Read) -> Footprint:
    return Footprint(reads[0].width, (0,))


@footprint.register
def _(layer: ReLU, narrow: int, *reads: Read) -> Footprint:
    return Footprint(reads[0].width, keeps_output=True, output=Output.OVER_FIRST)


@footprint.register
def _(layer: ReLU6, narrow: int, *reads: Read) -> Footprint:
    """Its backward pass needs what it read; in place, torch keeps a copy of that."""
    return Footprint(reads[0].width, (0,))


@footprint.register
def _(layer: Add, narrow: int, *reads: Read) -> Footprint:
    width = max(read.width for read in reads)
    in_place = reads[0].width == reads[1].width and len(reads) == 2
    output = Output.OVER_FIRST if in_place else Output.NEW
    return Footprint(width, output=output, passes_on=len({read.width for read in reads}) == 1)


@footprint.register
def _(layer: Positions, narrow: int, *reads: Read) -> Footprint:
    return Footprint(WIDE, passes_on=reads[0].width == WIDE)


@footprint.register
def _(layer: Flatten, narrow: int, *reads: Read) -> Footprint:
    whole = prod(reads[0].shape[1:]) == 1
    return Footprint(reads[0].width, output=Output.VIEW if whole else Output.NEW, passes_on=True)


@footprint.register
def _(layer: MaxPool, narrow: int, *reads: Read) -> Footprint:
    return Footprint(reads[0].width, (0,), inside=INDEX * prod(layer.shape(reads[0].shape)))


@footprint.register(AveragePool)
@footprint.register(AdaptiveAveragePool)
def _(layer: AveragePool | AdaptiveAveragePool, narrow: int, *reads: Read) -> Footprint:
    return Footprint(reads[0].width, (0,))


@footprint.register
def _(layer: GlobalPool, narrow: int, *reads: Read) -> Footprint:
    """Narrow numbers are added up as a copy in fp32."""
    return Footprint(reads[0].width, forward=0 if reads[0].width == WIDE else WIDE * reads[0].num)


@footprint.register
def _(layer: Concat, narrow: int, *reads: Read) -> Footprint:
    """Each input's gradient is a part of the output's."""
    return Footprint(max(read.width for read in reads), passes_on=True)


@footprint.register
def _(layer: Dropout, narrow: int, *reads: Read) -> Footprint:
    return Footprint(reads[0].width, inside=reads[0].bytes)


@footprint.register
def _(layer: Gate, narrow: int, *reads: Read) -> Footprint:
    return Footprint(reads[0].width, (0,), backward=reads[0].bytes)


@footprint.register
def _(layer: Product, narrow: int, *reads: Read) -> Footprint:
    return Footprint(max(read.width for read in reads), (0, 1))


@footprint.register(GELU)
@footprint.register(SiLU)
def _(layer: GELU | SiLU, narrow: int, *reads: Read) -> Footprint:
    return Footprint(reads[0].width, (0,))


@footprint.register
def _(layer: SquaredReLU, narrow: int, *reads: Read) -> Footprint:
    return Footprint(reads[0].width, inside=reads[0].bytes, backward=2 * reads[0].bytes)


@footprint.register
def _(layer: Embedding, narrow: int, *reads: Read) -> Footprint:
    return Footprint(WIDE)


@footprint.register
def _(layer: LayerNorm, narrow: int, *reads: Read) -> Footprint:
    return Footprint(reads[0].width, (0,), inside=2 * WIDE * reads[0].shape[0])


@footprint.register
def _(layer: RMSNorm, narrow: int, *reads: Read) -> Footprint:
    """Step by step on a processor: what is normalised and not yet scaled is kept, too."""
    wide = WIDE * reads[0].num
    return Footprint(WIDE, (0,), inside=wide + WIDE * reads[0].shape[0], backward=wide)


@footprint.register
def _(layer: Attention, narrow: int, *reads: Read) -> Footprint:
    """By a fused kernel, which keeps q, k, v, its output and a number of each row, no square of positions.
    Its output lies as q does: what was turned has its heads apart, and they are put together in a copy."""
    queries, keys = (narrow * read.num for read in reads[:2])
    turned, shared = layer.rotary > 0, layer.groups < layer.heads
    inside = WIDE * layer.heads * reads[0].shape[0]
    inside += 2 * queries * turned + (2 * queries if shared else keys * turned)
    keeps = [] if turned else [0]
    keeps += [] if shared else [2] if turned else [1, 2]
    # Halves are turned in fp32: tensors of a half and of the whole, then the whole in the format.
    turning = turned * (5 if narrow < WIDE else 2)
    most = max(turning * queries, queries + turning * keys)
    return Footprint(
        narrow,
        tuple(keeps),
        keeps_output=not turned,
        inside=inside,
        forward=max(0, most - inside - queries),
        backward=2 * (queries - keys) if shared else 0,
    )


@footprint.register
def _(layer: Experts, narrow: int, *reads: Read) -> Footprint:
    """The rows of each expert in each of its products, what its layers put out, and the order of the rows."""
    (positions, features), chosen = reads[0].shape, layer.chosen
    copied = reads[0].width != narrow
    rows = positions * chosen * features
    matrices, hidden = (2, 4) if layer.gated else (1, 2)
    inside = rows * narrow * ((matrices if copied else 1) + 1) + narrow * positions * features * copied
    inside += positions * chosen * (hidden * layer.hidden * narrow + 3 * INDEX + WIDE + narrow)
    inside += positions * layer.experts * narrow
    return Footprint(
        narrow,
        () if copied else (0,),
        inside=inside,
        forward=rows * narrow,
        backward=2 * rows * reads[0].width,
        narrow_weights=narrow < WIDE,
    )
