"""Layers as formulas of torch, with nothing in place and nothing fused: what their modules must compute."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nas import layers
from nas.graph import INPUT, Graph


def both(size: Any) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)


def margins(kernel: Any, padding: Any, dilation: Any = 1) -> tuple[int, ...]:
    halves = tuple(step * (side - 1) // 2 for side, step in zip(both(kernel), both(dilation)))
    return halves if padding is None else both(padding)


def by_hand(graph: Graph, tensors: dict[str, Tensor], examples: Tensor, training: bool) -> Tensor:
    """The graph read a second time, from the formulas, with nothing in place."""
    names = {name: name.rpartition(".") for name in tensors}
    values = {INPUT: examples}
    for node in graph.nodes:
        own = {tensor: tensors[name] for name, (of, _, tensor) in names.items() if of == node.name}
        values[node.name] = formula(node.layer, own, training, *[values[name] for name in node.inputs])
    return values[graph.output]


def formula(
    layer: layers.Layer, own: dict[str, Tensor], training: bool, x: Tensor, *others: Tensor
) -> Tensor:
    """What a layer with these tensors makes of what it reads."""
    match layer:
        case layers.Conv2d(kernel=kernel, stride=stride, padding=padding, dilation=dilation):
            margin = margins(kernel, padding, dilation)
            y = F.conv2d(x, own["weight"], own.get("bias"), stride, margin, dilation, layer.groups)
        case layers.DepthwiseConv2d(kernel=kernel, stride=stride, padding=padding, dilation=dilation):
            margin = margins(kernel, padding, dilation)
            y = F.conv2d(x, own["weight"], own.get("bias"), stride, margin, dilation, x.shape[1])
        case layers.Dense(bias=bias):
            y = x @ own["weight"].T + (own["bias"] if bias else 0)
        case layers.BatchNorm():
            mean, variance = own["running_mean"], own["running_var"]
            if training:
                mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
            scale = own["weight"] / (variance + 1e-5).sqrt()
            y = (x - mean[:, None, None]) * scale[:, None, None] + own["bias"][:, None, None]
        case layers.GroupNorm(num_groups=num, epsilon=epsilon):
            runs = x.reshape(len(x), num, -1)
            runs = runs - runs.mean(2, keepdim=True)
            runs = runs / (runs.square().mean(2, keepdim=True) + epsilon).sqrt()
            y = runs.reshape(x.shape) * own["weight"][:, None, None] + own["bias"][:, None, None]
        case layers.ChannelNorm(epsilon=epsilon):
            away = x - x.mean(1, keepdim=True)
            normal = away / (away.square().mean(1, keepdim=True) + epsilon).sqrt()
            y = normal * own["weight"][:, None, None] + own["bias"][:, None, None]
        case layers.ReLU():
            y = x.clamp(min=0)
        case layers.ReLU6():
            y = x.clamp(0, 6)
        case layers.HardSwish():
            y = x * (x + 3).clamp(0, 6) / 6
        case layers.HardSigmoid():
            y = (x + 3).clamp(0, 6) / 6
        case layers.MaxPool(kernel=kernel, stride=stride, padding=padding, ceil_mode=ceil):
            y = F.max_pool2d(x, kernel, stride, margins(kernel, padding), ceil_mode=ceil)
        case layers.AveragePool(kernel=kernel, stride=stride, padding=padding, ceil_mode=True):
            y = F.avg_pool2d(x, kernel, stride, margins(kernel, padding), ceil_mode=True)
        case layers.AveragePool(kernel=kernel, stride=stride, padding=padding):
            (down, right), (high, wide), (by, across) = (margins(kernel, padding), both(kernel), both(stride))
            y = F.pad(x, (right, right, down, down)).unfold(2, high, by).unfold(3, wide, across).mean((4, 5))
        case layers.AdaptiveAveragePool(size=size):
            (rows, columns), (height, width) = (
                [
                    [(i * side // num, -(-(i + 1) * side // num)) for i in range(num)]
                    for side, num in zip(x.shape[2:], both(size))
                ],
                both(size),
            )
            means = [x[:, :, a:b, c:d].mean((2, 3)) for a, b in rows for c, d in columns]
            y = torch.stack(means, 2).reshape(*x.shape[:2], height, width)
        case layers.GlobalPool():
            y = x.mean((2, 3))
        case layers.Add():
            y = sum(others, x)
        case layers.Concat():
            y = torch.cat([x, *others], 1)
        case layers.ChannelShuffle(num_groups=num):
            y = F.channel_shuffle(x, num)
        case layers.Upsample(factor=factor):
            down, right = both(factor)
            y = x.repeat_interleave(down, 2).repeat_interleave(right, 3)
        case layers.Flatten():
            y = x.reshape(len(x), -1)
        case layers.Dropout(rate=rate):
            y = F.dropout(x, rate, training)
        case layers.Gate():
            y = 2 / (1 + (-others[0]).exp())[:, :, None, None] * x
        case layers.Embedding():
            y = own["weight"][x]
        case layers.Positions():
            y = x + own["weight"]
        case layers.Linear(bias=bias):
            y = x @ own["weight"].T + (own["bias"] if bias else 0)
        case layers.RMSNorm(epsilon=epsilon):
            y = rms_norm(x, own["weight"], epsilon)
        case layers.LayerNorm(epsilon=epsilon):
            y = rms_norm(x - x.mean(2, keepdim=True), own["weight"], epsilon) + own["bias"]
        case layers.GELU():
            y = x * (1 + torch.erf(x / 2**0.5)) / 2
        case layers.SiLU():
            y = x / (1 + (-x).exp())
        case layers.SquaredReLU():
            y = x.clamp(min=0) ** 2
        case layers.Product():
            y = x * others[0]
        case layers.Attention():
            y = attention(layer, own, x, *others)
        case layers.Experts():
            y = experts(layer, own, x)
        case _:
            raise AssertionError(f"no formula for {layer}")
    return y


def rms_norm(x: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * scale


def attention(layer: layers.Attention, own: dict[str, Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Head by head, with a table of what each position reads."""
    positions, width = q.shape[1], q.shape[2] // layer.heads
    place = torch.arange(positions)
    back = place[:, None] - place
    hidden = (back < 0) | (back >= (layer.window or positions))
    parts = []
    for head in range(layer.heads):
        group = head * layer.groups // layer.heads
        query = q[..., head * width : (head + 1) * width]
        key, value = (read[..., group * width : (group + 1) * width] for read in (k, v))
        if layer.head_norm:
            query, key = rms_norm(query, own["query_norm"], 1e-6), rms_norm(key, own["key_norm"], 1e-6)
        if layer.rotary:
            query, key = turned(query, layer.rotary), turned(key, layer.rotary)
        scores = (query @ key.transpose(1, 2) / width**0.5).masked_fill(hidden, -torch.inf)
        powers = (scores - scores.amax(2, keepdim=True)).exp()
        parts.append(powers / powers.sum(2, keepdim=True) @ value)
    return torch.cat(parts, 2)


