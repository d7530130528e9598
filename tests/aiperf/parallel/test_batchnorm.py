"""Batch norm over a group against torch's own over all images at once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from aiperf.parallel.batchnorm import synchronise, synchronise_natively
from tests.aiperf.training.test_group_workers import Together

SHARES = (3, 5, 4)  # images of each rank
SHAPE = (6, 4, 5)  # channels, height, width
AREA = (0, 2, 3)


def layer(seed: int) -> nn.BatchNorm2d:
    torch.manual_seed(seed)
    module = nn.BatchNorm2d(SHAPE[0])
    for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
        assert tensor is not None
        tensor.data.uniform_(0.5, 2)
    return module


@pytest.mark.contract
@pytest.mark.parametrize("offset", [0.0, 1000.0])  # E[x²] − E[x]² would fail with the second
def test_it_is_batch_norm_of_all_images(offset: float) -> None:
    torch.manual_seed(0)
    images = torch.randn(sum(SHARES), *SHAPE) * 3 + offset
    gradients = torch.randn_like(images)
    whole = layer(1)
    all_examples = images.clone().requires_grad_()
    expected = whole(all_examples)
    expected.backward(gradients)

    table, barrier = [None] * len(SHARES), threading.Barrier(len(SHARES))
    modules = [layer(1) for _ in SHARES]
    shares = [share.clone().requires_grad_() for share in images.split(SHARES)]
    outputs: list[Any] = [None] * len(SHARES)

    def rank(number: int) -> None:
        synchronise(modules[number], Together(number, table, barrier).sum)
        outputs[number] = modules[number](shares[number])
        outputs[number].backward(gradients.split(SHARES)[number])

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(SHARES))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    close = {"rtol": 1e-4, "atol": 2e-4 if offset else 1e-5}
    torch.testing.assert_close(torch.cat(outputs), expected, **close)
    torch.testing.assert_close(torch.cat([share.grad for share in shares]), all_examples.grad, **close)
    for name in ("weight", "bias"):
        found = sum(getattr(module, name).grad for module in modules)
        torch.testing.assert_close(found, getattr(whole, name).grad, rtol=1e-3, atol=2e-2 if offset else 1e-4)
    for module in modules:
        torch.testing.assert_close(module.running_mean, whole.running_mean)
        torch.testing.assert_close(module.running_var, whole.running_var, rtol=1e-4, atol=1e-5)


def test_an_evaluation_asks_no_other_rank() -> None:
    def never(values: Tensor) -> Tensor:
        raise AssertionError("a rank with fewer batches would not answer")

    module, images = layer(2), torch.randn(4, *SHAPE)
    expected = layer(2).eval()(images)
    synchronise(module, never)
    assert torch.equal(module.eval()(images), expected)


def stats(images: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(images.float(), dim=AREA, correction=0)
    return mean, (variance + eps).rsqrt()


def gather(
    images: Tensor, means: Tensor, inverses: Tensor, mean: Any, var: Any, momentum: Any, eps: Any, counts: Any
) -> tuple[Tensor, Tensor]:
    of_all = (counts[:, None] * means).sum(0) / counts.sum()
    squares = counts[:, None] * (inverses**-2 - eps + (means - of_all).square())
    variance = squares.sum(0) / counts.sum()
    mean.lerp_(of_all, momentum)
    var.lerp_(variance * counts.sum() / (counts.sum() - 1), momentum)
    return of_all, (variance + eps).rsqrt()


def wide(values: Tensor) -> Tensor:
    return values[:, None, None]


def normalise(images: Tensor, weight: Any, bias: Any, mean: Any, inverse: Any, eps: float) -> Tensor:
    return (images - wide(mean)) * wide(inverse * weight) + wide(bias)


def reduce(gradient: Tensor, images: Tensor, mean: Any, inverse: Any, *_: Any) -> tuple[Tensor, ...]:
    sums = gradient.sum(AREA), (gradient * (images - wide(mean))).sum(AREA)
    return (*sums, sums[1] * inverse, sums[0])


def spread(
    gradient: Any, images: Any, mean: Any, inverse: Any, weight: Any, sums: Any, of_images: Any, counts: Any
) -> Tensor:
    count = counts.sum()
    inner = gradient - wide(sums / count) - (images - wide(mean)) * wide(inverse**2 * of_images / count)
    result: Tensor = inner * wide(inverse * weight)
    return result


KERNELS = {
    "batch_norm_stats": stats,
    "batch_norm_gather_stats_with_counts": gather,
    "batch_norm_elemt": normalise,
    "batch_norm_backward_reduce": reduce,
    "batch_norm_backward_elemt": spread,
}
"""What ATen/native/cuda/Normalization.cuh computes, which exists on CUDA only."""


def test_torchs_own_kernels_are_called_as_batch_norm_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    images, gradients = torch.randn(2, 4, *SHAPE) * 3 + 1
    whole, native = layer(1), layer(1)
    mine, theirs = images.clone().requires_grad_(), images.clone().requires_grad_()
    expected = whole(theirs)
    expected.backward(gradients)
    for name, kernel in KERNELS.items():
        monkeypatch.setattr(torch, name, kernel)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        synchronise_natively(native)
        found = native(mine)
        found.backward(gradients)
    finally:
        dist.destroy_process_group()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(native, name), getattr(whole, name))
    for one, other in zip(native.parameters(), whole.parameters()):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)
    native.eval()
    torch.testing.assert_close(native(images), whole.eval()(images))  # without a group
