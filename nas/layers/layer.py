"""What every layer states: its shape, its weights and its operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from nas.layers.shapes import Shape
from nas.layers.windows import Convolution
from nas.ops import Cost


@dataclass(frozen=True)
class Layer:
    """One step of a network.

    `costs` is the specification of what is counted: for one example, a `Cost` under each row of the
    table of operations. `input_grad` of a cost is left out by the graph where nothing upstream has
    weights.

    The class attributes say how networks with it may grow. Their defaults are right for a layer that
    treats every channel by itself.

    A layer can be written in any file: its class, its module for `nas.modules.module_of` and, where it has
    weights, their `nas.weights.starts`. Records know it where that file is imported, and in every process of
    a run where an installed package names the file as an entry point of the group "nas.layers".
    """

    mixes_channels: ClassVar[bool] = False
    """Whether a channel out is a weighted sum of channels in. Its width is then free (`widened`). It reads
    new channels with zeros and copies with their shares, so that nothing behind it changes. Any other layer
    passes them on, channel by channel."""
    keeps_sign: ClassVar[bool] = False
    """Whether it puts out nothing negative where it reads nothing negative."""
    tears_copies: ClassVar[bool] = False
    """Whether channels that are equal may differ behind it, as in training behind a dropout."""
    reads_symbols: ClassVar[bool] = False
    """Whether it reads symbols, whole numbers from 0, and not what is computed with."""

    @property
    def groups(self) -> int:
        """The runs of channels that it mixes each by itself."""
        return 1

    def widened(self, width: int) -> Layer:
        """The layer with so many channels or features. Needed where it mixes channels."""
        raise NotImplementedError

    def is_non_negative(self, *inputs: bool) -> bool:
        """Whether it puts out nothing negative, whatever its weights, given the same of each input."""
        return self.keeps_sign and all(inputs)

    def convolution(self, *inputs: Shape) -> Convolution | None:
        """The convolution that it is, if it is one."""
        return None

    def shape(self, *inputs: Shape) -> Shape:
        """The output's shape. Raises ShapeError when the inputs do not fit."""
        raise NotImplementedError

    def num_activations(self, *inputs: Shape) -> int:
        """Elements of its output, and of what it makes inside that a layer of its own would have put out."""
        return prod(self.shape(*inputs))

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        raise NotImplementedError

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        """Shapes of the trained tensors, by name."""
        return {}

    def statistics(self, *inputs: Shape) -> Mapping[str, Shape]:
        """Shapes of the tensors that are kept but not trained, by name."""
        return {}
