"""Optimizers of torch without its compiler, which torch imports with the first optimizer of its own.

That import takes almost as long as that of torch itself, for every rank. It serves compiled programs, so that
they leave the optimizer out; here no program is compiled together with an optimizer.
"""

from __future__ import annotations

from inspect import unwrap
from typing import Any

import torch


class PlainOptimizer(torch.optim.Optimizer):
    """Takes its groups of parameters without importing the compiler. A subclass has a `step` of its own."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        unwrap(torch.optim.Optimizer.add_param_group)(self, param_group)


class SGD(PlainOptimizer, torch.optim.SGD):
    """Makes the steps of torch.optim.SGD."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Makes one step with the current gradients; there is no closure."""
        unwrap(torch.optim.SGD.step)(self)


class AdamW(PlainOptimizer, torch.optim.AdamW):
    """Makes the steps of torch.optim.AdamW."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Makes one step with the current gradients; there is no closure."""
        unwrap(torch.optim.AdamW.step)(self)
