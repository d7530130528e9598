"""The ceiling of a device: rates of real work on this CPU, of some milliseconds here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aiperf.commands import peak
from aiperf.device import Device, bind
from aiperf.errors import WorldError
from aiperf.measuring import before_span, ceiling
from aiperf.measuring.before_span import measure, network_seconds
from aiperf.measuring.ceiling import measure_copy, measure_products
from aiperf.measuring.network_times import measure_network
from aiperf.measuring.training_step import RankWork
from aiperf.parallel.parallel import Solo
from aiperf.wire.reports import Ceiling
from analysis.readings.limits import read_limits
from nas.seeds import residual, resnet50
from tests.aiperf.commands.typed import Typed


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """This CPU, with work of some milliseconds."""
    before = torch.get_float32_matmul_precision(), torch.get_num_threads()
    monkeypatch.setattr(ceiling, "SIDES", {"cpu": (64, 128)})
    monkeypatch.setattr(ceiling, "TALL", (256, 64))  # that fits where bf16 is emulated, too
    monkeypatch.setattr(ceiling, "COPY_BYTES", {"cpu": 4 << 20})
    monkeypatch.setattr(ceiling, "WINDOW_SECONDS", 0.004)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield bind("cpu", 0)
    torch.set_float32_matmul_precision(before[0])
    torch.set_num_threads(before[1])


@pytest.mark.parametrize("format", ["fp32", "bf16"])
def test_every_side_is_measured_in_the_format_with_pairs_in_turn(
    device: Device, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    seen, multiply = list[tuple[torch.dtype, int, int]](), torch.mm

    def watched(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        seen.append((left.dtype, len(left), left.data_ptr()))
        assert left.data_ptr() != right.data_ptr()
        assert left.float().std() > 0.5, "zeros would run faster"
        return multiply(left, right, out=out)

    monkeypatch.setattr(torch, "mm", watched)
    products = measure_products(device, format, seconds=0.5)  # for all shapes, on a busy machine, too
    assert [product.side for product in products] == [64, 128, 0]
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[format]
    for side in (64, 128, ceiling.TALL[0]):
        used = [place for dtype, rows, place in seen if (dtype, rows) == (kind, side)]
        assert len(set(used)) == ceiling.ROTATED
        assert all(a != b for a, b in zip(used, used[1:]))  # noqa: RUF007
    assert {dtype for dtype, *_ in seen} == {kind}
    for product in products:
        assert 0 < product.rate.typical <= product.rate.fastest
        assert product.rate.spread >= 0


def clock(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[torch.Tensor], float]) -> list[float]:
    """It goes on by what a product with this left factor takes."""
    now = [0.0]

    def multiply(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        now[0] += seconds(left)
        return out

    monkeypatch.setattr(torch, "mm", multiply)
    monkeypatch.setattr(ceiling, "perf_counter", lambda: now[0])
    return now


def test_a_rate_is_work_over_time(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product takes a tenth of a millisecond on this clock; its operations are twice side³."""
    clock(monkeypatch, lambda left: 1e-4)
    small, large, *_ = measure_products(device, "fp32", 0.02)
    assert small.rate.fastest == pytest.approx(2 * 64**3 / 1e-4)
    assert large.rate.fastest == pytest.approx(2 * 128**3 / 1e-4)
    assert small.rate.spread == pytest.approx(0.0, abs=1e-9)


