"""What every layer states of itself: its class, and the values in which it answers.

The values are `Start` (initial numbers), `Footprint` (memory), `TorchLine` (a line of an exported file) and
`LayerPlace` (where a layer writes its operators of ONNX); they follow `Layer` in the order of its methods.

Operators are those of ONNX's set 17: old enough for every program that reads ONNX today. What that set lacks
(GELU, RMSNorm, attention, rotary positions, a mixture of experts) is written in its arithmetic.
https://onnx.ai/onnx/operators
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from nas.frozen import frozen
from nas.layers.shapes import Convolution, Shape
from nas.ops import Cost, Ops

if TYPE_CHECKING:
    from numpy.typing import NDArray  # counting does without numpy

LATER: dict[str, bool] = {"later": True}
"""Metadata of a field that a layer got after its first networks were recorded. It is left out of the layer's
text, of which keys of architectures are made, where it holds its default: `Layer.__repr__`."""

OPERATOR_SET = 17

WIDE = 4
"""Bytes of a number in fp32, in which weights, their gradients and the stream of a text are."""
INDEX = 8
"""Bytes of a whole number of 64 bits (int64)."""
TEXT_DEVIATION = 0.02
"""The standard deviation of every matrix of a text network at the start, as in the code of Radford et al.,
"Language Models are Unsupervised Multitask Learners", 2019. A layer does not know how deep its network is, so
those that write into the trunk are not made smaller by the square root of that."""


class MissingReading(ValueError):
    """A layer was asked for something that its class does not state."""


@frozen
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
    """Whether it puts out nothing negative where it reads nothing negative. A layer that never puts out
    anything negative, such as a ReLU, overrides `is_non_negative`."""
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
        """The input channel that each of these output channels copies; None: each stays where it is."""
        return None

    def widened(self, width: int) -> Layer:
        """The layer with this number of channels or features. Needed where it mixes channels."""
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


@frozen
class Constant:
    """One value everywhere."""

    value: float


@frozen
class Normal:
    """Random numbers of a normal distribution around 0 with this standard deviation."""

    deviation: float


@frozen
class Uniform:
    """Random numbers, evenly spread from −bound to bound."""

    bound: float


Start = Constant | Normal | Uniform


def text_start(tensor: str) -> Start:
    """Matrices of text networks are drawn; biases and the balance of experts begin at 0."""
    return Constant(0) if tensor in ("bias", "balance") else Normal(TEXT_DEVIATION)


@frozen
class Read:
    """A tensor that a layer reads: its shape for one example, and the bytes of each number."""

    shape: Shape
    width: int

    @property
    def num(self) -> int:
        """Elements for one example."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.num * self.width


class Output(Enum):
    """Where a layer's output lies."""

    NEW = 0
    OVER_FIRST = 1
    """In place of the first input, if that input's own layer `frees_output` and nobody else reads it."""
    VIEW = 2
    """It is its input in another shape."""


@frozen
class Footprint:
    """What one layer takes in a training step. Bytes are of one example.

    It is what torch's own modules and autograd do in eager steps (derivatives.yaml of PyTorch states what an
    operation saves). What a library takes inside one operation, as oneDNN's and cuDNN's workspaces, is not in
    it.
    """

    width: int
    """Bytes of a number of the output."""
    keeps: tuple[int, ...] = ()
    """Which inputs the backward pass needs."""
    keeps_output: bool = False
    """Whether the backward pass needs the output."""
    inside: int = 0
    """Bytes that it makes besides its output and keeps for the backward pass."""
    once: int = 0
    """Bytes that it makes and keeps for the backward pass, however many examples there are."""
    forward: int = 0
    """Bytes that it needs for a moment of the forward pass."""
    backward: int = 0
    """Bytes that it needs for a moment of the backward pass, besides the gradients of its inputs."""
    output: Output = Output.NEW
    passes_on: bool = False
    """Whether the gradient of each input is that of the output, in the same memory."""
    narrow_weights: bool = False
    """Whether its weights are copied to the format of training, and the copies kept."""
    blocked_weights: bool = False
    """Whether oneDNN, on a processor only, lays out its weights, or their gradient, anew for a moment."""


