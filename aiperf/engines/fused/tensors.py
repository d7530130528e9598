"""The tensors that the kernels support, and how they are passed to them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from aiperf.engines.fused.backend import Backend

FORMATS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


class Unfit(RuntimeError):
    """The kernels do not support an input. This never happens for networks that the search makes. The message
    says what was given and what is supported; a trial is then trained eagerly, which the journal shows."""


def refuse_unfit(images: Tensor, backend: Backend) -> None:
    """Raises Unfit if images (batch, channels, height, width) do not have a type or the memory layout of the
    kernels, or are on another device."""
    # Images of one pixel or one channel also pass, whose strides may be in either order.
    if not (
        images.dtype in backend.formats
        and images.device.type == backend.kind
        and images.is_contiguous(memory_format=torch.channels_last)
        and images.numel() > 0
    ):
        formats = formats_of(backend)
        raise Unfit(f"fused steps read images in {formats} with the channels last, not {_text(images)}")


def formats_of(backend: Backend) -> str:
    """The number formats of a backend, as a message names them."""
    return " or ".join(FORMATS[each] for each in backend.formats)


def refuse_unlike(images: Tensor, beside: Tensor, shape: torch.Size) -> None:
    """Raises Unfit if a tensor that is added to images, or multiplies them, has another type or shape."""
    if beside.dtype != images.dtype or beside.shape != shape:
        raise Unfit(f"fused steps read two tensors of one type, not {_text(images)} and {_text(beside)}")


def is_own(module: nn.Module) -> bool:
    """Whether a module computes what its class does: it has no hooks, and its `forward` is not replaced. A
    step that computes the same without calling the module would leave both out."""
    return not (module._forward_pre_hooks or module._forward_hooks or "forward" in module.__dict__)


def _text(tensor: Tensor) -> str:
    """A tensor as a message shows it: format, shape and strides."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)} with strides {tensor.stride()}"


def address(tensor: Tensor | None) -> int | None:
    """Address of a tensor's first number for a kernel in C; None is passed as a null pointer."""
    return None if tensor is None else tensor.data_ptr()


def empty_like(images: Tensor) -> Tensor:
    """Memory for images of the same shape and format, with the channels last. This is stated, because images
    of one pixel or one channel may have their strides in either order."""
    return torch.empty_like(images, memory_format=torch.channels_last)


def for_readers(images: Tensor, readers: int) -> tuple[Tensor, ...]:
    """The same memory as one tensor for each reader, so that each reader's gradient arrives by itself.

    They are not views of each other, because autograd would add up the gradients of views. Nothing may write
    to them.
    """
    others = (
        torch.empty(0, dtype=images.dtype, device=images.device).set_(
            images.untyped_storage(), images.storage_offset(), images.shape, images.stride()
        )
        for _ in range(readers - 1)
    )
    return (images, *others)


def two(gradients: Sequence[Tensor | None]) -> tuple[Tensor, Tensor | None] | None:
    """The gradients of all readers as one or two tensors, channels last; None if no reader has one. The
    kernels read at most two; more are added first, pairwise."""
    found = [
        gradient.contiguous(memory_format=torch.channels_last)
        for gradient in gradients
        if gradient is not None
    ]
    if not found:
        return None
    while len(found) > 2:
        found.append(found.pop(0) + found.pop(0))
    return found[0], found[1] if len(found) == 2 else None