def test_a_side_that_would_take_all_the_time_is_left_out(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in bf16 on a CPU that has no instructions for it: four milliseconds, then 32 of twenty."""
    now = clock(monkeypatch, lambda left: 4e-3 * len(left) * left.shape[1] ** 2 / 64**3)
    assert [product.side for product in measure_products(device, "bf16", 0.02)] == [64]
    assert now[0] < 0.1


class Threaded:
    """A processor that multiplies at a stated rate with each number of threads, and loads four times as much
    of it with matrices of side 128 as with those of 64."""

    kind, torch = "cpu", torch.device("cpu")

    def __init__(self, rates: Mapping[int, float], used: int) -> None:
        self.rates, self.threads = rates, used

    def use_threads(self, count: int) -> None:
        self.threads = count

    def declare(self, format: str) -> None: ...

    def synchronise(self) -> None: ...

    def product_seconds(self, left: torch.Tensor) -> float:
        rows, side = left.shape
        return 2 * rows * side * side / self.rates[self.threads] * (64 / side) ** 2


@pytest.mark.parametrize("used", [1, 2])
@pytest.mark.parametrize(
    ("rates", "known"),
    [({1: 1e9, 2: 2e9}, {1, 2}), ({1: 1e9, 2: 1e9, 4: 1e7}, {1, 2})],
    ids=["idle", "a core is somebody else's"],
)
def test_the_fastest_product_with_each_number_of_threads(
    device: Device, monkeypatch: pytest.MonkeyPatch, rates: dict[int, float], known: set[int], used: int
) -> None:
    """One with which products take so long that none fits is left out: a step with all cores of a processor
    that another program uses takes a hundred times as long."""
    threaded: Any = Threaded(rates, used)
    now = clock(monkeypatch, threaded.product_seconds)
    products = measure_products(threaded, "fp32", 0.1)
    seconds = {count: 1e9 / rate for count, rate in rates.items()}
    began = now[0]
    found = ceiling.measure_by_threads(threaded, "fp32", products, seconds, 0.4)
    assert {count: rate.fastest for count, rate in found.items()} == pytest.approx(
        {count: 4 * rates[count] for count in known}
    )
    assert now[0] - began < 0.4 + 0.1
    assert threaded.threads == used


def test_without_a_choice_of_threads_products_are_those_in_use(device: Device) -> None:
    assert ceiling.measure_by_threads(device, "fp32", measure_products(device, "fp32", 0.02), {}, 0.1) == {}


Step = Callable[[], None]
WORK = RankWork(residual((1, 8, 8), 4), "bf16", batch_size=16)


def measured(device: Device, work: RankWork = WORK, rate: float = 1e9, seconds: float = 0.3) -> Ceiling:
    network = measure_network(device, work, work.network, rate, network_seconds(device, seconds))
    return measure(device, work, Solo(), 3, "node1", network, seconds)


@pytest.mark.contract
def test_the_message_holds_the_fastest_product_and_the_seed(device: Device) -> None:
    found = measured(device)
    assert (found.rank, found.host, found.format, found.all_reduce) == (3, "node1", "bf16", None)
    assert found.side in (64, 128, 0)
    assert 1e7 < found.copy.typical <= found.copy.fastest < 1e13
    assert found.upload is None, "the host is the device"
    assert found.seed is not None
    assert found.fastest == max(found.product.fastest, found.seed.fastest)


def test_a_seed_that_takes_too_long_is_not_begun(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step can be interrupted. By the rate of a product one takes longer than there is."""
    monkeypatch.setattr(before_span, "passes", lambda *words: pytest.fail("begun"))
    large = replace(WORK, network=resnet50((3, 224, 224), 1000))
    assert measured(device, large).seed is None


def clocked(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[int], float]) -> None:
    """On this clock a pass of so many images takes so long, and nothing else does."""
    now = [0.0]

    def pass_of(network: object, device: Device, format: str, batch_size: int) -> Step:
        return lambda: now.__setitem__(0, now[0] + seconds(batch_size))

    monkeypatch.setattr(before_span, "passes", pass_of)
    monkeypatch.setattr(before_span, "perf_counter", lambda: now[0])


def test_the_batch_of_the_seed_grows_as_long_as_it_fits(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image takes 10 ms: two passes of 8 images fit into 0.25 s, not of 16."""
    batches = list[int]()
    clocked(monkeypatch, lambda batch_size: batches.append(batch_size) or 0.01 * batch_size)
    found: Any = before_span.largest_batch(device, WORK, rate=1e12, seconds=0.25)
    assert (found.batch_size, batches) == (8, [2, 2, 8, 8])


class HalfBatch(Threaded):
    """With room for half the batch, of which the first pass takes a minute."""

    kind = "cuda"

    def clean(self) -> None: ...


def test_the_rate_of_an_accelerator_is_that_of_the_largest_batch_with_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pass in which its libraries try out kernels takes nothing of the time."""
    made = list[int]()

    def seconds(batch_size: int) -> float:
        if batch_size > WORK.batch_size // 2:
            raise torch.OutOfMemoryError
        made.append(batch_size)
        return 0.1 if len(made) > 1 else 60.0

    clocked(monkeypatch, seconds)
    monkeypatch.setattr(before_span, "place_network", lambda *words: None)
    found: Any = before_span.network_rate(HalfBatch({}, 0), WORK, 1e12, 0.55)  # type: ignore[arg-type]
    assert (found.typical, made) == (pytest.approx(WORK.operations(8) / 0.1), 7 * [8])


def full(*words: object, **options: object) -> torch.Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_device_that_others_fill_is_told_in_one_line(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "empty_like", full)
    with pytest.raises(
        WorldError, match=r"has no memory for two blocks of 4 MiB: stop other programs that use it"
    ):
        measure_copy(device, 0.02)
    monkeypatch.setattr(torch, "randn", full)
    with pytest.raises(WorldError, match=r"has no memory for the smallest matrices"):
        measure_products(device, "fp32", 0.02)


@pytest.mark.parametrize("output", ["nowhere/peak.json", ""])
def test_where_peak_cannot_write_it_measures_nothing(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output: str
) -> None:
    monkeypatch.setattr(peak, "_measured", lambda *words: pytest.fail("a minute spent in vain"))
    assert typed("peak", "--device", "cpu", "-o", tmp_path / output) == 1
    assert typed.err.startswith(f"aiperf-hpc: {tmp_path / output} cannot be written: ")
    assert typed.err.count("\n") == 1


def test_what_peak_measured_is_shown_even_where_it_can_no_longer_be_written(
    typed: Typed, device: Device, tmp_path: Path
) -> None:
    """As on a disk that filled up meanwhile."""
    asked = ("peak", "--device", "cpu", "--seconds", 1, "--format", "fp32", "-o")
    assert typed(*asked, "/dev/full") == 1
    assert "fp32" in typed.out
    assert "cannot be written: No space left on device" in typed.err
    path = tmp_path / "peak.json"
    assert typed(*asked, path) == 0
    assert read_limits(path, ("fp32",)).ops_per_second > 0