def product_costs(row: str, macs: int, sums: int = 0) -> Mapping[str, Cost]:
    """Costs of a product with this number of multiply-accumulates; each of its gradients takes as many.
    `sums` is the number of elements that a bias is added to; its gradient is the sum of theirs."""
    products = Ops(mac=macs)
    rows = {row: Cost(products, products, products, products)}
    if sums:
        adds = Ops(add=sums)
        rows["bias"] = Cost(forward=adds, weight_grad=adds, evaluate=adds)
    return rows


def product_footprint(narrow: int, read: Read) -> Footprint:
    """A product with a matrix or a kernel. Autocast copies what it reads to its format, and each reader of a
    tensor has its own copy."""
    copy = 0 if read.width == narrow else read.num * narrow
    keeps = () if copy else (0,)
    return Footprint(narrow, keeps, inside=copy, backward=copy, narrow_weights=narrow < WIDE)


def keeps_input(read: Read) -> Footprint:
    """A layer of every element whose backward pass needs what it read."""
    return Footprint(read.width, (0,))


@frozen
class TorchLine:
    """What computes a node: `made` once where it has weights, `computed` at each pass.

    "{own}" in them stands for its module, "{table}" for that of the embedding whose weight it computes with,
    "{0}", "{1}" for what it reads.
    """

    computed: str
    made: str = ""
    helpers: tuple[str, ...] = ()
    """Functions and classes that the lines use, each written into the file once. No node's name begins with
    an underscore, so a name that does is never taken."""

    @property
    def is_parameter(self) -> bool:
        """Whether what is made is the one tensor itself, and not a module that holds tensors."""
        return self.made.startswith("nn.Parameter(")


def torch_size(sides: int | tuple[int, int]) -> str:
    """One number for two equal sides."""
    return str(sides[0] if isinstance(sides, tuple) and sides[0] == sides[1] else sides)


def torch_options(*given: tuple[object, object, str]) -> str:
    """The arguments (value, torch's default, text) whose value is not the default."""
    return "".join(f", {text}" for value, default, text in given if value != default)


@frozen
class Operator:
    """One node of ONNX."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass
class Written:
    """What has been written so far: operators in order, and the tensors that they read."""

    tensors: dict[str, NDArray[Any]] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)


@frozen
class LayerPlace:
    """Where a layer writes: the names under which its tensors and what it computes stand."""

    draft: Written
    own: str
    """The name of the layer's output."""
    weights: Mapping[str, NDArray[Any]]
    """The layer's tensors, by name."""
    reads: tuple[Shape, ...]
    table: str = ""
    """The name of the weight of the embedding that the layer computes with, if it does."""

    def weight(self, tensor: str) -> str:
        """The name of one of the layer's tensors, which is written into the file."""
        return self.constant(tensor, self.weights[tensor])

    def constant(self, name: str, values: Any) -> str:
        """The name of a tensor that is written into the file: fp32, and int64 for whole numbers."""
        import numpy as np

        array = np.asarray(values)
        name = f"{self.own}.{name}"
        self.draft.tensors[name] = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
        return name

    def step(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The name of what an operator on the way puts out."""
        return self.steps(kind, 1, *inputs, **attributes)[0]

    def steps(self, kind: str, num: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """Names for the outputs of an intermediate operator, one per output."""
        number = len(self.draft.operators)
        outputs = tuple(f"{self.own}.{number}.{place}" for place in range(num))
        self.draft.operators.append(Operator(kind, inputs, outputs, attributes))
        return outputs

    def last(self, kind: str, *inputs: str, **attributes: Any) -> None:
        """Writes the operator that puts out what the layer does."""
        self.draft.operators.append(Operator(kind, inputs, (self.own,), attributes))
