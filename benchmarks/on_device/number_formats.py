"""Conformance of the device: each of its formats is really multiplied in, and its products are right."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from aiperf.device import bind
from aiperf.device.device import SIXTEEN_BIT
from aiperf.measuring.precision import format_rates, used_formats
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, Row, figures, row

SIDE = 512
BITS = {"fp32": 24, "tf32": 11, "bf16": 8, "fp16": 11}
"""Bits of the significand, the hidden one included."""
MARGIN = 4.0
"""Largest error of a product relative to its norm, in roundings of the format: each factor and the result are
rounded once."""
ACCUMULATED = SIDE**0.5 * 2.0**-24
"""Error of sums of `SIDE` products in fp32, relative to their norm: the roundings add up as a random walk."""


def measure(setting: Setting) -> Iterator[Figures]:
    """A format that is not what was declared, or a product that is wrong, is a fault."""
    device = bind(setting.kind, 0)
    rows, faults = list[Row](), list[str]()
    found = figures(rows, faults=faults)
    for format in device.formats:
        seen = used_formats(device, format)
        for kind, name in seen.items():
            rows.append(row(f"{format}: {kind}", name, "", format, "declared"))
            if name != format:
                faults.append(f"a {kind} in {format} is made in {name}")
        error, allowed = _error(setting.kind, format), MARGIN * 2.0 ** -BITS[format] + ACCUMULATED
        rows.append(row(f"{format}: error of a product", error, "", allowed, "at most"))
        if not error <= allowed:
            faults.append(f"a product in {format} is wrong by {error:.2g} of its norm, not {allowed:.2g}")
        yield found
    rates = format_rates(device)
    rows += [row(f"{format}: one product", rate, "OPS") for format, rate in rates.items()]
    yield found | {"rates": rates}


def _error(kind: str, format: str) -> float:
    """Error of a product of random matrices, compared with fp64, as a share of its norm."""
    device = bind(kind, 0)
    device.declare(format)
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(SIDE, SIDE, generator=generator) for _ in range(2))
    exact = left.double() @ right.double()
    dtype = SIXTEEN_BIT.get(format, torch.float32)
    product = left.to(device.torch).to(dtype) @ right.to(device.torch).to(dtype)
    return float((product.cpu().double() - exact).norm() / exact.norm())
