"""The format of products is seen in the products, whatever the settings say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from aiperf.device import Device, bind
from aiperf.measuring.precision import used_formats
from aiperf.rules.participants import format_faults
from tests.journals import READY
from tests.tables import ComesTo


@pytest.fixture
def device() -> Iterator[Device]:
    before = torch.get_float32_matmul_precision()
    yield bind("cpu", 0)
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("format", ["fp32", "bf16"])
def test_what_is_declared_is_what_is_seen(device: Device, format: str) -> None:
    assert used_formats(device, format) == {"matrix product": format, "convolution": format}


def test_a_setting_behind_the_declaration_is_seen(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an environment variable of a library would do it; oneDNN then multiplies in bf16."""
    monkeypatch.setattr(
        type(device), "declare", lambda self, format: torch.set_float32_matmul_precision("medium")
    )
    torch.set_float32_matmul_precision("medium")
    values = torch.full((256, 256), 1 + 2.0**-12)
    if ((values @ torch.eye(256)) != 1).all():
        pytest.skip("this torch multiplies in fp32 on this CPU, whatever it is allowed")
    assert used_formats(device, "fp32")["matrix product"] == "bf16"


@pytest.mark.parametrize("format", ["tf32", "fp16"])
def test_narrow_formats_are_told_apart(device: Device, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    """Products whose factors were rounded to the format by hand, as a device does it."""

    def rounded(values: torch.Tensor) -> torch.Tensor:
        if format == "fp16":
            return values.to(torch.float16).float()
        bits = values.view(torch.int32)
        return ((bits + (1 << 12)) >> 13 << 13).view(torch.float32)

    product = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda one, other: product(rounded(one), rounded(other)))
    assert used_formats(device, "fp32")["matrix product"] == format


def faults(declared: str, seen: str) -> list[str]:
    return format_faults(
        declared, replace(READY, multiplies={"matrix product": declared, "convolution": seen})
    )


def test_what_contradicts_a_declaration(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("format_faults.txt", {"faults": faults})
