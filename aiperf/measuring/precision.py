"""The format in which a device really multiplies, found by multiplying instead of reading settings back.

Switches of torch, environment variables of vendors' libraries and the kind of autocast all influence it, so
only the products show it. 1 + 2^-k times 1 keeps its last bit if the format's fraction has k bits or more,
and 2^100 times 1 stays finite if the exponent has 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter, thread_time

import torch
from torch.nn.functional import conv2d

from aiperf.device import Device
from aiperf.device.device import SIXTEEN_BIT
from aiperf.wire.formats import PRODUCTS

# Bits of the fraction, and whether 2^100 is a number: IEEE 754 for fp32 and fp16; bf16 and TF32 of
# "NVIDIA A100 Tensor Core GPU Architecture", 2020, figure 9.
FORMATS = {(23, True): "fp32", (10, True): "tf32", (7, True): "bf16", (10, False): "fp16"}
# Side of the matrices, and channels of the convolution: large enough for the libraries to use fast kernels.
SIDE = 256
LARGE = 2.0**100
"""Beyond the largest number of fp16, which is 65,504."""
SIDES: Mapping[str, int] = {"cpu": 256, "accelerator": 4096}
"""Side of the products by which formats are compared. They take some milliseconds, or some tens of
milliseconds in an emulated format."""
TRIES = 3
"""Number of timed products, of which the fastest counts, as the others may have been disturbed."""


def used_formats(device: Device, format: str) -> dict[str, str]:
    """The formats that a matrix product and a convolution use while `format` is declared and autocast is on,
    by name of the product. A format without a name is given by its bits, as "11 bits"."""
    device.declare(format)
    convolution = partial(_convolution, layout=device.layout)
    made = [_named(*_through(device, format, multiply)) for multiply in (_product, convolution)]
    return dict(zip(PRODUCTS, made))


def format_rates(device: Device) -> dict[str, float]:
    """Operations per second of a matrix product in each format of the device, by the fastest of TRIES.

    A CPU that emulates a format is slower in it by orders of magnitude, whatever its libraries claim to
    support. On a CPU the time is that of one thread alone, because other programs use the cores too.
    """
    on_cpu = device.kind == "cpu"
    side, now = (SIDES["cpu"], thread_time) if on_cpu else (SIDES["accelerator"], perf_counter)
    threads = torch.get_num_threads()
    if on_cpu:
        torch.set_num_threads(1)
    found = {}
    for format in device.formats:
        device.declare(format)
        values = torch.randn(side, side, device=device.torch).to(SIXTEEN_BIT.get(format, torch.float32))
        out, seconds = torch.empty_like(values), list[float]()
        for _ in range(1 + TRIES):
            device.synchronise()
            began = now()
            torch.mm(values, values, out=out)
            device.synchronise()
            seconds.append(now() - began)
        found[format] = 2 * side**3 / min(seconds[1:])
    torch.set_num_threads(threads)
    return found


def _through(
    device: Device, format: str, multiply: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[int, bool]:
    """Number of bits of the fraction that survive a product, and whether a large number does."""
    steps = torch.tensor([1 + 2.0**-bits for bits in range(1, 24)] + [LARGE], device=device.torch)
    values = torch.ones(SIDE, SIDE, device=device.torch)
    values[: len(steps)] = steps[:, None]
    values *= torch.eye(SIDE, device=device.torch)  # each product is one number times one
    with device.autocast(format), torch.no_grad():
        products = multiply(values).float().diagonal()
    device.synchronise()
    found = products[: len(steps)].cpu().tolist()
    # A bit is kept if the product is nearer to the exact value than to its neighbours, however it is rounded.
    kept = [
        k for k, product in enumerate(found[:-1], start=1) if abs(product - 1 - 2.0**-k) < 2.0 ** -(k + 2)
    ]
    return max(kept, default=0), found[-1] < float("inf")


def _product(values: torch.Tensor) -> torch.Tensor:
    return values @ torch.ones(SIDE, SIDE, device=values.device)


def _convolution(values: torch.Tensor, layout: torch.memory_format) -> torch.Tensor:
    weight = torch.ones(SIDE, SIDE, 1, 1, device=values.device)
    images = values.T.reshape(1, SIDE, 16, 16).contiguous(memory_format=layout)
    return conv2d(images, weight).reshape(SIDE, SIDE).T


def _named(bits: int, wide: bool) -> str:
    return FORMATS.get((bits, wide), f"{bits} bits{'' if wide else ', narrow'}")
