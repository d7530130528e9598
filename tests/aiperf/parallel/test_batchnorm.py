"""Batch norm over a group against torch's own over all images at once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aiperf.parallel.batchnorm import synchronise

SHARES = (3, 5, 4)  # images of each rank
SHAPE = (6, 4, 5)  # channels, height, width


class Sums:
    """Ranks that are threads, and add up by a barrier."""

    def __init__(self, ranks: int) -> None:
        self.table: list[Any] = [None] * ranks
        self.barrier = threading.Barrier(ranks)

    def of(self, rank: int, values: Tensor) -> Tensor:
        self.table[rank] = values.detach()
        self.barrier.wait(30)
        total = torch.stack(self.table).sum(dim=0)
        self.barrier.wait(30)
        return total


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

    sums, modules = Sums(len(SHARES)), [layer(1) for _ in SHARES]
    shares = [share.clone().requires_grad_() for share in images.split(SHARES)]
    outputs: list[Any] = [None] * len(SHARES)

    def rank(number: int) -> None:
        synchronise(modules[number], lambda values: sums.of(number, values))
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
