"""Which format a run multiplies in, where it is not told: the fastest that its devices have natively."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiperf.config import Config, with_overrides
from aiperf.errors import WorldError

if TYPE_CHECKING:
    from aiperf.wire.layout import Described

AUTO = "auto"
"""In a configuration; in a journal stands what it came to."""
PRODUCTS = ("matrix product", "convolution")
"""Whose format every rank records."""
TIE = 1.25
"""fp16 must be so many times faster than bf16, which needs no scaling of the loss."""
EMULATED = 1.25
"""Times slower than fp32: a format of fewer bits that is native is faster."""


def with_format(config: Config, devices: Callable[[Config], Sequence[Described]]) -> Config:
    """The configuration with the format that "auto" comes to; only then `devices` is asked for them."""
    if config.training.format != AUTO:
        return config
    return with_overrides(config, {"training.format": fastest_format(devices(config))})


def fastest_format(devices: Sequence[Described]) -> str:
    """Of those that all devices have, as the slowest of them multiplies. Raises WorldError: there is none."""
    common = [format for format in devices[0].formats if all(format in each.formats for each in devices)]
    if not common:
        raise WorldError(
            "the devices have no format of multiplications in common; use devices of the same type"
        )
    rates = {format: min(each.formats[format] for each in devices) for format in common}
    fastest = max(common, key=lambda format: rates[format])
    if fastest == "fp16" and "bf16" in rates and TIE * rates["bf16"] > rates["fp16"]:
        return "bf16"
    return fastest


def emulation_text(device: str, format: str, rates: Mapping[str, float]) -> str:
    """ "bf16 is emulated on …, 50 times slower than fp32"; empty where the format is native, or unknown."""
    if format not in rates or "fp32" not in rates or EMULATED * rates[format] > rates["fp32"]:
        return ""
    slower = rates["fp32"] / rates[format]
    return f"{format} is emulated on {device}, {slower:.3g} times slower than fp32"
