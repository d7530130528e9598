"""Fused convolutions, folded or as matrix products, against torch's own in fp64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from aiperf.engines.fused.image_steps import Folded, Pointwise, is_worth_folding, is_worth_multiplying
from tests.aiperf.engines.test_fused_kernels import expect_alike, in_fp64

KERNELS = ((5, 5), (3, 7), (7, 5), (1, 9), (9, 11))
WIDTHS = ((1, 4), (4, 24), (24, 8), (3, 3), (8, 8))
AREAS = ((8, 8), (5, 2), (7, 12), (4, 4), (3, 6))
PLAIN = [(WIDTHS[(place + turn) % 5], KERNELS[place], AREAS[turn]) for place in range(5) for turn in range(5)]


# bf16 without AVX-512: gradients of torch's plain convolution are off by 0.017 of the largest.
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-5)])
@pytest.mark.parametrize(("widths", "kernel", "area"), PLAIN, ids=str)
def test_it_is_the_convolution(
    widths: tuple[int, int], kernel: tuple[int, int], area: tuple[int, int], dtype: torch.dtype, bound: float
) -> None:
    torch.manual_seed(1)
    reads, channels = widths
    conv = nn.Conv2d(reads, channels, kernel, padding=(kernel[0] // 2, kernel[1] // 2), bias=channels == 4)
    conv = conv.to(dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert is_worth_folding(conv, area[1])
    assert not is_worth_folding(conv, area[1] + 1)
    x = torch.randn(3, reads, *area).to(dtype).to(memory_format=torch.channels_last).requires_grad_()
    expect_convolution(Folded(conv), x, bound)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("area", [(7, 5), (1, 1)])
def test_a_product_of_pixels_is_the_convolution(
    area: tuple[int, int], dtype: torch.dtype, has_bias: bool
) -> None:
    torch.manual_seed(1)
    conv = nn.Conv2d(96, 64, 1, bias=has_bias).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert is_worth_multiplying(conv)
    x = torch.randn(3, 96, *area).to(dtype).to(memory_format=torch.channels_last).requires_grad_()
    expect_convolution(Pointwise(conv), x, 1e-5 if dtype == torch.float32 else 2**-6)


def expect_convolution(step: Folded | Pointwise, x: Tensor, bound: float) -> None:
    """Compares output and all gradients with those of the step's convolution in fp64."""
    conv, (x64,) = step.module, in_fp64(x)
    wide = copy.deepcopy(conv).double()
    with torch.autocast("cpu", torch.bfloat16, enabled=x.dtype == torch.bfloat16):
        found = step(x)
    assert found.is_contiguous(memory_format=torch.channels_last)
    reads, of = [x, *conv.parameters()], [x64, *wide.parameters()]
    expect_alike([found], reads, wide(x64), of, bound, torch.channels_last)


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Conv2d(16, 16, 5, padding=2),
        nn.Conv2d(8, 8, 5, 2, padding=2),
        nn.Conv2d(8, 8, 5),
        nn.Conv2d(8, 8, 5, padding=2, groups=2),
        nn.Conv2d(8, 8, 5, padding=2, dilation=2),
        nn.Conv2d(64, 48, 1),
        nn.Conv2d(64, 64, 1, 2),
        nn.Conv2d(64, 64, 1, padding=1),
        nn.Conv2d(128, 128, 1, groups=2),
        nn.Conv2d(64, 64, (1, 3), padding=(0, 1)),
    ],
    ids=str,
)
def test_others_stay_as_they_are(conv: nn.Conv2d) -> None:
    assert not is_worth_folding(conv, 8)
    assert not is_worth_multiplying(conv)
    hooked = nn.Conv2d(8, 8, 5, padding=2)
    assert is_worth_folding(hooked, 8)
    hooked.register_forward_pre_hook(lambda module, inputs: None)  # dropout, if it is the last layer
    assert not is_worth_folding(hooked, 8)
