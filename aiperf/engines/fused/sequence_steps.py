"""Steps on sequences (batch, positions, features): RMS norm, attention with rotary positions, and a gated
activation.

Torch computes RMS norm and rotary positions on a CPU by five to seven operations each, which all read and
write memory, and under autocast each product casts what the norm has put out again.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from aiperf.engines.fused.c_backend import IN_C
from aiperf.engines.fused.kernels import call
from aiperf.engines.fused.tensors import Unfit, address, for_readers
from nas.modules.sequences import CausalAttention

MOST_READERS = 3
"""Number of gradients that the kernel of the RMS norm adds up: queries, keys and values read one norm."""
WIDE_POSITIONS = 256
"""Maximum number of positions over which attention that is trained in bf16 is computed in fp32: there torch's
backward pass in bf16 takes longer. Heads of 16, 32 and 64 features over 256 positions took 2.5, 1.4 and 1.1
times as long in bf16 with AMX, and 2.8, 2.2 and 1.6 times without; heads of 64 over 1,024 positions 0.65 and
1.2 times."""


@dataclass(frozen=True, eq=False)
class NormaliseRows:
    """A step of the plan: an RMS norm."""

    module: nn.RMSNorm
    readers: int = 1
    """Number of steps that read the result; each gets a tensor of its own."""
    products_only: bool = False
    """Whether all readers are matrix products: under autocast the result is then in their format."""

    def __call__(self, values: Tensor) -> Any:
        """The normalised rows as one tensor, or as a tuple with one tensor for each reader. Raises Unfit."""
        _refuse_unfit(values)
        weight = self.module.weight
        if weight.dtype != torch.float32:
            raise Unfit(f"a fused RMS norm has a weight in fp32, not in {weight.dtype}")
        is_cast = self.products_only and torch.is_autocast_enabled("cpu")
        format = torch.get_autocast_dtype("cpu") if is_cast else values.dtype
        if format not in IN_C.formats:
            raise Unfit(f"fused steps write sequences in fp32 or bf16, not in {format}")
        found = _RowsNormalised.apply(values, weight, self.module.eps, format, self.readers)  # type: ignore[no-untyped-call]
        return found if self.readers > 1 else found[0]


@dataclass(frozen=True, eq=False)
class Attend:
    """A step of the plan: attention with rotary positions. Short sequences are trained in fp32."""

    module: CausalAttention

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The mixed values. Raises Unfit."""
        width = self.module.width
        turns = self.module.turns_like(queries)
        for each in (queries, keys, values):
            _refuse_unfit(each)
        if queries.shape[1] != turns.shape[1]:
            raise Unfit(f"fused attention is over {turns.shape[1]} positions, not {queries.shape[1]}")
        is_wide = torch.is_grad_enabled() and queries.shape[1] <= WIDE_POSITIONS
        format = torch.float32 if is_wide else values.dtype
        turned = [_Turned.apply(each, turns, width, format) for each in (queries, keys)]  # type: ignore[no-untyped-call]
        with torch.autocast("cpu", enabled=False) if is_wide else nullcontext():
            return self.module.mixed(*map(self.module.heads, (*turned, values.to(format))))

    @classmethod
    def can(cls, module: object) -> bool:
        """Whether it computes all that the module does."""
        return (
            isinstance(module, CausalAttention) and bool(module.layer.rotary) and not module.layer.head_norm
        )


@dataclass(frozen=True, eq=False)
class GatedProduct:
    """A step of the plan: z and x to silu(z) · x, rounded once."""

    def __call__(self, z: Tensor, x: Tensor) -> Tensor:
        """Raises Unfit."""
        _refuse_unfit(z)
        _refuse_unfit(x)
        if z.dtype != x.dtype or z.shape != x.shape:
            raise Unfit(f"a fused gate reads two tensors of one type and shape, not {z.dtype} and {x.dtype}")
        found: Tensor = _GatedProduct.apply(z, x)  # type: ignore[no-untyped-call]
        return found


def _refuse_unfit(values: Tensor) -> None:
    is_read = values.dtype in IN_C.formats and values.device.type == IN_C.kind and values.is_contiguous()
    if not (is_read and len(values)):
        kind = str(values.dtype).removeprefix("torch.")
        raise Unfit(
            f"fused steps read contiguous sequences in fp32 or bf16, not {kind} {tuple(values.shape)}"
        )


def _is_half(values: Tensor) -> bool:
    return values.dtype == torch.bfloat16


class _RowsNormalised(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, weight: Tensor, epsilon: float, format: torch.dtype, readers: int
    ) -> tuple[Tensor, ...]:
        channels = values.shape[-1]
        out = torch.empty_like(values, dtype=format)
        inverse = weight.new_empty(values.numel() // channels)
        sizes = (len(inverse), channels, _is_half(values), _is_half(out))
        call("rms_forward", *map(address, (values, weight, out, inverse)), *sizes, epsilon)
        ctx.save_for_backward(values, weight, inverse)
        ctx.set_materialize_grads(False)
        return for_readers(out, readers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients as in Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019."""
        given = [gradient.contiguous() for gradient in gradients if gradient is not None]
        if not given:
            return (None,) * 5
        while len(given) > MOST_READERS:
            given.append(given.pop(0) + given.pop(0))
        values, weight, inverse = ctx.saved_tensors
        to_values, to_weight = torch.empty_like(values), torch.empty_like(weight)
        padded = [*given, *[None] * (MOST_READERS - len(given))]
        sizes = (len(inverse), values.shape[-1], _is_half(values), _is_half(given[0]))
        call("rms_backward", *map(address, (*padded, values, weight, inverse, to_values, to_weight)), *sizes)
        return to_values, to_weight, None, None, None


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, turns: Tensor, width: int, format: torch.dtype) -> Tensor:
        ctx.turns, ctx.width, ctx.format = turns, width, values.dtype
        return _turn(values, turns, width, format, back=False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _turn(gradient.contiguous(), ctx.turns, ctx.width, ctx.format, back=True), None, None, None


def _turn(values: Tensor, turns: Tensor, width: int, format: torch.dtype, *, back: bool) -> Tensor:
    """The values with each head turned by the angles of its position, or turned back."""
    out = torch.empty_like(values, dtype=format)
    batch, positions, channels = values.shape
    sizes = (batch * positions, channels, width, positions)
    call("turn", *map(address, (values, turns, out)), *sizes, _is_half(values), _is_half(out), back)
    return out


class _GatedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(z, x)
        out = torch.empty_like(x)
        call("silu_product", None, *map(address, (z, x, out)), None, x.numel(), _is_half(x))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        z, x = ctx.saved_tensors
        to_z, to_x = torch.empty_like(z), torch.empty_like(x)
        tensors = (gradient.contiguous(), z, x, to_x, to_z)
        call("silu_product", *map(address, tensors), x.numel(), _is_half(x))
        return to_z, to_x
