"""Steps on images: batch norm with what follows it, the mean of each channel, a gate for each channel, every
stride-th pixel, and convolutions that are folded, or are matrix products."""

from __future__ import annotations

from functools import cache
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

from aiperf.engines.fused.backend import Activation, Backend
from aiperf.engines.fused.c_backend import IN_C
from aiperf.engines.fused.kernels import call
from aiperf.engines.fused.tensors import Unfit, address, for_readers, is_own, refuse_unfit, refuse_unlike, two
from nas.frozen import frozen

PIXELS = 2
"""Number of pixels that become one. With 4 there are too many zeros."""
LEAST_KERNEL, MOST_CHANNELS = 5, 8
"""Minimum width of the kernel, and maximum number of channels on the narrower side, for which folding was
measured to pay: 1.2 to 1.5 times as fast, forward and backward. With 24 to 16 channels a convolution took 1.1
times as long."""

LEAST_WIDTH = 64
"""Minimum number of channels on both sides of a 1x1 convolution for which a product in bf16 was measured to
be faster, all three passes together: 1.3 to 2.3 times with AMX, 1.02 to 1.25 with AVX-512. With 32 to 32
channels it was 0.95 and 1.07 times as fast, with 8 to 8 channels 0.50 and 0.97 times."""


@frozen(eq=False)
class Normalise:
    """A step of the plan: a batch norm of images (batch, channels, height, width), plus the residual, if
    there is one, and with an activation. The residual may have a batch norm of its own.

    Forward there is one pass over memory for the sums and one for the rest, and backward the same. Torch
    makes passes of its own for the norm, the sum and the activation, and memory limits these layers on any
    device.
    """

    backend: Backend
    module: nn.BatchNorm2d
    activation: Activation = Activation.NOTHING
    readers: int = 1
    """Number of steps that read the result; each gets a tensor of its own."""
    of_residual: nn.BatchNorm2d | None = None

    def __post_init__(self) -> None:
        if not all(map(is_own, self.norms)):
            raise Unfit("a batch norm with another `forward`, as over a group, is not fused")

    @property
    def norms(self) -> tuple[nn.BatchNorm2d, ...]:
        """The batch norm of the images, and that of the residual."""
        return (self.module,) if self.of_residual is None else (self.module, self.of_residual)

    def __call__(self, images: Tensor, residual: Tensor | None = None) -> Any:
        """The normalised images as one tensor, or as a tuple with one tensor for each reader. Raises Unfit,
        and ValueError as torch does."""
        self._refuse(images, residual)
        if torch.is_grad_enabled():
            affine = (each for norm in self.norms for each in (norm.weight, norm.bias))
            found = _Normalised.apply(images, residual, self, *affine)  # type: ignore[no-untyped-call]
        else:
            out, *_ = self.backend.normalise(images, residual, self.norms, self.activation)
            found = (out,) * self.readers
        return found if self.readers > 1 else found[0]

    def _refuse(self, images: Tensor, residual: Tensor | None) -> None:
        """Raises Unfit for what the kernels do not support, and ValueError as torch does for one value per
        channel. Raised before any kernel runs, which would read memory that is not there."""
        refuse_unfit(images, self.backend)
        if residual is not None:
            refuse_unfit(residual, self.backend)
            refuse_unlike(images, residual, images.shape)
        for norm in self.norms:
            if norm.weight.dtype != torch.float32:
                raise Unfit(f"a fused batch norm has parameters in fp32, not in {norm.weight.dtype}")
            if norm.training and images.numel() // images.shape[1] < 2:
                raise ValueError(
                    f"a batch norm learns from more than 1 value of a channel, not {tuple(images.shape)}"
                )
            if not norm.training and torch.is_grad_enabled():
                raise Unfit("a fused batch norm has no gradient through statistics that stay as they are")


@frozen(eq=False)
class Gated:
    """A step of the plan: images (batch, channels, height, width) times 2 · sigmoid(z), with z (batch,
    channels). At z = 0 the factor is 1, so that a new gate keeps the function of the network."""

    backend: Backend
    readers: int = 1
    """Number of steps that read the result; each gets a tensor of its own."""

    def __call__(self, images: Tensor, z: Tensor) -> Any:
        """The gated images as one tensor, or as a tuple with one tensor for each reader. Raises Unfit."""
        refuse_unfit(images, self.backend)
        refuse_unlike(images, z, images.shape[:2])
        gates = 2 * torch.sigmoid(z)
        found = _Gating.apply(images, gates.contiguous(), self)  # type: ignore[no-untyped-call]
        return found if self.readers > 1 else found[0]


@frozen(eq=False)
class Mean:
    """A step of the plan: images (batch, channels, height, width) to means (batch, channels). The layer is
    the global average pooling of a head or of squeeze-excite."""

    backend: Backend

    def __call__(self, images: Tensor) -> Tensor:
        """Raises Unfit."""
        refuse_unfit(images, self.backend)
        found: Tensor = _Averaging.apply(images, self.backend)  # type: ignore[no-untyped-call]
        return found


