"""The number format of a run that names none ("auto"): the fastest one that all its devices have natively."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiperf.config import Config, with_overrides
from aiperf.errors import WorldError

if TYPE_CHECKING:
    from aiperf.wire.layout import Described

AUTO = "auto"
"""Value of `training.format` in a configuration; the journal records the format that was chosen."""
PRODUCTS = ("matrix product", "convolution")
"""Kinds of products whose actual format every rank records."""
TIE = 1.25
"""Factor by which fp16 must be faster than bf16 to be chosen, because bf16 needs no scaling of the loss."""
EMULATED = 1.25
"""Factor by which a format is slower than fp32 if it is taken to be emulated: a native format of fewer bits
would be faster than fp32."""


def with_format(config: Config, devices: Callable[[Config], Sequence[Described]]) -> Config:
    """The configuration with "auto" replaced by a format. `devices` is called only for "auto", because to
    describe all devices takes seconds."""
    if config.training.format != AUTO:
        return config
    return with_overrides(config, {"training.format": fastest_format(devices(config))})


def fastest_format(devices: Sequence[Described]) -> str:
    """The fastest format that all devices have; its rate is that of the slowest device, for which a group
    waits. Raises WorldError if they have none in common."""
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
    """A note such as "bf16 is emulated on …, 50 times slower than fp32"; empty if the format is native or its
    rate is unknown."""
    if format not in rates or "fp32" not in rates or EMULATED * rates[format] > rates["fp32"]:
        return ""
    slower = rates["fp32"] / rates[format]
    return f"{format} is emulated on {device}, {slower:.3g} times slower than fp32"
