"""The kernels in Triton, run by Triton's interpreter on a CPU, against torch's own operations in fp64.

`make test-triton` installs Triton and sets TRITON_INTERPRET, which must be set before Triton is imported.
One file, because all of it needs that, and tiles of few elements.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from aiperf.device import Cpu
from aiperf.engines.agreement import difference
from aiperf.engines.engine import Engine
from aiperf.engines.fused import BACKENDS, Fused, fuse, triton_images, triton_launch, triton_sequences
from aiperf.engines.fused.backend import Activation
from aiperf.engines.fused.image_steps import Gated, Mean, Normalise
from aiperf.engines.fused.sequence_steps import Attend, GatedProduct, NormaliseRows
from aiperf.engines.fused.tensors import Unfit
from aiperf.engines.fused.triton_backend import IN_TRITON as ON_DEVICE
from aiperf.engines.fused.triton_backend import InTriton
from aiperf.engines.fused.triton_launch import FEWEST_TILES, PROGRAMS, tiling
from aiperf.engines.registry import FusedGraphed, why_not
from aiperf.measuring.training_step import batch
from nas.graph import Graph
from nas.layers import Attention, Conv2d
from nas.modules import Network, module_of
from nas.seeds import resnet50
from nas.text_seeds import llama
from nas.weights import initial
from tests.aiperf.engines import test_fused_kernels as kernels
from tests.aiperf.engines import test_fused_sequences as sequences
from tests.aiperf.engines.recording import batch_of, passes_of
from tests.aiperf.engines.test_fused_kernels import BOUNDS, images, norm, seeded
from tests.aiperf.engines.test_fused_networks import fusible
from tests.aiperf.training.text_trials import TRAINING

pytestmark = pytest.mark.triton

SHAPES = [
    (1, 3, 5, 7),
    (5, 4, 3, 7),
    (2, 24, 3, 3),
    (2, 40, 2, 4),
    (7, 16, 1, 1),
    (2, 1, 4, 3),
    (2, 131, 2, 1),
]
"""Channels that fill no tile, several tiles, and one alone; rows that fill none."""
SEQUENCES = [(1, 1, 2), (2, 5, 33), (3, 7, 40), (2, 3, 160)]
"""Rows that fill no tile, and wider ones than a tile of other kernels."""
KINDS = [("fp32", "fp32"), ("fp32", "bf16"), ("bf16", "bf16"), ("fp32", "fp32")]
WAYS = tuple(product(BOUNDS, (1, 2, 3), (False, True), Activation))
ROUND = [(SHAPES[place % len(SHAPES)], *way) for place, way in enumerate(WAYS) if place % 2]
MEGABYTES_OF_AN_IMAGE = 339
"""What a step of ResNet-50 may read and write for an image, in bf16."""
MEGABYTES_FORWARD = 73.5
"""The part of the kernels between the convolutions in it, in the forward pass."""


OPERATORS = (triton_images, triton_sequences)


class Interpreted(InTriton):
    """The same kernels on tensors of a CPU."""

    kind = "cpu"


IN_TRITON = Interpreted()


@pytest.fixture(autouse=True)
def tiles_of_few_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small images are several tiles, chunks and parts."""
    assert os.environ.get("TRITON_INTERPRET") == "1", "make test-triton sets it"
    few = {"TILE": 128, "WIDTHS": (16, 8), "PROGRAMS": 4, "FEWEST_TILES": 1, "MORE_PROGRAMS": 6}
    for name, value in few.items():
        monkeypatch.setattr(triton_launch, name, value)
    for module in OPERATORS:
        monkeypatch.setattr(module, "PARTS", 2)


@pytest.mark.parametrize(("shape", "dtype", "readers", "added", "activation"), ROUND, ids=str)
def test_training_is_torchs_in_fp64(
    shape: tuple[int, ...], dtype: torch.dtype, readers: int, added: bool, activation: Activation
) -> None:
    kernels.test_training_is_torchs_in_fp64(shape, dtype, readers, added, activation, IN_TRITON)


@pytest.mark.parametrize(
    ("shape", "activation", "dtype"), [*zip(SHAPES, 3 * list(Activation), 3 * list(BOUNDS))]
)
def test_evaluation_is_torchs(shape: tuple[int, ...], activation: Activation, dtype: torch.dtype) -> None:
    kernels.test_evaluation_is_torchs(shape, activation, dtype, IN_TRITON)


@pytest.mark.parametrize(
    ("shape", "readers", "dtype"), [*zip(SHAPES, (1, 2, 3, 1, 2, 1, 1), 3 * list(BOUNDS))], ids=str
)
def test_gate_and_mean(shape: tuple[int, ...], readers: int, dtype: torch.dtype) -> None:
    kernels.test_gate(shape, readers, dtype, IN_TRITON)
    kernels.test_mean(shape, dtype, IN_TRITON)


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    kernels.test_a_mean_far_from_zero_costs_no_digits(-3e4, (3, 4, 9, 8), IN_TRITON)


