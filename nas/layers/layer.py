"""What every layer states of itself, and what it says when it is asked for what it does not state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import TYPE_CHECKING, ClassVar

from nas.layers.footprint import Footprint, Read
from nas.layers.initial_values import Start
from nas.layers.shapes import Shape
from nas.layers.torch_line import TorchLine
from nas.layers.windows import Convolution
from nas.ops import Cost

if TYPE_CHECKING:
    from nas.layers.onnx_place import LayerPlace  # numpy, which counting does without


class MissingReading(ValueError):
    """A layer was asked for something that its class does not state."""


@dataclass(frozen=True)
class Layer:
    """One step of a network.

    Its class is the one place where it is described. Each reading is a method: `shape`, `costs`, `weights`,
    `statistics` and `start` say what is counted and trained, `footprint` the memory of a training step,
    `torch_line` and `onnx` how it is written for others. The torch module alone is registered apart, with
    `nas.modules.module_of`, because counting needs no torch. A reading that is not stated raises
    MissingReading when it is asked for, and no sooner: `tests/nas/test_layers.py` asks every layer of this
    program for all of them.

    `costs` is the specification of what is counted: for one example, a `Cost` under each row of the
    table of operations. `input_grad` of a cost is left out by the graph where nothing upstream has
    weights.

    The class attributes say how networks with it may grow. Their defaults are right for a layer that
    treats every channel by itself.

    A layer can be written in any file. Records know it where that file is imported, and in every process of
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
    fixes_width: ClassVar[bool] = False
    """Whether its numbers are taken over several channels together, so that what it reads cannot get more."""
    frees_output: ClassVar[bool] = False
    """Whether the one layer that reads its output may write over it: its own backward pass does not need the
    output, which is no other tensor's memory either. Where this is not stated, nothing is overwritten."""

    def __repr__(self) -> str:
        """The text of which keys are made, for layers with fields that are LATER (`repr=False`): that of a
        dataclass, without those of these fields that hold their default."""
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if "later" not in field.metadata or getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def groups(self) -> int:
        """The runs of channels that it mixes each by itself."""
        return 1

    @property
    def runs(self) -> int:
        """The runs of channels that it keeps apart or takes in turn. What it reads grows in each of them."""
        return self.groups

    def order(self, channels: int) -> Sequence[int] | None:
        """For each of so many channels out, the channel in that it is; None: each stays where it is."""
        return None

    def widened(self, width: int) -> Layer:
        """The layer with so many channels or features. Needed where it mixes channels."""
        raise NotImplementedError

    def is_non_negative(self, *inputs: bool) -> bool:
        """Whether it puts out nothing negative, whatever its weights, given the same of each input."""
        return self.keeps_sign and all(inputs)

    def counted_in_vain(self, *inputs: Shape) -> str:
        """Says that most of what is counted of it is never computed, as a clause with "{}" for its name;
        empty if it is not so. Convolutions are judged by their windows."""
        return ""

    def convolution(self, *inputs: Shape) -> Convolution | None:
        """The convolution that it is, if it is one."""
        return None

    def shape(self, *inputs: Shape) -> Shape:
        """The output's shape. Raises ShapeError when the inputs do not fit."""
        raise self.missing("shape", "shape")

    def num_activations(self, *inputs: Shape) -> int:
        """Elements of its output, and of what it makes inside that a layer of its own would have put out."""
        return prod(self.shape(*inputs))

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        """The operations for one example, by row of the table of operations."""
        raise self.missing("operations", "costs")

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        """Shapes of the trained tensors, by name."""
        return {}

    def statistics(self, *inputs: Shape) -> Mapping[str, Shape]:
        """Shapes of the tensors that are kept but not trained, by name."""
        return {}

    def table(self, *inputs: Shape) -> Shape | None:
        """The shape (symbols, features) of the embedding whose weight it computes with; None: its own."""
        return None

    def start(self, tensor: str, *inputs: Shape) -> Start:
        """What the tensor of that name, one of `weights` or `statistics`, is filled with before training."""
        raise self.missing(f"starting values of {tensor!r}", "start")

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        """Its memory in a training step, whose products are in numbers of `narrow` bytes."""
        raise self.missing("memory", "footprint")

    def torch_line(self, *inputs: Shape) -> TorchLine:
        """The line that computes it in a Python file for PyTorch."""
        raise self.missing("line of PyTorch", "torch_line")

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        """Writes the operators of ONNX that compute it from the tensors `inputs`."""
        raise self.missing("operators of ONNX", "onnx")

    def missing(self, what: str, method: str) -> MissingReading:
        """The error for a reading that the class does not state, with the method that would state it."""
        kind = type(self).__name__
        return MissingReading(f"{kind} does not state its {what}; its class needs the method {method!r}")
