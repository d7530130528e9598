"""The format that "auto" comes to, and when one is emulated."""

from __future__ import annotations

import pytest

from aiperf.errors import WorldError
from aiperf.wire.formats import emulation_text, fastest_format
from aiperf.wire.layout import Described

EPYC = {"bf16": 1.3e9, "fp32": 66e9}
"""Zen 3: a product of 256 takes 25 ms in bf16, 0.51 ms in fp32."""
XEON = {"bf16": 800e9, "fp32": 100e9}
A100 = {"bf16": 250e12, "fp16": 255e12, "tf32": 120e12, "fp32": 18e12}
V100 = {"fp16": 100e12, "fp32": 14e12}


def described(*rates: dict[str, float]) -> list[Described]:
    return [Described(rank, "a device", "cpu", 1, formats) for rank, formats in enumerate(rates, start=1)]


@pytest.mark.parametrize(
    ("rates", "format"),
    [
        ((EPYC,), "fp32"),
        ((XEON,), "bf16"),
        ((XEON, EPYC), "fp32"),  # all multiply alike, so the slowest decides
        ((A100,), "bf16"),  # fp16 is no faster, and needs its loss scaled
        ((V100,), "fp16"),
        ((A100, V100), "fp16"),
    ],
)
def test_the_fastest_that_all_have(rates: tuple[dict[str, float], ...], format: str) -> None:
    assert fastest_format(described(*rates)) == format


def test_devices_without_a_common_format_are_refused() -> None:
    with pytest.raises(WorldError, match="no format of multiplications in common"):
        fastest_format(described({"bf16": 1.0}, {"fp32": 1.0}))


def test_what_is_emulated_is_told() -> None:
    assert (
        emulation_text("AMD EPYC", "bf16", EPYC)
        == "bf16 is emulated on AMD EPYC, 50.8 times slower than fp32"
    )
    assert emulation_text("Intel Xeon", "bf16", XEON) == ""
    assert emulation_text("Intel Xeon", "fp32", XEON) == ""
    assert emulation_text("an older journal", "bf16", {}) == ""
