"""What the check of an engine sees, and that it leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor, nn

from aiperf.engines import agreement
from aiperf.engines.agreement import BOUNDS, FEW, NUM_BATCHES, Precise, difference, prepare_and_check
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.fused import Fused
from aiperf.engines.graphed import Graphed
from aiperf.parallel.parallel import Solo
from nas.graph import INPUT, Graph, Node
from nas.layers import Add, BatchNorm, Conv2d, Dense, GlobalPool
from nas.seeds import residual
from tests.aiperf.engines.recording import Averaging, Recording, batch_of, passes_of, recording
from tests.nas.grown import grown

SEED = residual((1, 8, 8), 3)


def wrong_by(change: Callable[[Passes, Tensor], Tensor]) -> type[Engine]:
    class Wrong(Engine):
        def step(self, examples: Tensor, labels: Tensor) -> Tensor:
            return change(self.passes, super().step(examples, labels))

    return Wrong


def scaled(passes: Passes, loss: Tensor) -> Tensor:
    """The gradient of one bias, which is a share of a thousandth of all."""
    gradient = passes.network.tensors()["classifier.bias"].grad
    assert gradient is not None
    gradient.mul_(4.0)
    return loss


def missing(passes: Passes, loss: Tensor) -> Tensor:
    passes.network.tensors()["classifier.bias"].grad = None
    return loss


def transposed(passes: Passes, loss: Tensor) -> Tensor:
    """The same numbers in another order in memory, in which fused SGD on a CPU would read them wrongly."""
    weight = passes.network.tensors()["classifier.weight"]
    assert weight.grad is not None
    weight.grad = weight.grad.t().contiguous().t()
    return loss


CHANGES = {
    "the loss is": lambda passes, loss: loss * 1.2,
    "the loss is nan": lambda passes, loss: loss * float("nan"),
    "the gradient of classifier.bias is": scaled,
    "gradients of": missing,
    "the gradient of classifier.weight has the strides (1, 3) instead of": transposed,
}


@pytest.mark.contract
@pytest.mark.parametrize("said", CHANGES)
@pytest.mark.parametrize("format", ["fp32", "bf16"])
def test_a_step_that_differs_is_told(said: str, format: str) -> None:
    passes = passes_of(SEED, format=format)
    assert difference(Engine(passes), wrong_by(CHANGES[said])(passes), *batch_of(SEED, 8)).startswith(said)


@pytest.mark.parametrize("said", ["the gradient of classifier.bias is", "the loss is"])
def test_a_step_in_fp16_is_compared_although_its_gradients_overflow_at_first(said: str) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    eager = Engine(replace(passes_of(SEED, format="fp16"), scaler=scaler))
    batch = batch_of(SEED, 8)
    assert not all(tensor.isfinite().all() for tensor in agreement._made(eager, *batch)[1].values())
    assert difference(eager, Engine(eager.passes), *batch) == ""
    assert difference(eager, wrong_by(CHANGES[said])(eager.passes), *batch).startswith(said)
    _, reason = prepare_and_check(wrong_by(CHANGES[said]), eager, *batch, Solo())
    assert reason.startswith(said)
    assert scaler.get_scale() == 2.0**24


def compared(expected: dict[str, Tensor], found: dict[str, Tensor]) -> str:
    """What is said of gradients, with a loss that is the same."""
    step, other = (torch.tensor(1.0), expected), (torch.tensor(1.0), found)
    return agreement._compared(1e-3, Precise(step), step, other)


def test_a_small_tensor_is_not_hidden_by_a_large_one() -> None:
    large = torch.ones(10_000)  # together 100
    expected, found = ({"large": large, "small": torch.tensor([each])} for each in (0.001, 0.011))
    assert compared(expected, found).startswith("the gradient of small is 0.01 from")


def test_what_each_tensor_may_be_off_all_together_may_not() -> None:
    expected, found = ({"one": each, "other": each} for each in (torch.ones(100), torch.ones(100) * 1.0015))
    assert compared(expected, found).startswith("the gradient is 0.0212 from")


@pytest.mark.parametrize("format", ["fp32", "bf16"])
def test_a_step_that_is_truer_than_the_eager_one_is_the_same(format: str) -> None:
    """Rounding in bf16 takes the eager gradients farther from the true ones than the bound alone allows."""
    graph = grown(1, 12)
    passes = passes_of(graph, format=format)

    class Truer(Engine):
        def step(self, examples: Tensor, labels: Tensor) -> Tensor:
            with agreement._doubled(self.passes.network):
                return Engine(replace(self.passes, format="fp32")).step(examples.double(), labels)

    eager, batch = Engine(passes), batch_of(graph, 8)
    true, rounded = (agreement._made(engine, *batch) for engine in (Truer(passes), eager))
    assert (agreement._compared(BOUNDS[format], Precise(true), true, rounded) != "") == (format == "bf16")
    assert difference(eager, Truer(passes), *batch) == ""
    precise = agreement._precise(eager, *batch)
    assert precise is not None
    assert {gradient.dtype for gradient in precise.exact[1].values()} == {torch.float64}


@dataclass(frozen=True)
class Tuning(Recording):
    """A device whose libraries try out kernels for each new shape, as cuDNN and MIOpen do with
    torch.backends.cudnn.benchmark: in fp32, seconds for each layer of a network."""

    tunes: list[bool] = field(default_factory=lambda: [True])
    tried: set[tuple[int, bool]] = field(default_factory=set)
    made: set[tuple[int, bool]] = field(default_factory=set)
    """Numbers of examples of the passes that were made, and whether in 16 bits."""

    @contextmanager
    def untuned(self) -> Iterator[None]:
        self.tunes[0] = False
        yield
        self.tunes[0] = True

    def convolves(self, module: nn.Module, inputs: tuple[Tensor]) -> None:
        made = len(inputs[0]), torch.is_autocast_enabled("cpu")
        self.made.add(made)
        if self.tunes[0]:
            self.tried.add(made)


def grouped(graph: Graph, device: Recording, format: str = "bf16") -> Engine:
    """The eager engine of a network that is wrapped, as in a group."""
    eager = Engine(passes_of(graph, device, format=format))
    eager.module = Averaging(eager.passes.network)
    return eager


def test_kernels_are_tried_out_only_for_the_step_that_is_trained_with() -> None:
    cpu = recording()
    device = Tuning(cpu.index, cpu.name, cpu.memory_bytes)
    eager = grouped(SEED, device)
    for module in eager.passes.network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(device.convolves)
    engine, reason = prepare_and_check(Graphed, eager, *batch_of(SEED, 2 * FEW), Solo())
    assert (engine.name, reason) == ("graphed", "")
    assert device.tried == {(2 * FEW, True)}
    assert device.made == {(2 * FEW, True), (FEW, True), (FEW, False)}


@pytest.mark.parametrize("seed", range(4))
def test_few_examples_show_what_rounding_may_do_to_a_whole_batch(seed: int) -> None:
    """A step without any rounding is allowed, in networks whose eager gradients are a tenth off; one in which
    the gradients of a tensor are half as large again is not."""
    graph = grown(seed, 12)
    eager, batch = grouped(graph, recording()), batch_of(graph, 4 * FEW)
    precise, by_eager = agreement._precise(eager, *batch), agreement._made(eager, *batch)
    assert precise is not None
    assert precise.rounded is not None
    with agreement._doubled(eager.passes.network):
        exact = agreement._made(Engine(replace(eager.passes, format="fp32")), batch[0].double(), batch[1])
    assert agreement._compared(BOUNDS["bf16"], precise, by_eager, exact) == ""
    largest = max(exact[1], key=lambda name: float(exact[1][name].norm()))
    wrong = exact[0], {**exact[1], largest: 1.5 * exact[1][largest]}
    assert agreement._compared(BOUNDS["bf16"], precise, by_eager, wrong) != ""


def test_the_eager_step_has_freed_its_memory_before_a_graph_takes_its_own() -> None:
    order = list[str]()

    class Ordered(Graphed):
        def prepare(self, examples: Tensor, labels: Tensor) -> None:
            order.append("captured")
            super().prepare(examples, labels)

    class Eager(Engine):
        def step(self, examples: Tensor, labels: Tensor) -> Tensor:
            order.append("eager")
            return super().step(examples, labels)

    _, reason = prepare_and_check(Ordered, Eager(passes_of(SEED)), *batch_of(SEED, 4), Solo())
    assert (reason, order) == ("", ["eager", "captured"])


@contextmanager
def expect_unchanged(passes: Passes) -> Iterator[dict[str, Tensor]]:
    """Afterwards the network has the tensors that it had, which are given, and no gradients."""
    before = {name: tensor.detach().clone() for name, tensor in passes.network.tensors().items()}
    yield before
    for name, tensor in passes.network.tensors().items():
        assert torch.equal(tensor, before[name])
        assert tensor.grad is None


def test_statistics_and_random_numbers_are_as_before() -> None:
    passes = passes_of(SEED)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with expect_unchanged(passes) as before, agreement.unchanged(passes):
        torch.rand(7)
        Engine(passes).step(*batch_of(SEED, 4))
        tensors = passes.network.tensors().items()
        assert any(not torch.equal(tensor, before[name]) for name, tensor in tensors)  # else this cannot fail
    assert torch.equal(torch.rand(3), expected)


def test_images_of_another_type_are_found_when_the_engine_is_made() -> None:
    """A graph of one's own that adds the input, which is fp32, to the output of a convolution in bf16."""
    nodes = [Node("conv", Conv2d(4, 3), (INPUT,)), Node("bn", BatchNorm(), ("conv",))]
    nodes += [Node("add", Add(), ("bn", INPUT)), Node("pool", GlobalPool(), ("add",))]
    graph = Graph((4, 8, 8), (*nodes, Node("classifier", Dense(3), ("pool",))))
    for format, said in (
        ("fp32", ""),
        ("bf16", "Unfit: fused steps read two tensors of one type, not bfloat16"),
    ):
        eager = Engine(passes_of(graph, format=format))
        engine, reason = agreement.prepare_only(Fused, eager, *batch_of(graph, 4), Solo())
        assert reason.startswith(said)
        assert (engine is eager) == bool(said) == bool(reason)


