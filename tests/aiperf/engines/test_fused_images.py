"""The mean, the gate and the pixels of images against torch's own operations in fp64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from aiperf.engines.fused.folded import Folded
from aiperf.engines.fused.images import Gated, Mean, OfPixels, Pixels
from aiperf.engines.fused.tensors import Unfit
from nas.layers import Gate
from nas.modules import module_of

SHAPES = [
    (1, 1, 1, 1),
    (2, 3, 5, 7),
    (3, 12, 8, 6),
    (2, 33, 4, 4),
    (2, 16, 1, 1),
    (2, 2051, 2, 1),
    (50, 24, 32, 32),
]
STRIDES = [(2, 2), (1, 2), (3, 2), (7, 9)]
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2**-7}


def images(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(shape).to(dtype).to(memory_format=torch.channels_last).requires_grad_()


def expect_close(found: Tensor | None, expected: Tensor | None, bound: float) -> None:
    assert found is not None
    assert expected is not None
    scale = float(expected.detach().abs().max()) + 1e-3
    assert float((found.detach().double() - expected.detach()).abs().max()) <= bound * scale


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mean(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = images(shape, dtype)
    x64 = x.detach().double().requires_grad_()
    found, expected = Mean()(x), x64.mean(dim=(2, 3))
    gradient = torch.randn(shape[:2]).to(dtype)
    found.backward(gradient)
    expected.backward(gradient.double())
    assert found.dtype == dtype
    expect_close(found, expected, BOUNDS[dtype])
    expect_close(x.grad, x64.grad, BOUNDS[dtype])


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(("shape", "readers"), [*zip(SHAPES, (1, 2, 3) * 3), (SHAPES[2], 1)], ids=str)
def test_gate(shape: tuple[int, ...], readers: int, dtype: torch.dtype) -> None:
    x, z = images(shape, dtype), torch.randn(shape[:2]).to(dtype).requires_grad_()
    module = module_of(Gate(), shape[1:], shape[1:2])
    x64, z64 = (tensor.detach().double().requires_grad_() for tensor in (x, z))
    found, expected = Gated(readers)(x, z), module(x64, z64)
    outs = found if readers > 1 else (found,)
    gradients = [torch.randn(shape).to(dtype) for _ in outs]
    torch.autograd.backward(outs, gradients)
    expected.backward(sum(gradient.double() for gradient in gradients))
    for out in outs:
        expect_close(out, expected, 2 * BOUNDS[dtype])
    expect_close(x.grad, x64.grad, 2 * BOUNDS[dtype])
    expect_close(z.grad, z64.grad, 2 * BOUNDS[dtype])


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(
    ("shape", "stride"), [*zip(SHAPES, 2 * STRIDES), *zip(SHAPES[1:3], STRIDES)], ids=str
)
def test_pixels_are_those_of_a_strided_convolution(
    shape: tuple[int, ...], stride: tuple[int, int], dtype: torch.dtype
) -> None:
    x = images(shape, dtype)
    conv = nn.Conv2d(shape[1], 5, 1, stride, bias=False).to(dtype)
    expected_x = x.detach().double().requires_grad_()
    expected = nn.functional.conv2d(expected_x, conv.weight.detach().double(), None, stride)
    found = OfPixels(conv)(Pixels(stride)(x))
    gradient = torch.randn(expected.shape).to(dtype)
    found.backward(gradient)
    expected.backward(gradient.double())
    assert torch.equal(Pixels(stride)(x), x[:, :, :: stride[0], :: stride[1]])
    expect_close(found, expected, 2 * BOUNDS[dtype])
    expect_close(x.grad, expected_x.grad, 2 * BOUNDS[dtype])


def test_what_the_kernels_do_not_take_is_refused() -> None:
    x, z = images((2, 3, 4, 6), torch.float32), torch.randn(2, 3)
    for run in (
        Mean(),
        Pixels((2, 3)),
        lambda given: Gated()(given, z),
        Folded(nn.Conv2d(3, 3, 5, padding=2)),
    ):
        assert run(x).isfinite().all()  # type: ignore[operator]
        for wrong in (x.contiguous(), x.double()):
            with pytest.raises(Unfit, match="with the channels last"):
                run(wrong)  # type: ignore[operator]
    for other in (z.bfloat16(), z[:1]):
        with pytest.raises(Unfit, match="two tensors of one type"):
            Gated()(x, other)


def test_halves_are_rounded_to_the_nearest_and_ties_to_even() -> None:
    """The mean of two of them has one bit too many at the most, which fp32 still holds."""
    x = images((40, 64, 2, 1), torch.bfloat16)
    assert torch.equal(Mean()(x), x.detach().float().mean(dim=(2, 3)).to(torch.bfloat16))


def test_what_is_not_finite_is_not_hidden() -> None:
    x = images((2, 3, 4, 4), torch.bfloat16)
    with torch.no_grad():
        x[0, 1, 2, 3] = float("nan")
    z = torch.zeros(2, 3, dtype=torch.bfloat16)
    found = Mean()(x)
    assert found.isnan().tolist() == [[False, True, False], [False, False, False]]
    gated = Gated()(x, z)
    assert torch.equal(gated.isnan(), x.isnan())
