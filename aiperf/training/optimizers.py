"""The optimizer of a trial, and its state: what is kept beside the weights, and what a child goes on with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aiperf.device import Device
from aiperf.training.muon import Muon
from aiperf.trial import HyperParameters
from nas.matrices import hidden_matrices
from nas.modules import Network

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
    if name == "adamw":
        return torch.optim.AdamW(groups, rate, (momentum, SECOND_BETA), EPSILON, fused=fused)
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
    return torch.optim.SGD(groups, rate, momentum, fused=fused)


def state_of(network: Network, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
    """A copy by kind and tensor, on the device; empty before the first step."""
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

    Where some tensors have a momentum and others the moments of AdamW, each gets what is its own.
    """
    tensors = network.tensors()
    of_muon = {id(each) for group in optimizer.param_groups if group.get("muon") for each in group["params"]}
    for kind, arrays in state.items():
        for name, array in arrays.items():
            if of_muon and (id(tensors[name]) in of_muon) != (kind == "momentum"):
                continue
            own = torch.empty_like(tensors[name])
            if kind == "step":
                fused = optimizer.param_groups[0]["fused"]
                own = torch.empty((), device=own.device if fused else "cpu")
            own.copy_(torch.from_numpy(array))
            optimizer.state[tensors[name]][KEYS[kind]] = own