@pytest.mark.parametrize(("wrong", "refused"), [(NUM_BATCHES - 1, False), (NUM_BATCHES, True)])
def test_an_engine_is_refused_only_if_its_step_differs_on_several_batches(wrong: int, refused: bool) -> None:
    """On one it may, by the rounding of an activation that is close to 0."""
    seen = list[float]()

    def at_first(passes: Passes, loss: Tensor) -> Tensor:
        seen.append(float(loss))
        return loss * 1.2 if len(seen) <= wrong else loss

    eager = Engine(passes_of(SEED))
    engine, reason = prepare_and_check(wrong_by(at_first), eager, *batch_of(SEED, 4), Solo())
    assert len(set(seen)) == NUM_BATCHES, "each time other examples"
    assert (engine is eager) == refused
    assert reason.startswith("the loss is") == refused


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("no such kernel\nand a long story", "RuntimeError: no such kernel"),
        ("at 45:8:\n    x = 1\n\nno such tile\nSet TORCH_LOGS=1", "RuntimeError: at 45:8: no such tile"),
        ("CUDNN_STATUS_ALLOC_FAILED", "OutOfMemoryError: CUDNN_STATUS_ALLOC_FAILED"),
        ("NCCL error in: a.cpp:1\nLast error:\ntwins", "RuntimeError: NCCL error in: a.cpp:1 twins"),
    ],
)
def test_what_an_engine_raises_is_the_reason(message: str, reason: str) -> None:
    class Broken(Engine):
        def prepare(self, examples: Tensor, labels: Tensor) -> None:
            self.step(examples, labels)
            raise RuntimeError(message)

    eager = Engine(passes_of(SEED))
    with expect_unchanged(eager.passes):
        found = prepare_and_check(Broken, eager, *batch_of(SEED, 4), Solo())
    assert found == (eager, reason)