@frozen
class Pixels:
    """A step of the plan: every stride-th pixel, for all strided 1x1 convolutions of the same images. The
    result is (batch, channels, ⌈height / stride⌉, ⌈width / stride⌉)."""

    stride: tuple[int, int]

    def __call__(self, images: Tensor) -> Tensor:
        """Raises Unfit."""
        refuse_unfit(images, IN_C)
        found: Tensor = _Pixels.apply(images, self.stride)  # type: ignore[no-untyped-call]
        return found


@frozen(eq=False)
class OfPixels:
    """A step of the plan: a 1x1 convolution without its stride, on images from `Pixels`."""

    module: nn.Conv2d

    def __call__(self, images: Tensor) -> Tensor:
        """The convolution of pixels (batch, channels, height, width). Hooks are called by hand, because the
        module itself is not called: it would apply its stride again."""
        for hook in self.module._forward_pre_hooks.values():  # dropout before the last layer
            (images,) = hook(self.module, (images,))
        return _pointwise(images, self.module)


@frozen(eq=False)
class Pointwise:
    """A step of the plan: a 1x1 convolution, in bf16 as a matrix product of pixels and weights.

    With the channels last in memory, images are a matrix of pixels by channels, and nothing is copied. For
    the gradient of the weights, several threads of oneDNN's convolution add up their parts and wait for each
    other in busy loops; those of a product do not. In fp32 torch multiplies by MKL, which uses AVX2 on
    processors of AMD, where oneDNN convolves with AVX-512.
    """

    module: nn.Conv2d

    def __call__(self, images: Tensor) -> Tensor:
        """The convolution of images (batch, channels, height, width). Raises Unfit."""
        refuse_unfit(images, IN_C)
        return _pointwise(images, self.module)


def is_worth_multiplying(conv: nn.Conv2d) -> bool:
    """Whether a convolution computes each pixel from the same pixel alone, and is faster as a product."""
    plain = type(conv) is nn.Conv2d and conv.kernel_size == conv.stride == (1, 1) and conv.groups == 1
    return plain and conv.padding == (0, 0) and _is_wide(conv) and is_own(conv)


def _is_wide(conv: nn.Conv2d) -> bool:
    """Whether both sides have as many channels as a product was measured to need."""
    return min(conv.in_channels, conv.out_channels) >= LEAST_WIDTH


def _pointwise(images: Tensor, conv: nn.Conv2d) -> Tensor:
    """The 1x1 convolution of images with the channels last, without its stride. In fp32 it stays a
    convolution; `Pointwise` says why."""
    if images.dtype != torch.bfloat16 or not _is_wide(conv):
        return conv2d(images, conv.weight, conv.bias)
    return linear(images.permute(0, 2, 3, 1), conv.weight.flatten(1), conv.bias).permute(0, 3, 1, 2)


