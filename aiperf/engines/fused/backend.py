"""The interface of what computes fused steps: C on a CPU, Triton on accelerators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar

import torch
from torch import Tensor, nn

from nas.layers import Layer

MOST_READERS = 3
"""Number of gradients that the kernels of the RMS norm add up: queries, keys and values read one norm."""


class Activation(IntEnum):
    """Activation after a batch norm; kernels.c and triton_kernels.py know it by these values."""

    NOTHING = 0
    RELU = 1
    RELU6 = 2


class Backend(ABC):
    """How fused steps are computed; `fusing.py` decides what is fused. All images are (batch, channels,
    height, width) with the channels last in memory; their gradients and all that is returned are laid out so,
    too. Sequences are (batch, positions, features), contiguous; a row is one position of one of them."""

    kind: ClassVar[str]
    """Kind of device on which its tensors are."""
    formats: ClassVar[tuple[torch.dtype, ...]]
    """Number formats of images and sequences that it reads and writes."""
    layers: ClassVar[tuple[type[Layer], ...]]
    """Layers of which a network must have one for its fused steps to differ from eager ones."""
    helps_onednn: ClassVar[bool]
    """Whether convolutions that oneDNN computes slowly are replaced by equal ones."""
    compiles: ClassVar[bool]
    """Whether its kernels are compiled when a step first needs them."""
    widest_row: ClassVar[int]
    """Maximum number of features of a row that is normalised."""
    wide_positions: ClassVar[int]
    """Maximum number of positions over which attention is trained in fp32 although its reads are in 16
    bits."""

    @abstractmethod
    def begin(self) -> None:
        """Called before a network is rewritten. What it sets up is for the whole process, and it is called
        for each network."""

    @abstractmethod
    def normalise(
        self,
        images: Tensor,
        residual: Tensor | None,
        norms: Sequence[nn.BatchNorm2d],
        activation: Activation,
    ) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """A batch norm, plus the residual, and its activation. A second of `norms` is that of the residual.
        In training it also updates the running statistics. It returns the mean and 1 / deviation of each
        channel for each of `norms`, (2 · channels,). The last tensor says which values the activation cut
        off, in a form of the backend's own; None if the backend computes that again from the images. In
        evaluation neither is used."""

    @abstractmethod
    def normalise_backward(
        self,
        first: Tensor,
        second: Tensor | None,
        images: Tensor,
        cut: Tensor | None,
        module: tuple[Tensor, Tensor],
        statistics: Tensor,
        activation: Activation,
        keeps: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Gradients of the images, of the sum before the activation if it `keeps` it, of weight and bias.

        The gradient of the output is `first` plus `second`. `module` are weight and bias. `statistics` and
        `cut` are what `normalise` returned.
        """

    @abstractmethod
    def gate(self, images: Tensor, gates: Tensor) -> Tensor:
        """Images (batch, channels, height, width), each channel times its gate (batch, channels). `gates` are
        applied as they are; the sigmoid is the caller's."""

    @abstractmethod
    def gate_backward(
        self, first: Tensor, second: Tensor | None, images: Tensor, gates: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradients of the images and of the gates; that of the output is `first` plus `second`."""

    @abstractmethod
    def mean(self, images: Tensor) -> Tensor:
        """The mean of each channel of each image, (batch, channels). Its format is that of the images."""

    @abstractmethod
    def mean_backward(self, gradient: Tensor, shape: torch.Size) -> Tensor:
        """The gradient of images with that shape. `gradient` is (batch, channels), and each pixel gets 1 /
        (height · width) of it."""

    @abstractmethod
    def normalise_rows(
        self, values: Tensor, weight: Tensor, epsilon: float, format: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """An RMS norm, whose result is in that format, and 1 / root mean square of each row, (rows,).
        `values` is (batch, positions, features), `weight` (features,) in fp32, and the mean of squares is
        over the features."""

    @abstractmethod
    def normalise_rows_backward(
        self, gradients: Sequence[Tensor], values: Tensor, weight: Tensor, inverse: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of values and weight. The gradient of the result is the sum of 1 to MOST_READERS
        `gradients`, which have its format."""

    @abstractmethod
    def turn(self, values: Tensor, turns: Tensor, width: int, format: torch.dtype, back: bool) -> Tensor:
        """The values with each head of `width` features turned by the angles of its position, or turned back.
        `turns` are cosines and sines, (2, positions, width / 2) in fp32."""

    @abstractmethod
    def silu_product(self, z: Tensor, x: Tensor) -> Tensor:
        """silu(z) · x. Both are of one shape and format; silu(z) is z · sigmoid(z), which is not rounded
        before the product."""

    @abstractmethod
    def silu_product_backward(self, gradient: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of z and x. The gradient has their shape."""
