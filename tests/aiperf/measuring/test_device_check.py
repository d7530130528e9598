"""The device check: the same bits in every lap, and others after one wrong bit anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest
import torch
from torch import Tensor

from aiperf.device import bind
from aiperf.device.cpu import Cpu
from aiperf.measuring import device_check
from aiperf.measuring.device_check import LAPS, LAYERS, Lap, check_device, digest, laps_of

pytestmark = pytest.mark.torch
CPU = Cpu(0, "a processor", 8 << 30)
PRODUCTS = LAYERS * LAPS["cpu"].steps
"""Products in the forward passes of a lap."""


def flipping(monkeypatch: pytest.MonkeyPatch, *wrong: int) -> None:
    """The products with these numbers, counted from 0, get another bit in one of their numbers: the lowest
    of those that are always seen. An error of the lowest bit of all is mostly rounded away."""
    right, numbers = device_check._product, count()

    def product(left: Tensor, weight: Tensor, format: str) -> Tensor:
        found = right(left, weight, format)
        if next(numbers) in wrong:
            with torch.no_grad():
                bits = found.data.view(torch.int32)
                # A bf16 number is the upper half of an fp32 one.
                bits[-1, 0] ^= 1 << (20 if format == "bf16" else 8)
        return found

    monkeypatch.setattr(device_check, "_product", product)


def test_every_lap_gives_the_same_bits_with_any_number_of_threads() -> None:
    before, checks = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        checks.append([check_device(CPU, format, 3, 0.05) for format in ("fp32", "bf16")])
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    assert [check.digests for check in checks[0]] == [check.digests for check in checks[1]]
    (fp32,), (bf16,) = (check.digests for check in checks[0])
    assert fp32 != bf16
    assert all(check.laps >= 2 and check.rank == 3 and not check.why_not for check in checks[0])


@pytest.mark.parametrize("format", ["fp32", "bf16"])
@pytest.mark.parametrize("wrong", [(0,), (PRODUCTS // 2,), (PRODUCTS - 1,)], ids=["first", "middle", "last"])
def test_one_wrong_bit_of_one_product_changes_the_hash(
    monkeypatch: pytest.MonkeyPatch, format: str, wrong: Sequence[int]
) -> None:
    right = digest(laps_of(CPU, format, LAPS["cpu"])())
    flipping(monkeypatch, *wrong)
    lap = laps_of(CPU, format, LAPS["cpu"])
    assert digest(lap()) != right
    assert digest(lap()) == right, "the next lap is not disturbed"


def test_a_device_that_errs_in_one_lap_has_two_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    flipping(monkeypatch, PRODUCTS + 1)
    check = check_device(CPU, "fp32", 1, 0.0)
    assert (check.laps, len(check.digests)) == (2, 2)


def test_the_training_is_not_a_formality() -> None:
    """Weights change in every layer and stay of their size, so that no bit is lost in zeros or infinities."""
    lap = laps_of(CPU, "fp32", LAPS["cpu"])
    trained = lap()
    untrained = laps_of(CPU, "fp32", Lap(LAPS["cpu"].width, LAPS["cpu"].batch_size, 0))()
    for before, after in zip(untrained, trained):
        assert torch.isfinite(after).all()
        assert (before != after).float().mean() > 0.9
        assert torch.isclose(before.std(), after.std(), rtol=0.05)


@pytest.mark.gpu
def test_a_real_accelerator_computes_the_same_bits_in_every_lap() -> None:
    device = bind("cuda", 0)
    for format in device.formats:
        device.declare(format)
        check = check_device(device, format, 1, 1.0)
        assert (len(check.digests), check.why_not) == (1, ""), format


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NotImplementedError("no kernel\nof this kind"), "NotImplementedError: no kernel"),
        (MemoryError("no room"), "OutOfMemoryError: no room"),
    ],
)
def test_a_device_that_cannot_do_it_says_why(
    monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
) -> None:
    def fails(*given: object) -> Callable[[], list[Tensor]]:
        raise error

    monkeypatch.setattr(device_check, "laps_of", fails)
    check = check_device(CPU, "fp32", 1, 1.0)
    assert (check.digests, check.laps, check.why_not) == ((), 0, text)