def turned(x: Tensor, base: float) -> Tensor:
    """Features j and j + w/2 are one complex number, which the angle of the position turns."""
    half = x.shape[2] // 2
    rates = base ** (-torch.arange(half, dtype=torch.float64) / half)
    turns = torch.polar(torch.ones(1, dtype=torch.float64), torch.outer(torch.arange(x.shape[1]), rates))
    found = torch.complex(x[..., :half], x[..., half:]) * turns
    return torch.cat((found.real, found.imag), 2)


def experts(layer: layers.Experts, own: dict[str, Tensor], x: Tensor) -> Tensor:
    """Every expert makes something of every position, and the shares of those that are not chosen are 0."""
    scores = x @ own["router"].T
    which = (scores + own["balance"]).argsort(dim=2, descending=True)[..., : layer.chosen]
    powers = scores.gather(2, which).exp()
    shares = torch.zeros_like(scores).scatter(2, which, powers / powers.sum(2, keepdim=True))
    y = torch.zeros_like(x)
    for expert in range(layer.experts):
        hidden = x @ own["up"][expert].T
        if layer.gated:
            gate = x @ own["gate"][expert].T
            hidden = gate / (1 + (-gate).exp()) * hidden
        else:
            hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
        y = y + shares[..., expert, None] * (hidden @ own["down"][expert].T)
    return y
