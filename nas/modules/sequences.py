"""The modules of sequences: (batch, positions, features), and symbols (batch, positions) of int64."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, relu, rms_norm, scaled_dot_product_attention, silu

from nas.layers import (
    GELU,
    Attention,
    Embedding,
    Experts,
    Layer,
    LayerNorm,
    Linear,
    Positions,
    Product,
    RMSNorm,
    Shape,
    SiLU,
    SquaredReLU,
)
from nas.layers.attention import HEAD_NORM_EPSILON
from nas.modules.module_table import Tied, module_of

BALANCE_STEP = 1e-3
"""What is added to or taken from the balance of an expert in a training step: Wang et al., arXiv:2408.15664,
who use sigmoid routers."""


class _Positions(nn.Module):
    """Adds the learned numbers of the positions that there are: one network is timed on texts of several
    lengths."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape))

    def forward(self, values: Tensor) -> Tensor:
        return values + self.weight[: values.shape[1]]


class _Squares(nn.Module):
    """The square of the ReLU, element by element."""

    def forward(self, values: Tensor) -> Tensor:
        positive = relu(values)
        return positive * positive  # `square` would be in fp32 under autocast on CUDA


class _Pairs(nn.Module):
    """The product of two tensors of one shape, element by element."""

    def forward(self, values: Tensor, gates: Tensor) -> Tensor:
        return values * gates


class CausalAttention(nn.Module):
    """Attention of positions to those before them, in torch's own fused kernel where there is one."""

    def __init__(self, layer: Attention, positions: int, width: int) -> None:
        """`positions` is the most that a text has, `width` the features of a head."""
        super().__init__()
        self.layer = layer
        self.positions = positions
        self.width = width
        self._turns: Tensor | None = None
        self._seen: Tensor | None = None
        if layer.head_norm:
            self.query_norm = nn.Parameter(torch.empty(width))
            self.key_norm = nn.Parameter(torch.empty(width))

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Queries (batch, positions, features), keys and values (batch, positions, groups · width) to (batch,
        positions, features). Norms of heads come before the rotation."""
        q, k, v = self.heads(queries), self.heads(keys), self.heads(values)
        if self.layer.head_norm:
            q, k = self._normed(q, self.query_norm), self._normed(k, self.key_norm)
        if self.layer.rotary:
            turns = self.turns_like(q)
            q, k = _turned(q, turns), _turned(k, turns)
        return self.mixed(q, k, v)

    def mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The values that each position reads of those before it, (batch, positions, features), from heads
        that are normalised and turned."""
        if self.layer.groups < self.layer.heads:
            # Not enable_gqa: where a fused kernel lacks it, torch takes one that writes T² numbers per head.
            times = self.layer.heads // self.layer.groups
            k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
        if self.layer.window:
            mixed = scaled_dot_product_attention(q, k, v, self._seen_by(q))
        else:
            mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).flatten(2)

    def _normed(self, values: Tensor, scale: Tensor) -> Tensor:
        """In the wider of both formats, and rounded once. `values` are (batch, heads, positions, width),
        `scale` (width,)."""
        wide = values.to(torch.promote_types(values.dtype, scale.dtype))
        return rms_norm(wide, (self.width,), scale, HEAD_NORM_EPSILON).to(values.dtype)

    def _seen_by(self, values: Tensor) -> Tensor:
        """Which positions each position reads, (positions, positions); made once for a device."""
        if self._seen is None or self._seen.device != values.device:
            place = torch.arange(self.positions, device=values.device)
            back = place[:, None] - place
            self._seen = (back >= 0) & (back < self.layer.window)
        return self._seen[: values.shape[2], : values.shape[2]]

    def heads(self, values: Tensor) -> Tensor:
        """(batch, heads, positions, features of a head)"""
        return torch.unflatten(values, 2, (-1, self.width)).transpose(1, 2)

    def turns_like(self, values: Tensor) -> Tensor:
        """Cosines and sines of the rotary positions, (2, positions, width / 2). They are made once for a
        device and a format: as a buffer they would be cast and stored with the weights."""
        format = torch.promote_types(values.dtype, torch.float32)
        if self._turns is None or (self._turns.device, self._turns.dtype) != (values.device, format):
            table = _turns(self.positions, self.width, self.layer.rotary)
            with torch.inference_mode(False):  # else no gradient could pass it after a validation made it
                self._turns = torch.from_numpy(table).to(values.device, format)
        return self._turns


