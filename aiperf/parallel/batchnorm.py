"""Batch norm over all images of a step instead of a rank's share of them.

torch's own works only on some devices, and only through torch.distributed: it is used on CUDA under DDP. The
other one works wherever a group can sum, by three all-reduces and whole tensors in fp32 for each layer. Their
operations per image are counted as those of any batch norm (docs/score.md, Operations).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.nn.modules._functions import SyncBatchNorm

Sum = Callable[[Tensor], Tensor]
"""Element-wise sum over the group."""

IMAGES_AND_PLACE = (0, 2, 3)
"""Dimensions over which the statistics of a channel are taken: images, height and width."""


def synchronise(network: nn.Module, sum_over_group: Sum) -> None:
    """Makes every batch norm of the network take its statistics over the whole group."""
    _replace_training(network, partial(_by_sums, sum_over_group))


def synchronise_natively(network: nn.Module) -> None:
    """The same by torch's kernels for CUDA, over the default process group."""
    _replace_training(network, _by_kernels)


def _replace_training(network: nn.Module, train: Callable[[nn.BatchNorm2d, Tensor], Tensor]) -> None:
    """The modules' `forward` is replaced, and not the modules, because the network's plan refers to them
    too."""

    def forward(module: nn.BatchNorm2d, images: Tensor) -> Tensor:
        return train(module, images) if module.training else nn.BatchNorm2d.forward(module, images)

    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.forward = partial(forward, module)  # type: ignore[method-assign]


def _by_kernels(module: nn.BatchNorm2d, images: Tensor) -> Tensor:
    """The function behind torch.nn.SyncBatchNorm, without the module: the network keeps its own."""
    group = dist.group.WORLD
    assert group is not None
    normalised: Tensor = SyncBatchNorm.apply(
        images,
        module.weight,
        module.bias,
        module.running_mean,
        module.running_var,
        module.eps,
        module.momentum,
        group,
        group.size(),
    )
    return normalised


def _by_sums(sum_over_group: Sum, module: nn.BatchNorm2d, images: Tensor) -> Tensor:
    normalised: Tensor = _Synchronised.apply(images, module, module.weight, module.bias, sum_over_group)  # type: ignore[no-untyped-call]
    return normalised


class _Synchronised(torch.autograd.Function):
    """Batch norm as one operation of autograd, with three sums over the group: two forward, one backward."""

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, module: nn.BatchNorm2d, weight: Tensor, bias: Tensor, sum_over_group: Sum
    ) -> Tensor:
        wide = images.float()
        own = wide.new_full((1,), images.numel() // images.shape[1])
        local_variance, local_mean = torch.var_mean(wide, dim=IMAGES_AND_PLACE, correction=0)
        sums = sum_over_group(torch.cat([own, own * local_mean]))
        count, mean = sums[0], sums[1:] / sums[0]
        # From deviations from the group's mean, because E[x²] − E[x]² would cancel most digits.
        variance = sum_over_group(own * (local_variance + (local_mean - mean).square())) / count
        _remember(module, mean, variance, count)
        ctx.save_for_backward(images, weight, mean, variance, count)
        ctx.eps, ctx.sum = module.eps, sum_over_group
        return batch_norm(images, mean, variance, weight, bias, training=False, eps=module.eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, Tensor, Tensor, None]:
        """Gradients as in Ioffe and Szegedy, "Batch Normalization", ICML 2015, section 3, with sums over the
        group."""
        images, weight, mean, variance, count = ctx.saved_tensors
        gradient = gradients[0].float()
        scale = (variance + ctx.eps).rsqrt()
        normalised = (images.float() - _wide(mean)) * _wide(scale)
        to_bias = gradient.sum(IMAGES_AND_PLACE)
        to_weight = (gradient * normalised).sum(IMAGES_AND_PLACE)
        # The parameters get local sums, because their gradients are averaged over the group anyway; the
        # images need the sums over the group.
        bias_sum, weight_sum = ctx.sum(torch.cat([to_bias, to_weight])).chunk(2)
        inner = gradient - _wide(bias_sum / count) - normalised * _wide(weight_sum / count)
        to_images = (inner * _wide(scale * weight)).to(images.dtype)
        return to_images, None, to_weight, to_bias, None


def _remember(module: nn.BatchNorm2d, mean: Tensor, variance: Tensor, count: Tensor) -> None:
    """Updates the running statistics as torch does, with the unbiased variance."""
    assert module.momentum is not None
    assert module.running_mean is not None
    assert module.running_var is not None
    with torch.no_grad():
        module.running_mean.lerp_(mean, module.momentum)
        module.running_var.lerp_(variance * (count / (count - 1)), module.momentum)


def _wide(values: Tensor) -> Tensor:
    """Values per channel (channels,), in a shape that broadcasts with (images, channels, height, width)."""
    return values[:, None, None]
