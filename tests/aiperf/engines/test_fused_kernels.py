"""Fused batch norm with addition and ReLU, convolutions, and more, against torch's own operations in fp64.

One file, because all kernels are held against the same seeded images and bounds. What takes a backend is
called by the tests of the kernels in Triton, too.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from aiperf.engines.fused.backend import Activation, Backend
from aiperf.engines.fused.c_backend import IN_C
from aiperf.engines.fused.image_steps import (
    Folded,
    Gated,
    Mean,
    Normalise,
    OfPixels,
    Pixels,
    Pointwise,
    is_worth_folding,
    is_worth_multiplying,
)
from aiperf.engines.fused.tensors import Unfit
from aiperf.parallel.batchnorm import synchronise
from nas.layers import Gate
from nas.modules import module_of

SHAPES = [
    (1, 3, 5, 7),
    (2, 1, 3, 3),
    (5, 4, 9, 7),
    (3, 12, 8, 8),
    (2, 16, 4, 4),
    (3, 33, 6, 5),
    (7, 64, 1, 1),
    (2, 2051, 2, 1),  # its vectors cannot be made a multiple of a register's width
]
OTHERS = [
    (1, 1, 1, 1),
    (2, 3, 5, 7),
    (3, 12, 8, 6),
    (2, 33, 4, 4),
    (2, 16, 1, 1),
    (2, 2051, 2, 1),
    (50, 24, 32, 32),
]
"""Shapes for kernels without batch norm."""
STRIDES = [(2, 2), (1, 2), (3, 2), (7, 9)]
LONG = (50, 4, 32, 32)  # enough for threads, and for several runs of blocks in one
# Relative to the largest number compared. bf16 has 8 bits: half a unit in the last place is 2⁻⁹ of a number,
# and what is rounded twice (a sum of two gradients) may be off by a whole one.
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}
WAYS = tuple(product(IN_C.formats, (1, 2, 3), (False, True), Activation))
"""Cases of the kernels: type, readers, whether a residual is added, activation."""
ROUND = [(SHAPES[place % len(SHAPES)], *way) for place, way in enumerate(WAYS)]


@pytest.fixture
def backend() -> Backend:
    return IN_C


def norm(channels: int) -> nn.BatchNorm2d:
    module = nn.BatchNorm2d(channels)
    module.num_batches_tracked = None
    module.weight.data.uniform_(0.5, 2).mul_(torch.randn(channels).sign())
    module.bias.data.normal_()
    assert module.running_mean is not None
    assert module.running_var is not None
    module.running_mean.normal_()
    module.running_var.uniform_(0.5, 2)
    return module


def images(shape: tuple[int, ...], dtype: torch.dtype, offset: float = 0.5) -> Tensor:
    return (torch.randn(shape) * 2 + offset).to(dtype).to(memory_format=torch.channels_last).requires_grad_()


def seeded(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    torch.manual_seed(1)
    return images(shape, dtype, 0.0)


def in_fp64(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def expect_close(found: Tensor | None, expected: Tensor | None, bound: float) -> None:
    assert found is not None
    assert expected is not None
    assert found.shape == expected.shape
    scale = float(expected.detach().abs().max()) + 1e-3
    assert float((found.detach().double() - expected.detach()).abs().max()) <= bound * scale


def expect_alike(
    outs: Sequence[Tensor],
    reads: Sequence[Tensor],
    expected: Tensor,
    of: Sequence[Tensor],
    bound: float | None = None,
    order: torch.memory_format = torch.contiguous_format,
    writes: torch.dtype | None = None,
) -> None:
    """The same outputs, one for each reader, and the same gradients as those of the fp64 tensors `of`. The
    gradients of the outputs lie in memory in this order; the outputs are of the type of the first input, or
    of `writes`."""
    dtype = outs[0].dtype
    gradients = [torch.randn(expected.shape).to(dtype).to(memory_format=order) for _ in outs]
    torch.autograd.backward(list(outs), gradients)
    expected.backward(sum(gradient.double() for gradient in gradients))
    assert {out.dtype for out in outs} == {writes or reads[0].dtype}
    for found, right in (
        *((out, expected) for out in outs),
        *zip([x.grad for x in reads], [x.grad for x in of]),
    ):
        expect_close(found, right, 2 * BOUNDS[dtype] if bound is None else bound)


def activated(values: Tensor, activation: Activation) -> Tensor:
    values = values.clamp(min=0) if activation else values
    return values.clamp(max=6) if activation is Activation.RELU6 else values


@pytest.mark.parametrize(("shape", "dtype", "readers", "added", "activation"), ROUND, ids=str)
def test_training_is_torchs_in_fp64(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    readers: int,
    added: bool,
    activation: Activation,
    backend: Backend,
) -> None:
    """In half of the cases the residual has a batch norm of its own."""
    torch.manual_seed(1)
    x, r, norms = images(shape, dtype), images(shape, dtype), [norm(shape[1])]
    norms += [norm(shape[1])] if added and (readers > 1) != (dtype is torch.float32) else []
    wide = copy.deepcopy(nn.ModuleList(norms)).double()
    gradients = [images(shape, dtype).detach() for _ in range(readers)]
    found = Normalise(backend, norms[0], activation, readers, *norms[1:])(*((x, r) if added else (x,)))
    outs = found if readers > 1 else (found,)
    torch.autograd.backward(outs, gradients)

    x64, r64 = in_fp64(x, r)
    before = wide[0](x64)
    before = before + (wide[1](r64) if len(norms) > 1 else r64) if added else before
    for out in outs:
        assert out.is_contiguous(memory_format=torch.channels_last)
        expect_close(out, activated(before, activation), BOUNDS[dtype])
    # At a tie only rounding says on which side of 0 or 6 a number is: what our own output says is taken.
    passes = torch.ones_like(before)
    passes = passes * (outs[0] > 0) if activation else passes
    passes = passes * (outs[0] < 6) if activation is Activation.RELU6 else passes
    before.backward(sum(gradient.double() for gradient in gradients) * passes)
    bound = 2 * BOUNDS[dtype]
    expect_close(x.grad, x64.grad, bound)
    if added:
        expect_close(r.grad, r64.grad, bound)
    for own, right in zip(norms, wide):
        expect_close(own.weight.grad, right.weight.grad, bound)
        expect_close(own.bias.grad, right.bias.grad, bound)
        expect_close(own.running_mean, right.running_mean, 1e-5)
        expect_close(own.running_var, right.running_var, 1e-5)


@pytest.mark.parametrize("way", WAYS[2::7], ids=str)
def test_so_it_is_on_threads(way: tuple[torch.dtype, int, bool, Activation]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        test_training_is_torchs_in_fp64(LONG, *way, IN_C)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", IN_C.formats)
@pytest.mark.parametrize(("shape", "activation"), [*zip(SHAPES, 3 * list(Activation)), (LONG, 1)], ids=str)
def test_evaluation_is_torchs(
    shape: tuple[int, ...], activation: Activation, dtype: torch.dtype, backend: Backend
) -> None:
    torch.manual_seed(2)
    norms, x, r = (
        nn.ModuleList((norm(shape[1]), norm(shape[1]))).eval(),
        *(images(shape, dtype) for _ in "xr"),
    )
    before, (module, other) = copy.deepcopy(norms.state_dict()), norms
    other.eps = 0.1
    with torch.inference_mode():
        wide = copy.deepcopy(norms).double()
        # In C the normalised residual is rounded, too, which may be larger than the sum.
        for own, added, times in ((None, r.double(), 1), (other, wide[1](r.double()), 4)):
            found = Normalise(backend, module, activation, of_residual=own)(x, r)
            expect_close(found, activated(wide[0](x.double()) + added, activation), times * BOUNDS[dtype])
    assert all(torch.equal(before[name], tensor) for name, tensor in norms.state_dict().items())


# E[x²] − E[x]² in fp32 would fail.
@pytest.mark.parametrize(("offset", "shape"), [(1000.0, (6, 4, 20, 20)), (-3e4, (6, 4, 20, 20))])
def test_a_mean_far_from_zero_costs_no_digits(
    offset: float, shape: tuple[int, ...], backend: Backend
) -> None:
    torch.manual_seed(3)
    module, x = norm(4), images(shape, torch.float32, offset)
    found = Normalise(backend, module)(x)
    wide = copy.deepcopy(module).double()
    expected = batch_norm(x.detach().double(), None, None, wide.weight, wide.bias, True)
    # What the mean cannot hold in fp32, half a unit in its last place, shifts all.
    expect_close(found, expected, 1e-5 + abs(offset) * 2**-24)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("activation", Activation)
def test_what_is_not_finite_stays_in_its_channel_and_is_not_hidden(
    activation: Activation, wrong: float, backend: Backend
) -> None:
    torch.manual_seed(4)
    module, x = norm(5), images((3, 5, 4, 4), torch.float32)
    with torch.no_grad():
        x[1, 2, 3, 0] = wrong
    found = Normalise(backend, module, activation)(x)
    found.backward(torch.ones_like(found))
    assert x.grad is not None
    assert module.weight.grad is not None
    assert (found[:, 2].isnan().all(), x.grad[:, 2].isnan().all()) == (True, True)
    assert module.weight.grad.isfinite().tolist() == [True, True, False, True, True]
    for each in (found, x.grad):
        assert each[:, [0, 1, 3, 4]].isfinite().all()


def test_no_nan_is_rounded_away() -> None:
    """One of all ones is above what a rounding may add to."""
    module, x = norm(3).eval(), images((2, 3, 4, 5), torch.bfloat16)
    with torch.no_grad():
        module.bias[1] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
        found = Normalise(IN_C, module)(x)
    assert found[:, 1].isnan().all()
    assert found[:, [0, 2]].isfinite().all()


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_not_hidden(wrong: float) -> None:
    torch.manual_seed(5)
    module, x, r = norm(3), images((2, 3, 4, 4), torch.bfloat16), images((2, 3, 4, 4), torch.bfloat16, 9)
    found = Normalise(IN_C, module, Activation.RELU)(x, r)
    gradient = torch.ones_like(found)
    place = (found[:, 1] > 0).nonzero()[0].tolist()
    gradient[place[0], 1, place[1], place[2]] = wrong
    found.backward(gradient)
    assert x.grad is not None
    assert r.grad is not None
    assert not x.grad[:, 1].isfinite().any()
    assert x.grad[:, [0, 2]].isfinite().all()
    assert int((~r.grad.isfinite()).sum()) == 1


def test_what_the_kernels_do_not_take_is_refused() -> None:
    torch.manual_seed(6)
    x, whole = images((2, 3, 4, 5), torch.float32), Normalise(IN_C, norm(3))
    assert whole(x).requires_grad  # else what follows could be refused for anything
    for wrong in (x.contiguous(), x.double(), x.half(), x[:0], x.to("meta")):
        with pytest.raises(Unfit, match=r"in fp32 or bf16 with the channels last, not \w+ \(\d, 3, 4, 5\)"):
            whole(wrong)
        with pytest.raises(Unfit):
            whole(x, wrong)
    for wrong in (x.bfloat16(), x[:1]):
        with pytest.raises(Unfit, match="two tensors of one type"):
            whole(x, wrong)
    with pytest.raises(Unfit, match="parameters in fp32"):
        Normalise(IN_C, norm(3).double())(x)
    with pytest.raises(Unfit, match="no gradient through statistics"):
        Normalise(IN_C, norm(3).eval())(x)


def test_one_value_of_a_channel_teaches_nothing() -> None:
    """Torch says the same; the variance would be divided by zero."""
    one = torch.ones(1, 3, 1, 1).to(memory_format=torch.channels_last)
    for module in (norm(3), Normalise(IN_C, norm(3))):
        with pytest.raises(ValueError, match="more than 1 value"):
            module(one)
    with torch.no_grad():
        assert Normalise(IN_C, norm(3).eval())(one).isfinite().all()


def test_a_batch_norm_over_a_group_is_refused_when_the_step_is_made() -> None:
    module = norm(3)
    synchronise(module, lambda values: values)
    with pytest.raises(Unfit, match="as over a group"):
        Normalise(IN_C, module)


def test_gradients_in_another_order_of_memory_are_taken() -> None:
    torch.manual_seed(8)
    module, x = norm(4), images((3, 4, 5, 6), torch.float32)
    found = Normalise(IN_C, module)(x)
    (expected,) = torch.autograd.grad(found, x, torch.ones_like(found), retain_graph=True)
    (given,) = torch.autograd.grad(found, x, torch.ones(1).expand(3, 4, 5, 6))
    torch.testing.assert_close(given, expected)


@pytest.mark.parametrize("dtype", IN_C.formats)
@pytest.mark.parametrize("shape", OTHERS, ids=str)
def test_mean(shape: tuple[int, ...], dtype: torch.dtype, backend: Backend) -> None:
    x = seeded(shape, dtype)
    (x64,) = in_fp64(x)
    expect_alike([Mean(backend)(x)], [x], x64.mean(dim=(2, 3)), [x64])


@pytest.mark.parametrize("dtype", IN_C.formats)
@pytest.mark.parametrize(("shape", "readers"), [*zip(OTHERS, (1, 2, 3) * 3), (OTHERS[2], 1)], ids=str)
def test_gate(shape: tuple[int, ...], readers: int, dtype: torch.dtype, backend: Backend) -> None:
    x, z = seeded(shape, dtype), torch.randn(shape[:2]).to(dtype).requires_grad_()
    module, found = module_of(Gate(), shape[1:], shape[1:2]), Gated(backend, readers)(x, z)
    x64, z64 = in_fp64(x, z)
    expect_alike(found if readers > 1 else (found,), [x, z], module(x64, z64), [x64, z64])


@pytest.mark.parametrize("dtype", IN_C.formats)
@pytest.mark.parametrize(
    ("shape", "stride"), [*zip(OTHERS, 2 * STRIDES), *zip(OTHERS[1:3], STRIDES)], ids=str
)
def test_pixels_are_those_of_a_strided_convolution(
    shape: tuple[int, ...], stride: tuple[int, int], dtype: torch.dtype
) -> None:
    x = seeded(shape, dtype)
    conv = nn.Conv2d(shape[1], 5, 1, stride, bias=False).to(dtype)
    (x64,) = in_fp64(x)
    expected = nn.functional.conv2d(x64, conv.weight.detach().double(), None, stride)
    assert torch.equal(Pixels(stride)(x), x[:, :, :: stride[0], :: stride[1]])
    expect_alike([OfPixels(conv)(Pixels(stride)(x))], [x], expected, [x64])


def test_what_other_kernels_do_not_take_is_refused() -> None:
    x, z = seeded((2, 3, 4, 6), torch.float32), torch.randn(2, 3)
    for run in (
        Mean(IN_C),
        Pixels((2, 3)),
        lambda given: Gated(IN_C)(given, z),
        Folded(nn.Conv2d(3, 3, 5, padding=2)),
        Pointwise(nn.Conv2d(3, 3, 1)),
    ):
        assert run(x).isfinite().all()  # type: ignore[operator]
        for wrong in (x.contiguous(), x.double()):
            with pytest.raises(Unfit, match="with the channels last"):
                run(wrong)  # type: ignore[operator]
    for other in (z.bfloat16(), z[:1]):
        with pytest.raises(Unfit, match="two tensors of one type"):
            Gated(IN_C)(x, other)


def test_halves_are_rounded_to_the_nearest_and_ties_to_even() -> None:
    """The mean of two of them has one bit too many at the most, which fp32 still holds."""
    x = seeded((40, 64, 2, 1), torch.bfloat16)
    assert torch.equal(Mean(IN_C)(x), x.detach().float().mean(dim=(2, 3)).to(torch.bfloat16))


def test_a_mean_and_a_gate_hide_nothing_that_is_not_finite() -> None:
    x = seeded((2, 3, 4, 4), torch.bfloat16)
    with torch.no_grad():
        x[0, 1, 2, 3] = float("nan")
    z = torch.zeros(2, 3, dtype=torch.bfloat16)
    found = Mean(IN_C)(x)
    assert found.isnan().tolist() == [[False, True, False], [False, False, False]]
    gated = Gated(IN_C)(x, z)
    assert torch.equal(gated.isnan(), x.isnan())


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