class _Mixture(nn.Module):
    """Rows are sorted by their expert, each of which makes its own in one product.

    Each position chooses some experts by its scores, and their outputs are added up by the softmax over the
    chosen scores. The balance changes the choice only, not the shares, so no gradient passes through it.
    """

    router: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    balance: Tensor

    def __init__(self, layer: Experts, features: int) -> None:
        super().__init__()
        self.chosen, self.gated = layer.chosen, layer.gated
        for name, shape in layer.weights((1, features)).items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        for name, shape in layer.statistics((1, features)).items():
            self.register_buffer(name, torch.empty(shape))

    def forward(self, values: Tensor) -> Tensor:
        rows = values.flatten(0, -2)
        scores = linear(rows, self.router)
        which = (scores.detach() + self.balance).topk(self.chosen).indices
        wide = torch.promote_types(scores.dtype, torch.float32)
        shares = scores.gather(1, which).softmax(1, dtype=wide)
        chosen = which.flatten()
        load = torch.zeros_like(self.balance, dtype=torch.int64).index_add_(
            0, chosen, torch.ones_like(chosen)
        )
        if self.training:
            self._balance(load)
        # Stable: rows of one expert stay in the order of their positions.
        order = chosen.argsort(stable=True)
        made = self._made(rows[order // self.chosen], self._numbers(load, len(order)))
        outputs = made[order.argsort()].unflatten(0, (-1, self.chosen))
        mixed = (outputs * shares.to(outputs.dtype)[:, :, None]).sum(1)
        return torch.unflatten(mixed, 0, values.shape[:-1])

    def _numbers(self, load: Tensor, rows: int) -> list[int]:
        """How many rows each expert has. The meta device knows none, and then the first has them all. On an
        accelerator this waits for the device."""
        return [rows] + [0] * (len(load) - 1) if load.is_meta else load.tolist()

    def _made(self, rows: Tensor, load: list[int]) -> Tensor:
        """What each expert makes of its rows, which stand one expert after the other."""
        parts = []
        # Not by index, whose backward pass writes the gradient of all experts for each of them.
        weights = zip(self.up.unbind(), (self.gate if self.gated else self.up).unbind(), self.down.unbind())
        for own, (up, gate, down) in zip(rows.split(load), weights):
            hidden = linear(own, up)
            hidden = silu(linear(own, gate)) * hidden if self.gated else gelu(hidden)
            parts.append(linear(hidden, down))
        return torch.cat(parts)

    @torch.no_grad()
    def _balance(self, load: Tensor) -> None:
        """Raises the balance of experts with less than the mean of the positions, and lowers that of the
        others."""
        load = load.to(self.balance.dtype)
        self.balance += BALANCE_STEP * torch.sign(load.mean() - load)


def _turns(positions: int, width: int, base: float) -> np.ndarray:
    """Cosines and sines, (2, positions, width / 2). In fp64: angles in fp32 lose digits at late positions.
    The formula is that of Su et al., "RoFormer" (arXiv:2104.09864): angle = position · base^(−2i / width)."""
    angles = np.outer(np.arange(positions), base ** (-np.arange(0, width, 2) / width))
    return np.stack((np.cos(angles), np.sin(angles)))


def _turned(values: Tensor, turns: Tensor) -> Tensor:
    """Multiplied in the wider of both formats, and rounded once. Pairs are (first half, second half) of a
    head's features; `turns` are cosines and sines."""
    cosines, sines = turns.unbind()
    first, second = values.chunk(2, dim=-1)
    pairs = (first * cosines - second * sines, first * sines + second * cosines)
    return torch.cat(pairs, dim=-1).to(values.dtype)


MODULES: Mapping[type[Layer], Callable[..., nn.Module]] = {
    Embedding: lambda layer, read: nn.Embedding(layer.symbols, layer.features),
    Linear: lambda layer, read: (
        Tied(layer.features, layer.bias)
        if layer.tied
        else nn.Linear(read[1], layer.features, bias=layer.bias)
    ),
    Positions: lambda layer, read: _Positions(read),
    RMSNorm: lambda layer, read: nn.RMSNorm(read[1], eps=layer.epsilon),
    LayerNorm: lambda layer, read: nn.LayerNorm(read[1], eps=layer.epsilon),
    Attention: lambda layer, queries, *_: CausalAttention(layer, queries[0], queries[1] // layer.heads),
    GELU: lambda layer, read: nn.GELU(),
    SiLU: lambda layer, read: nn.SiLU(),
    SquaredReLU: lambda layer, read: _Squares(),
    Product: lambda layer, *reads: _Pairs(),
    Experts: lambda layer, read: _Mixture(layer, read[1]),
}
"""Modules that one call makes, from the layer and the shapes that it reads."""

for kind, make in MODULES.items():
    module_of.register(kind, make)
