"""Layers of images as formulas of torch, with nothing in place: what their modules must compute."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nas.graph import INPUT, Graph
from nas.layers import (
    AdaptiveAveragePool,
    Add,
    AveragePool,
    BatchNorm,
    ChannelNorm,
    ChannelShuffle,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Dropout,
    Flatten,
    Gate,
    GlobalPool,
    GroupNorm,
    HardSigmoid,
    HardSwish,
    MaxPool,
    ReLU,
    ReLU6,
    Upsample,
)


def both(size: Any) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)


def margins(kernel: Any, padding: Any, dilation: Any = 1) -> tuple[int, ...]:
    halves = tuple(step * (side - 1) // 2 for side, step in zip(both(kernel), both(dilation)))
    return halves if padding is None else both(padding)


def by_hand(graph: Graph, tensors: dict[str, Tensor], images: Tensor, training: bool) -> Tensor:
    """The graph read a second time, from the formulas, with nothing in place."""
    values = {INPUT: images}
    for node in graph.nodes:
        own = {name.removeprefix(f"{node.name}."): tensor for name, tensor in tensors.items()}
        x, *others = [values[name] for name in node.inputs]
        match node.layer:
            case Conv2d(kernel=kernel, stride=stride, padding=padding, dilation=dilation) as layer:
                margin = margins(kernel, padding, dilation)
                y = F.conv2d(x, own["weight"], own.get("bias"), stride, margin, dilation, layer.groups)
            case DepthwiseConv2d(kernel=kernel, stride=stride, padding=padding, dilation=dilation):
                margin = margins(kernel, padding, dilation)
                y = F.conv2d(x, own["weight"], own.get("bias"), stride, margin, dilation, x.shape[1])
            case Dense(bias=bias):
                y = x @ own["weight"].T + (own["bias"] if bias else 0)
            case BatchNorm():
                mean, variance = own["running_mean"], own["running_var"]
                if training:
                    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
                scale = own["weight"] / (variance + 1e-5).sqrt()
                y = (x - mean[:, None, None]) * scale[:, None, None] + own["bias"][:, None, None]
            case GroupNorm(num_groups=num, epsilon=epsilon):
                runs = x.reshape(len(x), num, -1)
                runs = runs - runs.mean(2, keepdim=True)
                runs = runs / (runs.square().mean(2, keepdim=True) + epsilon).sqrt()
                y = runs.reshape(x.shape) * own["weight"][:, None, None] + own["bias"][:, None, None]
            case ChannelNorm(epsilon=epsilon):
                away = x - x.mean(1, keepdim=True)
                normal = away / (away.square().mean(1, keepdim=True) + epsilon).sqrt()
                y = normal * own["weight"][:, None, None] + own["bias"][:, None, None]
            case ReLU():
                y = x.clamp(min=0)
            case ReLU6():
                y = x.clamp(0, 6)
            case HardSwish():
                y = x * (x + 3).clamp(0, 6) / 6
            case HardSigmoid():
                y = (x + 3).clamp(0, 6) / 6
            case MaxPool(kernel=kernel, stride=stride, padding=padding, ceil_mode=ceil):
                y = F.max_pool2d(x, kernel, stride, margins(kernel, padding), ceil_mode=ceil)
            case AveragePool(kernel=kernel, stride=stride, padding=padding, ceil_mode=True):
                y = F.avg_pool2d(x, kernel, stride, margins(kernel, padding), ceil_mode=True)
            case AveragePool(kernel=kernel, stride=stride, padding=padding):
                (down, right), (high, wide), (by, across) = (
                    margins(kernel, padding),
                    both(kernel),
                    both(stride),
                )
                y = (
                    F.pad(x, (right, right, down, down))
                    .unfold(2, high, by)
                    .unfold(3, wide, across)
                    .mean((4, 5))
                )
            case AdaptiveAveragePool(size=size):
                (rows, columns), (height, width) = (
                    [
                        [(i * side // num, -(-(i + 1) * side // num)) for i in range(num)]
                        for side, num in zip(x.shape[2:], both(size))
                    ],
                    both(size),
                )
                means = [x[:, :, a:b, c:d].mean((2, 3)) for a, b in rows for c, d in columns]
                y = torch.stack(means, 2).reshape(*x.shape[:2], height, width)
            case GlobalPool():
                y = x.mean((2, 3))
            case Add():
                y = sum(others, x)
            case Concat():
                y = torch.cat([x, *others], 1)
            case ChannelShuffle(num_groups=num):
                y = F.channel_shuffle(x, num)
            case Upsample(factor=factor):
                down, right = both(factor)
                y = x.repeat_interleave(down, 2).repeat_interleave(right, 3)
            case Flatten():
                y = x.reshape(len(x), -1)
            case Dropout(rate=rate):
                y = F.dropout(x, rate, training)
            case Gate():
                y = 2 / (1 + (-others[0]).exp())[:, :, None, None] * x
        values[node.name] = y
    return values[graph.output]
