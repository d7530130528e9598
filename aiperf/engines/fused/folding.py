"""Wide convolutions of few channels, computed as convolutions of twice the channels over half the width.

A register holds 16 numbers of 32 bits, and oneDNN fills it with channels: a convolution to 4 or 8 channels
uses a quarter or a half of it. With the channels last in memory, two neighbouring pixels of C channels are
one pixel of 2C channels, so the same memory is an image of half the width. The kernel that computes the same
there contains zeros: for a width of 5 pixels there is a fifth more to multiply, for 3 pixels twice as much,
which does not pay. A number that is not finite reaches one more pixel, because zero times infinity is not a
number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from aiperf.engines.fused.tensors import is_own, refuse_unfit

PIXELS = 2
"""Number of pixels that become one. With 4 there are too many zeros."""
LEAST_KERNEL, MOST_CHANNELS = 5, 8
"""Minimum width of the kernel, and maximum number of channels on the narrower side, for which folding was
measured to pay: 1.2 to 1.5 times as fast, forward and backward. With 24 to 16 channels a convolution took 1.1
times as long."""


def is_worth_folding(conv: nn.Conv2d, columns: int) -> bool:
    """Whether a convolution of images with `columns` pixels per row can be folded, and is faster so."""
    height, width = conv.kernel_size
    plain = type(conv) is nn.Conv2d and conv.stride == conv.dilation == (1, 1) and conv.groups == 1
    centred = conv.padding == ((height - 1) // 2, (width - 1) // 2) and height % 2 and width % 2
    narrow = min(conv.in_channels, conv.out_channels) <= MOST_CHANNELS
    whole = columns % PIXELS == 0 and is_own(conv)
    return bool(plain and whole and centred and narrow and width >= LEAST_KERNEL)


@dataclass(frozen=True, eq=False)
class Folded:
    """A step of the plan: a folded convolution of images (batch, channels, height, width). Raises Unfit."""

    module: nn.Conv2d

    def __call__(self, images: Tensor) -> Tensor:
        conv = self.module
        batch, channels, height, width = images.shape
        refuse_unfit(images)
        flat = images.permute(0, 2, 3, 1).reshape(batch, height, width // PIXELS, PIXELS * channels)
        bias = None if conv.bias is None else conv.bias.repeat(PIXELS)
        kernel = _folded(conv.weight)
        padding = (kernel.shape[2] // 2, kernel.shape[3] // 2)
        out = conv2d(flat.permute(0, 3, 1, 2), kernel, bias, padding=padding)
        return out.permute(0, 2, 3, 1).reshape(batch, height, width, -1).permute(0, 3, 1, 2)


def _folded(weight: Tensor) -> Tensor:
    """The folded kernel of a weight (channels out, channels in, height, width): twice the channels out and
    in, the same height, fewer columns."""
    channels, reads, height, width = weight.shape
    taps = weight.reshape(-1, width) @ _places(width).to(weight.dtype)
    taps = taps.view(channels, reads, height, PIXELS, PIXELS, -1).permute(3, 0, 4, 1, 2, 5)
    return taps.reshape(PIXELS * channels, PIXELS * reads, height, -1)


@cache
@torch.inference_mode(False)  # it is kept, and read where gradients are computed
def _places(width: int) -> Tensor:
    """(width, pixel out x pixel in x column): 1 where a tap of the kernel goes, else 0."""
    margin = width // 2
    around = -(-margin // PIXELS)
    found = torch.zeros(width, PIXELS, PIXELS, 2 * around + 1)
    for out in range(PIXELS):
        for read in range(PIXELS):
            for column in range(-around, around + 1):
                tap = PIXELS * column + read - out + margin
                if 0 <= tap < width:
                    found[tap, out, read, column + around] = 1
    return found.view(width, -1)
