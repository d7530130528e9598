"""The format that "auto" comes to, and when one is emulated."""

from __future__ import annotations

from aiperf.wire.formats import emulation_text, fastest_format
from aiperf.wire.layout import Described
from tests.tables import ComesTo

EPYC = {"bf16": 1.3e9, "fp32": 66e9}
"""Zen 3: a product of 256 takes 25 ms in bf16, 0.51 ms in fp32."""
XEON = {"bf16": 800e9, "fp32": 100e9}
A100 = {"bf16": 250e12, "fp16": 255e12, "tf32": 120e12, "fp32": 18e12}
V100 = {"fp16": 100e12, "fp32": 14e12}


def described(*rates: dict[str, float]) -> list[Described]:
    return [Described(rank, "a device", "cpu", 1, formats) for rank, formats in enumerate(rates, start=1)]


def test_the_fastest_that_all_have(comes_to_what_was_read: ComesTo) -> None:
    """And what is emulated is told."""

    def fastest(*rates: dict[str, float]) -> str:
        return fastest_format(described(*rates))

    comes_to_what_was_read("formats.txt", {**globals(), "fastest": fastest, "emulated": emulation_text})
