"""The optimizer of a trial, with Muon, and its state: what is kept next to the weights, and what a child
continues with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.adamw import adamw

from aiperf.device import Device
from aiperf.device.plain_optimizers import SGD, AdamW, PlainOptimizer
from aiperf.wire.trial import HyperParameters
from nas.matrices import hidden_matrices
from nas.modules import Network, to_device

COEFFICIENTS, ITERATIONS, LEAST_NORM = (3.4445, -4.7750, 2.0315), 5, 1e-7
"""Coefficients of the Newton-Schulz iteration: Jordan et al., "Muon: An optimizer for hidden layers in neural
networks", 2024, https://kellerjordan.github.io/posts/muon. Singular values come to between about 0.7 and
1.2."""
LIKE_ADAMW = 0.2
"""Times the root of the longer side: an update is then as large as AdamW's, at the same learning rate and
decay (Liu et al., "Muon is Scalable for LLM Training", arXiv:2502.16982)."""


class Muon(PlainOptimizer):
    """Groups with the key "muon" hold matrices, the others are AdamW's.

    torch.optim.Muon is of matrices alone, of torch 2.9 and later, and multiplies in bf16 on any device. This
    one takes batches of matrices as well, (experts, rows, columns), each by itself. A convolution is the
    matrix (channels, all that one channel reads). Every group has the same keys, whichever of the two rules
    it follows.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        """A group states all that its steps depend on: Horovod makes the optimizer again of its groups."""
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Makes one step with the current gradients; there is no closure."""
        for group in self.param_groups:
            if group["muon"]:
                for tensor in group["params"]:
                    self._orthogonalised(tensor, group)
            else:
                self._by_adamw(group)

    def _orthogonalised(self, tensor: Tensor, group: Mapping[str, Any]) -> None:
        """Moves a tensor of matrices along its orthogonalised momentum. The decay is decoupled from the
        gradient, as in AdamW."""
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
        """Moves the tensors that are no hidden matrices by torch's own function, so that they move exactly as
        with torch.optim.AdamW."""
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
    """U·Vᵀ of each matrix U·S·Vᵀ of (…, rows, columns), about: by products of that number type. The
    Newton-Schulz iteration needs no singular values. A tall matrix is transposed before and after, so that
    `gram` has the shorter side."""
    a, b, c = COEFFICIENTS
    found = matrices.to(multiplied).reshape(-1, *matrices.shape[-2:])
    tall = matrices.shape[-2] > matrices.shape[-1]
    found = found.mT if tall else found
    # The iteration converges for singular values up to 1, and the Frobenius norm is at least the largest of
    # them.
    found = found / found.norm(dim=(-2, -1), keepdim=True).clamp(min=LEAST_NORM)
    for _ in range(ITERATIONS):
        gram = found @ found.mT
        # Sums inside the products: bf16 is rounded half as often.
        found = torch.baddbmm(found, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), found, beta=a)
    return (found.mT if tall else found).reshape(matrices.shape)


SECOND_BETA, EPSILON = 0.95, 1e-8
"""Decay rates of the two averages of AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization",
ICLR 2019) in language models: Brown et al., "Language Models are Few-Shot Learners", 2020, appendix B."""
FUSED = ("cpu", "cuda", "xpu")
"""Kinds of device for which torch has one kernel for all tensors."""
KEYS: Mapping[str, str] = {
    "momentum": "momentum_buffer",
    "exp_avg": "exp_avg",
    "exp_avg_sq": "exp_avg_sq",
    "step": "step",
}
"""What torch calls each kind of state that is kept."""


def make_optimizer(
    name: str, network: Network, hyper: HyperParameters, device: Device, format: str
) -> torch.optim.Optimizer:
    """One of `aiperf.config.OPTIMIZERS`. Muon multiplies in bf16 where the `format` of training is that.

    Weights of convolutions and products decay, those of embeddings, too; batch norms, other norms and biases
    do not: so nanoGPT (github.com/karpathy/nanoGPT, model.py, `configure_optimizers`) by the same rule.
    """
    tensors, of_muon = network.tensors(), hidden_matrices(network.graph) if name == "muon" else {}
    parameters = [tensor for each, tensor in tensors.items() if tensor.requires_grad and each not in of_muon]
    groups: list[dict[str, Any]] = [
        {"params": [each for each in parameters if each.ndim > 1], "weight_decay": hyper.weight_decay},
        {"params": [each for each in parameters if each.ndim <= 1], "weight_decay": 0.0},
    ]
    rate, momentum, fused = hyper.learning_rate, hyper.momentum, device.kind in FUSED
    # The momentum of the hyper-parameters is AdamW's first decay rate.
    if name == "adamw":
        return AdamW(groups, rate, (momentum, SECOND_BETA), EPSILON, fused=fused)
    if name == "muon":
        matrices = {"params": [tensors[each] for each in of_muon], "weight_decay": hyper.weight_decay}
        same = {
            "lr": rate,
            "betas": (momentum, SECOND_BETA),
            "eps": EPSILON,
            "fused": fused,
            "multiplied": torch.bfloat16 if format == "bf16" else torch.float32,
        }
        return Muon([{**group, **same, "muon": group is matrices} for group in (*groups, matrices)])
    # Torch's defaults: momentum without dampening, and not Nesterov's.
    return SGD(groups, rate, momentum, fused=fused)


def state_of(network: Network, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
    """A copy by kind and tensor, on the device; empty before the first step. The kinds are the keys of
    KEYS."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in network.tensors().items():
        for kind, key in KEYS.items():
            if tensor.requires_grad and key in optimizer.state[tensor]:
                found.setdefault(kind, {})[name] = optimizer.state[tensor][key].clone()
    return found


def set_state(
    network: Network, optimizer: torch.optim.Optimizer, state: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
    """Sets the state of all trained tensors, each kind where and how torch would make it itself.

    Where some tensors have a momentum and others the moments of AdamW, each gets what is its own. `state` is
    by kind and "node.tensor", as in `Kept`; tensors without an entry begin from rest.
    """
    tensors = network.tensors()
    of_muon = {id(each) for group in optimizer.param_groups if group.get("muon") for each in group["params"]}
    for kind, arrays in state.items():
        for name, array in arrays.items():
            if of_muon and (id(tensors[name]) in of_muon) != (kind == "momentum"):
                continue
            tensor, device = tensors[name], tensors[name].device
            # With the strides of the tensor, as torch makes its state.
            own = torch.empty_like(tensor, device="cpu")
            if kind == "step":
                own = torch.empty(())
                device = device if optimizer.param_groups[0]["fused"] else own.device
            own.copy_(torch.from_numpy(array))
            optimizer.state[tensor][KEYS[kind]] = to_device(own, device)
