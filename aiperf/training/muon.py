"""Muon for the matrices of a network, AdamW for everything else, as one optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

COEFFICIENTS, ITERATIONS, LEAST_NORM = (3.4445, -4.7750, 2.0315), 5, 1e-7
"""Coefficients of the Newton-Schulz iteration: Jordan et al., "Muon: An optimizer for hidden layers in neural
networks", 2024, https://kellerjordan.github.io/posts/muon. Singular values come to between about 0.7 and
1.2."""
LIKE_ADAMW = 0.2
"""Times the root of the longer side: an update is then as large as AdamW's, at the same learning rate and
decay (Liu et al., "Muon is Scalable for LLM Training", arXiv:2502.16982)."""


class Muon(torch.optim.Optimizer):
    """Groups with the key "muon" hold matrices, the others are AdamW's.

    torch.optim.Muon is of matrices alone, of torch 2.9 and later, and multiplies in bf16 on any device. This
    one takes batches of matrices as well, (experts, rows, columns), each by itself. A convolution is the
    matrix (channels, all that one channel reads).
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        """A group states all that its steps depend on: Horovod makes the optimizer again of its groups."""
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            if group["muon"]:
                for tensor in group["params"]:
                    self._orthogonalised(tensor, group)
            else:
                self._by_adamw(group)

    def _orthogonalised(self, tensor: Tensor, group: Mapping[str, Any]) -> None:
        assert tensor.grad is not None
        state, momentum = self.state[tensor], group["betas"][0]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(tensor)
        mean = state["momentum_buffer"].lerp_(tensor.grad, 1 - momentum)
        ahead = tensor.grad.lerp(mean, momentum)  # Nesterov's
        matrices = ahead.flatten(1) if ahead.ndim == 4 else ahead
        update = orthogonal(matrices, group["multiplied"]).to(tensor.dtype)
        size = LIKE_ADAMW * max(matrices.shape[-2:]) ** 0.5
        tensor.mul_(1 - group["lr"] * group["weight_decay"])
        tensor.sub_(update.reshape(tensor.shape), alpha=group["lr"] * size)

    def _by_adamw(self, group: Mapping[str, Any]) -> None:
        tensors = group["params"]
        for tensor in tensors:
            state = self.state[tensor]
            if not state:
                state["step"] = torch.zeros((), device=tensor.device if group["fused"] else "cpu")
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(tensor), torch.zeros_like(tensor)
        states = [self.state[tensor] for tensor in tensors]
        adamw(
            tensors,
            [tensor.grad for tensor in tensors],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            foreach=False,
            fused=group["fused"],
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def orthogonal(matrices: Tensor, multiplied: torch.dtype) -> Tensor:
    """U·Vᵀ of each matrix U·S·Vᵀ of (…, rows, columns), about: by products of that number type."""
    a, b, c = COEFFICIENTS
    found = matrices.to(multiplied).reshape(-1, *matrices.shape[-2:])
    tall = matrices.shape[-2] > matrices.shape[-1]
    found = found.mT if tall else found
    found = found / found.norm(dim=(-2, -1), keepdim=True).clamp(min=LEAST_NORM)
    for _ in range(ITERATIONS):
        gram = found @ found.mT
        # Sums inside the products: bf16 is rounded half as often.
        found = torch.baddbmm(found, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), found, beta=a)
    return (found.mT if tall else found).reshape(matrices.shape)
