"""Fused steps on sequences, against torch's own operations in fp64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from aiperf.device import Cpu
from aiperf.engines.agreement import difference
from aiperf.engines.engine import Engine
from aiperf.engines.fused import IN_C, Fused
from aiperf.engines.fused.backend import Backend
from aiperf.engines.fused.sequence_steps import Attend, GatedProduct, NormaliseRows
from aiperf.engines.fused.tensors import Unfit
from aiperf.measuring.training_step import batch
from nas.layers import Attention
from nas.modules import module_of
from nas.text_seeds import llama
from tests.aiperf.engines.recording import passes_of, steps_of
from tests.aiperf.engines.test_fused_kernels import BOUNDS, expect_alike, in_fp64
from tests.nas.grown import TEXT_PARENTS

SHAPES = [(1, 1, 2), (2, 5, 33), (3, 7, 128), (4, 256, 160)]
every_type = pytest.mark.parametrize("dtype", IN_C.formats)


@pytest.fixture
def backend() -> Backend:
    return IN_C


def rows(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return (torch.randn(shape) * 2 + 0.5).to(dtype).requires_grad_()


def expect_as_in_fp64(
    step: Callable[..., Sequence[Tensor]],
    reference: Callable[..., Tensor],
    given: Sequence[Tensor],
    bound: float,
    wide: bool = False,
    writes: torch.dtype | None = None,
) -> None:
    """Outputs and gradients of `given`; `step` returns the output once for each reader, in the type that it
    writes. `wide`: it runs under autocast in bf16."""
    exact = in_fp64(*given)
    with torch.autocast("cpu", torch.bfloat16, enabled=wide):
        found = step(*given)
    expect_alike(found, given, reference(*exact), exact, bound, writes=writes)


@pytest.mark.parametrize("readers", [1, 2, 3, 5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kinds", [("fp32", "fp32"), ("fp32", "bf16"), ("bf16", "bf16")], ids="-".join)
def test_rows_are_normalised_as_in_fp64(
    shape: tuple[int, ...], kinds: tuple[str, str], readers: int, backend: Backend
) -> None:
    torch.manual_seed(1)
    reads, writes = ({"fp32": torch.float32, "bf16": torch.bfloat16}[kind] for kind in kinds)
    norm, own = nn.RMSNorm(shape[-1], eps=1e-6), nn.Parameter(torch.randn(shape[-1]))
    norm.weight = own
    step = NormaliseRows(backend, norm, readers, products_only=writes != reads)

    def reference(values: Tensor, weight: Tensor) -> Tensor:
        return values / (values.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight

    def fused(values: Tensor, weight: Tensor) -> Sequence[Tensor]:
        found = step(values)
        return (found,) if readers == 1 else found

    # More readers than the kernel has places for: their gradients are added in bf16 before.
    bound = max(BOUNDS[reads], BOUNDS[writes]) * (2 if readers > 3 else 1)
    expect_as_in_fp64(fused, reference, (rows(shape, reads), own), bound, writes != reads, writes)


@every_type
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_gate_is_that_of_fp64(shape: tuple[int, ...], dtype: torch.dtype, backend: Backend) -> None:
    torch.manual_seed(1)
    step, z = GatedProduct(backend), (torch.randn(shape) * 30).to(dtype).requires_grad_()
    given = (z, rows(shape, dtype))
    expect_as_in_fp64(lambda z, x: (step(z, x),), lambda z, x: silu(z) * x, given, BOUNDS[dtype])


def test_a_gate_hides_nothing_that_is_not_finite(backend: Backend) -> None:
    z = torch.tensor([[[float("nan"), float("inf"), 200.0, -200.0, 1.0]]])
    x = torch.tensor([[[1.0, 1.0, 1.0, 1.0, float("nan")]]])
    found = GatedProduct(backend)(z, x).flatten().tolist()
    assert [str(each) for each in found[:3]] == ["nan", "inf", "200.0"]
    assert abs(found[3]) < 1e-30
    assert found[4] != found[4]


@every_type
@pytest.mark.parametrize(("heads", "groups", "window"), [(4, 4, 0), (4, 2, 0), (4, 1, 3)])
def test_attention_is_that_of_fp64(
    heads: int, groups: int, window: int, dtype: torch.dtype, backend: Backend
) -> None:
    torch.manual_seed(1)
    positions, width = 12, 8
    shapes = [(positions, heads * width), (positions, groups * width), (positions, groups * width)]
    module = module_of(Attention(heads, groups, window=window), *shapes)
    assert Attend.can(module)
    given = [rows((3, *shape), dtype) for shape in shapes]
    wide = dtype == torch.bfloat16
    step = Attend(backend, module)  # type: ignore[arg-type]
    writes = torch.float32 if positions <= backend.wide_positions else dtype
    expect_as_in_fp64(lambda *reads: (step(*reads),), module, given, 2 * BOUNDS[dtype], wide, writes)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=wide):
        assert step(*given).dtype == dtype


def test_what_the_kernels_of_sequences_do_not_take_is_refused() -> None:
    fine = torch.zeros(2, 4, 6)
    norm, attention = nn.RMSNorm(6), module_of(Attention(1, 1), *[(4, 6)] * 3)
    for step, given in (
        (NormaliseRows(IN_C, norm), [fine.double()]),
        (NormaliseRows(IN_C, norm), [fine.transpose(0, 1)]),
        (NormaliseRows(IN_C, nn.RMSNorm(6).double()), [fine]),
        (NormaliseRows(IN_C, norm), [fine[:0]]),
        (GatedProduct(IN_C), [fine, fine.bfloat16()]),
        (GatedProduct(IN_C), [fine, fine[:1]]),
        (Attend(IN_C, attention), [fine[:, :3].contiguous()] * 3),  # type: ignore[arg-type]
    ):
        with pytest.raises(Unfit):
            step(*given)  # type: ignore[operator]
    with torch.autocast("cpu", torch.float16), pytest.raises(Unfit, match="not in torch"):
        NormaliseRows(IN_C, norm, products_only=True)(fine)
    assert not Attend.can(module_of(Attention(1, 1, rotary=0.0), *[(4, 6)] * 3))


@pytest.mark.parametrize("format", ["fp32", "bf16"])
@pytest.mark.parametrize("parent", [name for name in TEXT_PARENTS if "mixed" not in name])
def test_a_grown_network_of_text_makes_the_eager_step(parent: str, format: str) -> None:
    graph = TEXT_PARENTS[parent]()
    passes = passes_of(graph, Cpu.bind(0), format=format)
    engine = Fused(passes)
    symbols, targets = batch(graph, passes.device, 3)
    engine.prepare(symbols, targets)
    assert difference(Engine(passes), engine, symbols, targets) == ""
    with torch.inference_mode(), passes.device.autocast(format):
        found, expected = (each.eval()(symbols).double() for each in (engine.answers, passes.network))
    assert float((found - expected).norm() / expected.norm()) < {"fp32": 1e-5, "bf16": 2e-2}[format]


def test_all_of_llama_between_its_products_is_fused() -> None:
    passes = passes_of(llama((12,), 256, blocks=2, heads=4, groups=2, width=16, hidden=24), Cpu.bind(0))
    steps = "1 Embedding, 5 NormaliseRows, 15 Linear, 2 Attend, 4 Sum, 2 GatedProduct"
    assert steps_of(Fused(passes).answers) == steps
