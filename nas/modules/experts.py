"""The module of a mixture of experts."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, silu

from nas.layers import Experts, Shape
from nas.modules.module_table import module_of

BALANCE_STEP = 1e-3
"""What is added to or taken from the balance of an expert in a training step: Wang et al., arXiv:2408.15664,
who use sigmoid routers."""


class _Mixture(nn.Module):
    """Rows are sorted by their expert, each of which makes its own in one product."""

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
        order = chosen.argsort(stable=True)
        made = self._made(rows[order // self.chosen], self._numbers(load, len(order)))
        outputs = made[order.argsort()].unflatten(0, (-1, self.chosen))
        mixed = (outputs * shares.to(outputs.dtype)[:, :, None]).sum(1)
        return torch.unflatten(mixed, 0, values.shape[:-1])

    def _numbers(self, load: Tensor, rows: int) -> list[int]:
        """How many rows each expert has. The meta device knows none, and then the first has them all."""
        return [rows] + [0] * (len(load) - 1) if load.is_meta else load.tolist()

    def _made(self, rows: Tensor, load: list[int]) -> Tensor:
        """What each expert makes of its rows, which stand one expert after the other."""
        parts = []
        for expert, own in enumerate(rows.split(load)):
            hidden = linear(own, self.up[expert])
            hidden = silu(linear(own, self.gate[expert])) * hidden if self.gated else gelu(hidden)
            parts.append(linear(hidden, self.down[expert]))
        return torch.cat(parts)

    @torch.no_grad()
    def _balance(self, load: Tensor) -> None:
        """Raises the balance of experts with less than the mean of the positions, and lowers that of the
        others."""
        load = load.to(self.balance.dtype)
        self.balance += BALANCE_STEP * torch.sign(load.mean() - load)


@module_of.register
def _(layer: Experts, *inputs: Shape) -> nn.Module:
    return _Mixture(layer, inputs[0][1])
