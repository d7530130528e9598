"""Steps on sequences (batch, positions, features): RMS norm, attention with rotary positions, and a gated
activation.

Torch computes RMS norm and rotary positions on a CPU by five to seven operations each, which all read and
write memory, and under autocast each product casts what the norm has put out again.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from aiperf.engines.fused.backend import MOST_READERS, Backend
from aiperf.engines.fused.tensors import Unfit, for_readers, formats_of
from nas.frozen import frozen
from nas.modules.sequences import CausalAttention


@frozen(eq=False)
class NormaliseRows:
    """A step of the plan: an RMS norm. The formula is values / sqrt(mean of squares + epsilon) · weight, over
    the features of each position."""

    backend: Backend
    module: nn.RMSNorm
    readers: int = 1
    """Number of steps that read the result; each gets a tensor of its own."""
    products_only: bool = False
    """Whether all readers are matrix products: under autocast the result is then in their format."""

    def __call__(self, values: Tensor) -> Any:
        """The normalised rows as one tensor, or as a tuple with one tensor for each reader. Raises Unfit."""
        _refuse_unfit(values, self.backend)
        weight, widest = self.module.weight, self.backend.widest_row
        if values.shape[-1] > widest:
            raise Unfit(f"a fused RMS norm has at most {widest:,} features, not {values.shape[-1]:,}")
        if weight.dtype != torch.float32:
            raise Unfit(f"a fused RMS norm has a weight in fp32, not in {weight.dtype}")
        # The product would cast the result by itself, in another pass over memory.
        is_cast = self.products_only and torch.is_autocast_enabled(self.backend.kind)
        format = torch.get_autocast_dtype(self.backend.kind) if is_cast else values.dtype
        if format not in self.backend.formats:
            raise Unfit(f"fused steps write sequences in {formats_of(self.backend)}, not in {format}")
        found = _RowsNormalised.apply(values, weight, format, self)  # type: ignore[no-untyped-call]
        return found if self.readers > 1 else found[0]


@frozen(eq=False)
class Attend:
    """A step of the plan: attention with rotary positions, in fp32 where that trains faster."""

    backend: Backend
    module: CausalAttention

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """What each position reads of those before it, (batch, positions, features). All three are of this
        form; keys and values of grouped queries have fewer features. Raises Unfit."""
        width = self.module.width
        turns = self.module.turns_like(queries)
        for each in (queries, keys, values):
            _refuse_unfit(each, self.backend)
        if queries.shape[1] != turns.shape[1]:
            raise Unfit(f"fused attention is over {turns.shape[1]} positions, not {queries.shape[1]}")
        # Only the backward pass is slow in 16 bits, so evaluation keeps the format.
        is_wide = torch.is_grad_enabled() and queries.shape[1] <= self.backend.wide_positions
        format = torch.float32 if is_wide else values.dtype
        turned = [_Turned.apply(each, turns, width, format, self.backend) for each in (queries, keys)]  # type: ignore[no-untyped-call]
        with torch.autocast(self.backend.kind, enabled=False) if is_wide else nullcontext():
            return self.module.mixed(*map(self.module.heads, (*turned, values.to(format))))

    @classmethod
    def can(cls, module: object) -> bool:
        """Whether it computes all that the module does. Attention without rotary positions, or with a norm of
        each head, is left to the module."""
        return (
            isinstance(module, CausalAttention) and bool(module.layer.rotary) and not module.layer.head_norm
        )


@frozen(eq=False)
class GatedProduct:
    """A step of the plan: z and x to silu(z) · x, rounded once."""

    backend: Backend

    def __call__(self, z: Tensor, x: Tensor) -> Tensor:
        """silu(z) · x, where both are (batch, positions, features) of one format. Raises Unfit."""
        _refuse_unfit(z, self.backend)
        _refuse_unfit(x, self.backend)
        if z.dtype != x.dtype or z.shape != x.shape:
            raise Unfit(f"a fused gate reads two tensors of one type and shape, not {z.dtype} and {x.dtype}")
        found: Tensor = _GatedProduct.apply(z, x, self.backend)  # type: ignore[no-untyped-call]
        return found


def _refuse_unfit(values: Tensor, backend: Backend) -> None:
    """Raises Unfit if a sequence (batch, positions, features) has another format or device than the kernels,
    is not contiguous, or is empty."""
    is_read = values.dtype in backend.formats and values.device.type == backend.kind
    if not (is_read and values.is_contiguous() and len(values)):
        kind = str(values.dtype).removeprefix("torch.")
        formats = formats_of(backend)
        raise Unfit(f"fused steps read contiguous sequences in {formats}, not {kind} {tuple(values.shape)}")


class _RowsNormalised(torch.autograd.Function):
    """The RMS norm as one operation of autograd. It keeps the values and 1 / root mean square of each row."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, weight: Tensor, format: torch.dtype, step: NormaliseRows
    ) -> tuple[Tensor, ...]:
        epsilon = step.module.eps
        assert epsilon is not None
        out, inverse = step.backend.normalise_rows(values, weight, epsilon, format)
        ctx.save_for_backward(values, weight, inverse)
        ctx.set_materialize_grads(False)
        ctx.backend = step.backend
        return for_readers(out, step.readers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients as in Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019."""
        given = [gradient.contiguous() for gradient in gradients if gradient is not None]
        if not given:
            return (None,) * 4
        # The kernels add up MOST_READERS gradients at most; torch adds the others before.
        while len(given) > MOST_READERS:
            given.append(given.pop(0) + given.pop(0))
        return *ctx.backend.normalise_rows_backward(given, *ctx.saved_tensors), None, None


class _Turned(torch.autograd.Function):
    """Rotary positions as one operation of autograd. A rotation is orthogonal, so the gradient is turned back
    by the same angles, and no values are kept."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, turns: Tensor, width: int, format: torch.dtype, backend: Backend
    ) -> Tensor:
        ctx.backend, ctx.back = backend, (turns, width, values.dtype, True)
        return backend.turn(values, turns, width, format, False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.backend.turn(gradient.contiguous(), *ctx.back), None, None, None, None


class _GatedProduct(torch.autograd.Function):
    """silu(z) · x as one operation of autograd. It keeps z and x, and computes the sigmoid again."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, x: Tensor, backend: Backend) -> Tensor:
        ctx.save_for_backward(z, x)
        ctx.backend = backend
        return backend.silu_product(z, x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *ctx.backend.silu_product_backward(gradient.contiguous(), *ctx.saved_tensors), None