@pytest.mark.parametrize("activation", Activation)
def test_what_is_not_finite_stays_in_its_channel_and_is_not_hidden(activation: Activation) -> None:
    wrong = float("nan")
    kernels.test_what_is_not_finite_stays_in_its_channel_and_is_not_hidden(activation, wrong, IN_TRITON)


def test_what_the_kernels_do_not_take_is_refused() -> None:
    x, whole = images((2, 3, 4, 5), torch.float32), Normalise(IN_TRITON, norm(3))
    for wrong in (x.contiguous(), x.double(), x.to("meta")):
        with pytest.raises(Unfit, match="in fp32 or bf16 or fp16 with the channels last"):
            whole(wrong)


@pytest.mark.parametrize(("shape", "readers", "kinds"), [*zip(SEQUENCES, (1, 3, 2, 5), KINDS)], ids=str)
def test_rows_are_normalised_as_in_fp64(shape: tuple[int, ...], readers: int, kinds: tuple[str, str]) -> None:
    sequences.test_rows_are_normalised_as_in_fp64(shape, kinds, readers, IN_TRITON)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # e^200 is infinite, and 1 / ∞ is 0
@pytest.mark.parametrize(("shape", "dtype"), [*zip(SEQUENCES, 2 * [torch.float32, torch.bfloat16])], ids=str)
def test_a_gated_activation_is_that_of_fp64(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    sequences.test_a_gate_is_that_of_fp64(shape, dtype, IN_TRITON)
    sequences.test_a_gate_hides_nothing_that_is_not_finite(IN_TRITON)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_with_rotary_positions_is_that_of_fp64(dtype: torch.dtype) -> None:
    sequences.test_attention_is_that_of_fp64(4, 2, 3, dtype, IN_TRITON)


def test_a_row_that_no_program_holds_is_refused() -> None:
    with pytest.raises(Unfit, match="a fused RMS norm has at most 8,192 features, not 8,193"):
        NormaliseRows(IN_TRITON, nn.RMSNorm(8193))(torch.zeros(1, 1, 8193))


def small_text() -> Graph:
    return llama((6,), 16, blocks=1, heads=2, groups=1, width=16, hidden=24)


@pytest.mark.parametrize(("kind", "format"), [(Fused, "fp32"), (FusedGraphed, "bf16")])
def test_a_grown_network_makes_the_eager_step(
    kind: type[Engine], format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKENDS, "cpu", IN_TRITON)  # type: ignore[misc]
    passes, batch = passes_of(fusible(), format=format), batch_of(fusible(), 4)
    engine = kind(passes)
    steps = [run for run, *_ in engine.answers.plan]
    assert {type(run) for run in steps} >= {Normalise, Gated, Mean}
    assert {run.backend for run in steps if isinstance(run, Normalise | Gated | Mean)} == {IN_TRITON}
    assert difference(Engine(passes), engine, *batch) == ""


@pytest.mark.parametrize(("kind", "format"), [(Fused, "bf16"), (FusedGraphed, "fp32")])
def test_a_network_of_text_makes_the_eager_step(
    kind: type[Engine], format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKENDS, "cpu", IN_TRITON)  # type: ignore[misc]
    passes = passes_of(small_text(), format=format)
    assert why_not("fused", passes.network.graph, passes.device, TRAINING, 1) == ""
    engine = kind(passes)
    steps = [run for run, *_ in engine.answers.plan]
    kinds = (NormaliseRows, Attend, NormaliseRows, GatedProduct, NormaliseRows)
    sequences = [run for run in steps if isinstance(run, kinds)]
    assert tuple(map(type, sequences)) == kinds
    assert {run.backend for run in sequences} == {IN_TRITON}
    assert difference(Engine(passes), engine, *batch(passes.network.graph, passes.device, 3)) == ""


@pytest.mark.parametrize("kind", ["images", "text"])
def test_a_step_has_the_same_bits_in_any_order_of_the_programs(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device runs them in any; atomic sums would differ."""
    from triton.runtime.interpreter import interpreter_builder

    graph = fusible() if kind == "images" else small_text()
    network, examples = Network(graph), batch(graph, Cpu.bind(0), 3)[0]
    network.place(torch.device("cpu"), torch.channels_last)
    fuse(network, IN_TRITON)

    def step() -> list[Tensor]:
        network.load(initial(graph, 1))
        network.zero_grad()
        loss = network(examples).square().mean()
        loss.backward()
        gradients = [each.grad for each in network.parameters() if each.grad is not None]
        return [loss.detach(), *gradients, *(each.clone() for each in network.buffers())]

    first, place = step(), interpreter_builder.set_grid_idx
    programs: list[int] = []

    def place_from_the_end(x: int, y: int, z: int) -> None:
        programs.append(interpreter_builder.grid_dim[0])
        place(programs[-1] - 1 - x, y, z)

    monkeypatch.setattr(interpreter_builder, "set_grid_idx", place_from_the_end)
    second = step()
    assert max(programs) > 1
    assert len(first) > len(list(network.buffers())) + 1
    assert all(map(torch.equal, first, second))


def test_the_operators_are_as_torch_wants_them() -> None:
    """Schema, what they change, and what they return of tensors without memory."""
    x, vector = seeded((2, 4, 3, 3), torch.float32).detach(), torch.rand(4)
    statistics, gates = torch.rand(8), torch.rand(2, 4)
    rows, features = torch.rand(2, 3, 8), torch.rand(8)
    bits = torch.zeros(triton_launch.for_each(18, 4).bytes_of_bits, dtype=torch.uint8)
    cases: list[tuple[Any, tuple[Any, ...]]] = [
        (triton_images.statistics, (x, vector.clone(), vector.clone(), 0.1, 1e-5)),
        (triton_images.normalise, (x, x, 4 * [vector], 4 * [vector], [1e-5, 1e-5], 1, True)),
        (triton_images.normalise, (x, None, 4 * [vector], [], [1e-5], 0, False)),
        (triton_images.learn_backward, (x, x, x, bits, vector, vector, statistics, 1, True)),
        (triton_images.gate, (x, gates)),
        (triton_images.gate_backward, (x, None, x, gates)),
        (triton_images.mean, (x,)),
        (triton_images.mean_backward, (gates, [2, 4, 3, 3])),
        (triton_sequences.normalise, (rows, features, 1e-6, torch.bfloat16)),
        (triton_sequences.normalise_backward, ([rows, rows], rows, features, torch.rand(6))),
        (triton_sequences.turn, (rows, torch.rand(2, 3, 2), 4, torch.bfloat16, True)),
        (triton_sequences.silu_product, (rows, rows)),
        (triton_sequences.silu_product_backward, (rows, rows, rows)),
    ]
    for operator, arguments in cases:
        torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))


def test_the_steps_on_a_device_give_tensors_of_that_device() -> None:
    """By the fake kernels, with which torch tells what an operator returns: shapes, types and strides."""
    with FakeTensorMode(), torch.device("cuda"), torch.no_grad():
        module = nn.BatchNorm2d(24)
        images = torch.empty(2, 24, 5, 7, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        vectors, affine = images.new_empty(2, 24), (module.weight, module.bias)
        found = [
            *Normalise(ON_DEVICE, module, Activation.RELU, 2)(images, images),
            Normalise(ON_DEVICE, module.eval(), Activation.RELU6)(images),
            Gated(ON_DEVICE)(images, vectors),
            ON_DEVICE.mean_backward(vectors, images.shape),
            *ON_DEVICE.gate_backward(images, None, images, vectors)[:1],
            *ON_DEVICE.normalise_backward(
                images, images, images, images, affine, torch.empty(48), Activation.RELU, True
            )[:2],
        ]
        means = Mean(ON_DEVICE)(images)
        rows = torch.empty(2, 5, 24, dtype=torch.bfloat16)
        attention = module_of(Attention(2, 2), *[(5, 24)] * 3)
        sequences = [
            *NormaliseRows(ON_DEVICE, nn.RMSNorm(24, eps=1e-6), 2)(rows),
            Attend(ON_DEVICE, attention)(rows, rows, rows),  # type: ignore[arg-type]
            GatedProduct(ON_DEVICE)(rows, rows),
        ]
    for each in sequences:
        assert (each.device, each.dtype, each.shape) == (images.device, images.dtype, rows.shape)
    assert (means.device, means.dtype, means.shape) == (images.device, images.dtype, vectors.shape)
    for each in found:
        assert each is not None
        assert (each.device, each.dtype, each.shape) == (images.device, images.dtype, images.shape)
        assert each.stride() == images.stride()


@dataclass
class Traffic:
    """The bytes that a kernel reads and writes in tiles, by its source and by its arguments."""

    done: dict[str, int] = field(default_factory=dict)
    stated: dict[str, int] = field(default_factory=dict)
    kernel: str = ""

    def count(self, pointers: Any, mask: Any) -> None:
        size = pointers.get_element_ty().primitive_bitwidth // 8
        if pointers.data.ndim == 2 or size == 1:
            self.done[self.kernel] += int(mask.data.sum()) * size


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    from triton.runtime.interpreter import interpreter_builder

    found, launch = Traffic(), triton_launch.launch
    load, store = interpreter_builder.create_masked_load, interpreter_builder.create_masked_store

    def launched(name: str, programs: int, *arguments: Any, **constants: int) -> None:
        found.kernel = name
        found.done[name] = found.stated[name] = 0
        launch(name, programs, *arguments, **constants)
        found.stated[name] += stated(name, arguments)

    def loaded(pointers: Any, mask: Any, *others: Any) -> Any:
        found.count(pointers, mask)
        return load(pointers, mask, *others)

    def stored(pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        found.count(pointers, mask)
        return store(pointers, value, mask, *others)

    for module in OPERATORS:
        monkeypatch.setattr(module, "launch", launched)
    monkeypatch.setattr(interpreter_builder, "create_masked_load", loaded)
    monkeypatch.setattr(interpreter_builder, "create_masked_store", stored)
    return found


def stated(name: str, arguments: tuple[Any, ...]) -> int:
    """The bytes of the images or sequences that a kernel is given, or of the sums that it finishes: each is
    read or written once."""
    tensors = [each for each in arguments if isinstance(each, Tensor)]
    if name.startswith("finish"):
        return tensors[0].nbytes
    whole = max(each.dim() for each in tensors)
    return sum(each.nbytes for each in tensors if each.dim() == whole or each.dtype == torch.uint8)


@pytest.mark.parametrize(("added", "readers"), [(False, 1), (True, 2)])
def test_each_kernel_reads_and_writes_its_images_once(added: bool, readers: int, traffic: Traffic) -> None:
    x, r, z = (seeded((2, 24, 3, 5), torch.bfloat16) for _ in range(3))
    norms = [norm(24) for _ in range(readers)]  # with two readers, the residual has one of its own
    found = Normalise(IN_TRITON, norms[0], Activation.RELU, readers, *norms[1:])(x, *([r] if added else []))
    outs = found if readers > 1 else (found,)
    torch.autograd.backward(outs, [torch.ones_like(out) for out in outs])
    gated = Gated(IN_TRITON)(z, torch.rand(2, 24).bfloat16())
    Mean(IN_TRITON)(gated).sum().backward()
    assert len(traffic.done) == 10
    assert traffic.done == traffic.stated


def test_each_kernel_reads_and_writes_its_sequences_once(traffic: Traffic) -> None:
    x, z = (torch.randn(2, 4, 40, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    found = NormaliseRows(IN_TRITON, nn.RMSNorm(40, eps=1e-6), 3)(x)
    torch.autograd.backward(found, [torch.ones_like(each) for each in found])
    GatedProduct(IN_TRITON)(z, x).sum().backward()
    for back in (False, True):
        turns, heads = torch.rand(2, 4, 5), 2 * 40 // 10
        IN_TRITON.turn(x.detach(), turns, 10, torch.float32, back)
        # Angles are read for each head of each sequence, from a cache: all sequences have the same.
        traffic.stated["turn"] += (heads - 1) * turns.nbytes
        assert traffic.done["turn"] == traffic.stated["turn"]
    assert len(traffic.done) == 6
    assert traffic.done == traffic.stated


def test_a_step_of_resnet50_moves_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions read and write their images three times. Sums are counted as of batches of 256 images.

    Computed in fp32, and counted in bf16, in which a processor without it takes 16 times as long.
    """
    monkeypatch.undo()
    moved = {"kernels": 0.0}

    def launched(name: str, programs: int, *arguments: Any, **constants: int) -> None:
        if not name.startswith("finish"):
            moved["kernels"] += stated(name, tuple(map(in_bf16, arguments)))
        if name in ("sum_images", "sum_gradients"):
            _, channels, height, width = arguments[0].shape
            tiles = tiling(256 * height * width, channels, PROGRAMS, FEWEST_TILES)
            moved["kernels"] += 2 * 8 * tiles.chunks * channels / 256

    graph = resnet50((3, 224, 224), 1000)
    image, network = torch.randn(1, 3, 224, 224).to(memory_format=torch.channels_last), Network(graph)
    network.load(initial(graph, 1))
    network.place(torch.device("cpu"), torch.channels_last)
    fuse(network, IN_TRITON)
    monkeypatch.setattr(triton_images, "launch", launched)
    mean = network(image).mean()
    forward = moved["kernels"] / 1e6
    mean.backward()
    numbers = sum(
        size(graph.shapes[node.inputs[0]]) + size(graph.shapes[node.name])
        for node in graph.nodes
        if isinstance(node.layer, Conv2d)
    )
    of_convolutions = 3 * 2 * numbers
    found = (moved["kernels"] + of_convolutions) / 1e6
    assert 300 < found <= MEGABYTES_OF_AN_IMAGE
    assert 70 < forward <= MEGABYTES_FORWARD


def in_bf16(argument: Any) -> Any:
    """What a kernel is given; images without their numbers."""
    is_image = isinstance(argument, Tensor) and argument.dim() == 4
    return argument.to("meta", torch.bfloat16) if is_image else argument


def size(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