@frozen(eq=False)
class Folded:
    """A step of the plan: a wide convolution of few channels, computed as one of twice the channels over half
    the width.

    A register holds 16 numbers of 32 bits, and oneDNN fills it with channels: a convolution to 4 or 8
    channels uses a quarter or a half of it. With the channels last in memory, two neighbouring pixels of
    C channels are one pixel of 2C channels, so the same memory is an image of half the width. The kernel
    that computes the same there contains zeros: for a width of 5 pixels there is a fifth more to
    multiply, for 3 pixels twice as much, which does not pay. A number that is not finite reaches one more
    pixel, because zero times infinity is not a number.
    """

    module: nn.Conv2d

    def __call__(self, images: Tensor) -> Tensor:
        """The convolution of images (batch, channels, height, width). Raises Unfit."""
        conv = self.module
        batch, channels, height, width = images.shape
        refuse_unfit(images, IN_C)
        flat = images.permute(0, 2, 3, 1).reshape(batch, height, width // PIXELS, PIXELS * channels)
        bias = None if conv.bias is None else conv.bias.repeat(PIXELS)
        kernel = _folded(conv.weight)
        padding = (kernel.shape[2] // 2, kernel.shape[3] // 2)
        out = conv2d(flat.permute(0, 3, 1, 2), kernel, bias, padding=padding)
        return out.permute(0, 2, 3, 1).reshape(batch, height, width, -1).permute(0, 3, 1, 2)


def is_worth_folding(conv: nn.Conv2d, columns: int) -> bool:
    """Whether a convolution of images with `columns` pixels per row can be folded, and is faster so."""
    height, width = conv.kernel_size
    plain = type(conv) is nn.Conv2d and conv.stride == conv.dilation == (1, 1) and conv.groups == 1
    centred = conv.padding == ((height - 1) // 2, (width - 1) // 2) and height % 2 and width % 2
    narrow = min(conv.in_channels, conv.out_channels) <= MOST_CHANNELS
    whole = columns % PIXELS == 0 and is_own(conv)
    return bool(plain and whole and centred and narrow and width >= LEAST_KERNEL)


def _folded(weight: Tensor) -> Tensor:
    """The folded kernel of a weight (channels out, channels in, height, width): twice the channels out and
    in, the same height, fewer columns. The result has PIXELS · channels out, PIXELS · channels in. It is
    computed by autograd's operations, so the weight's own gradient follows by itself."""
    channels, reads, height, width = weight.shape
    taps = weight.reshape(-1, width) @ _places(width).to(weight.dtype)
    taps = taps.view(channels, reads, height, PIXELS, PIXELS, -1).permute(3, 0, 4, 1, 2, 5)
    return taps.reshape(PIXELS * channels, PIXELS * reads, height, -1)


@cache
@torch.inference_mode(False)  # it is kept, and read where gradients are computed
def _places(width: int) -> Tensor:
    """(width, pixel out x pixel in x column): 1 where a tap of the kernel goes, else 0. It depends on the
    width alone, and is kept for all steps."""
    margin = width // 2
    # So many folded columns on each side contain all taps.
    around = -(-margin // PIXELS)
    found = torch.zeros(width, PIXELS, PIXELS, 2 * around + 1)
    for out in range(PIXELS):
        for read in range(PIXELS):
            for column in range(-around, around + 1):
                tap = PIXELS * column + read - out + margin
                if 0 <= tap < width:
                    found[tap, out, read, column + around] = 1
    return found.view(width, -1)


class _Gating(torch.autograd.Function):
    """Images times a gate for each image and channel; the gate's gradient is a sum over all pixels. The
    gradients of up to two readers are added in the same pass."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, gates: Tensor, step: Gated) -> tuple[Tensor, ...]:
        ctx.save_for_backward(images, gates)
        ctx.set_materialize_grads(False)
        ctx.backend = step.backend
        return for_readers(step.backend.gate(images, gates), step.readers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        given = two(gradients)
        if given is None:
            return None, None, None
        return *ctx.backend.gate_backward(*given, *ctx.saved_tensors), None


class _Averaging(torch.autograd.Function):
    """The mean of each channel; each pixel gets the same share of its gradient."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, backend: Backend) -> Tensor:
        # The gradient depends on the shape alone, so the images are not kept.
        ctx.shape, ctx.backend = images.shape, backend
        return backend.mean(images)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.backend.mean_backward(gradients[0].contiguous(), ctx.shape), None


class _Pixels(torch.autograd.Function):
    """Every stride-th pixel; the others get a gradient of zero."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, stride: tuple[int, int]) -> Tensor:
        batch, channels, height, width = images.shape
        few = (batch, channels, ceil(height / stride[0]), ceil(width / stride[1]))
        out = torch.empty(few, dtype=images.dtype, memory_format=torch.channels_last)
        ctx.shape, ctx.stride = images.shape, stride
        _copy_pixels(images, out, images.shape, stride, back=False)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        out = torch.empty(ctx.shape, dtype=gradient.dtype, memory_format=torch.channels_last)
        _copy_pixels(gradient, out, ctx.shape, ctx.stride, back=True)
        return out, None


def _copy_pixels(
    source: Tensor, target: Tensor, shape: torch.Size, stride: tuple[int, int], back: bool
) -> None:
    """Copies every stride-th pixel of images with this shape into a smaller tensor, or back into a larger
    one, whose other pixels become zero."""
    batch, channels, height, width = shape
    sizes = batch, height, width, *stride, channels * source.element_size()
    call("pixels", address(source), address(target), *sizes, back)


class _Normalised(torch.autograd.Function):
    """The merged layers as one operation of autograd. It keeps the images, and in addition only what
    `Backend.normalise` returns of the activation."""

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, residual: Tensor | None, step: Normalise, *affine: Tensor
    ) -> tuple[Tensor, ...]:
        out, statistics, cut = step.backend.normalise(images, residual, step.norms, step.activation)
        kept = residual if step.of_residual is not None else None
        ctx.save_for_backward(images, kept, cut, *statistics, *affine)
        # The gradient of a reader that has none is then None, and not a tensor of zeros to be added.
        ctx.set_materialize_grads(False)
        ctx.step, ctx.has_residual = step, residual is not None
        return for_readers(out, step.readers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients as in Ioffe and Szegedy, "Batch Normalization", ICML 2015, section 3."""
        given, step = two(gradients), ctx.step
        count = len(step.norms)
        if given is None:
            return (None,) * (3 + 2 * count)
        images, residual, cut, *others = ctx.saved_tensors
        statistics, affine = others[:count], others[count:]
        first, second = given
        # Without an activation that masks it, the residual's gradient is that of the sum.
        keeps = bool(ctx.has_residual and (step.activation or second is not None))
        to_images, kept, *to_affine = step.backend.normalise_backward(
            first, second, images, cut, affine[:2], statistics[0], step.activation, keeps
        )
        to_residual = kept if keeps else first if ctx.has_residual else None
        if count > 1:
            to_residual, _, *to_own = step.backend.normalise_backward(
                to_residual, None, residual, None, affine[2:], statistics[1], Activation.NOTHING, False
            )
            to_affine += to_own
        return to_images, to_residual, None, *to_affine
