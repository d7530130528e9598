"""Folded convolutions against the plain ones in fp64."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aiperf.engines.fused.folded import Folded, is_worth_folding

KERNELS = ((5, 5), (3, 7), (7, 5), (1, 9), (9, 11))
WIDTHS = ((1, 4), (4, 24), (24, 8), (3, 3), (8, 8))
AREAS = ((8, 8), (5, 2), (7, 12), (4, 4), (3, 6))
ROUND = [(WIDTHS[(place + turn) % 5], KERNELS[place], AREAS[turn]) for place in range(5) for turn in range(5)]


# bf16 without AVX-512: gradients of torch's plain convolution are off by 0.017 of the largest.
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-5)])
@pytest.mark.parametrize(("widths", "kernel", "area"), ROUND, ids=str)
def test_it_is_the_convolution(
    widths: tuple[int, int],
    kernel: tuple[int, int],
    area: tuple[int, int],
    dtype: torch.dtype,
    bound: float,
) -> None:
    torch.manual_seed(1)
    reads, channels = widths
    conv = nn.Conv2d(reads, channels, kernel, padding=(kernel[0] // 2, kernel[1] // 2), bias=channels == 4)
    conv = conv.to(dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert is_worth_folding(conv, area[1])
    assert not is_worth_folding(conv, area[1] + 1)
    wide = nn.Conv2d(reads, channels, kernel, padding=conv.padding, bias=channels == 4).double()
    wide.load_state_dict(conv.state_dict())
    x = torch.randn(3, reads, *area).to(dtype).to(memory_format=torch.channels_last).requires_grad_()
    x64 = x.detach().double().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        found = Folded(conv)(x)
    expected = wide(x64)
    gradient = torch.randn(expected.shape).to(dtype).to(memory_format=torch.channels_last)
    found.backward(gradient)
    expected.backward(gradient.double())
    assert found.is_contiguous(memory_format=torch.channels_last)
    pairs = [(found, expected), (x.grad, x64.grad)]
    pairs += [(own.grad, other.grad) for own, other in zip(conv.parameters(), wide.parameters())]
    for own, other in pairs:
        assert own is not None
        assert other is not None
        scale = float(other.detach().abs().max())
        assert float((own.detach().double() - other.detach()).abs().max()) <= bound * scale


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Conv2d(16, 16, 5, padding=2),
        nn.Conv2d(8, 8, 5, 2, padding=2),
        nn.Conv2d(8, 8, 5),
        nn.Conv2d(8, 8, 5, padding=2, groups=2),
    ],
    ids=str,
)
def test_others_stay_as_they_are(conv: nn.Conv2d) -> None:
    assert not is_worth_folding(conv, 8)


def test_a_convolution_that_a_hook_belongs_to_stays_as_it_is() -> None:
    conv = nn.Conv2d(8, 8, 5, padding=2)
    assert is_worth_folding(conv, 8)
    conv.register_forward_pre_hook(lambda module, inputs: None)  # dropout, where it is the last layer
    assert not is_worth_folding(conv, 8)
