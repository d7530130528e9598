"""The device check: training whose bits must be the same on all equal devices.

A multiplier that errs once in a billion products ends no trial and fails no other test; it makes networks
worse, and nobody knows why. It is found by doing the same work on equal devices. The work is a lap: a fixed
network is trained for a fixed number of steps from fixed weights, and the weights after it are hashed. Laps
are repeated until the time is over, so that the device gets warm.

The network has dense layers and a softmax only. Products, sums and exponentials use what convolutions use
too, and the libraries for them choose no kernel by the free memory or by trying.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from math import sqrt
from time import perf_counter

import torch
from torch import Tensor
from torch.nn.functional import silu

from aiperf.device import Device
from aiperf.device.device import SIXTEEN_BIT, memory_errors
from aiperf.wire.reports import DeviceCheck
from nas.frozen import frozen


@frozen
class Lap:
    """The size of a lap."""

    width: int
    """Inputs and outputs of each layer."""
    batch_size: int
    steps: int


LAPS = {
    # A few milliseconds on one thread in fp32; a processor that emulates bf16 takes a hundred times as long.
    "cpu": Lap(width=96, batch_size=64, steps=12),
    # Each product has at least 256 tiles of 128 × 128, the usual size, and 1,024 in the forward pass: every
    # multiprocessor has work. 35 tera-operations a lap.
    "accelerator": Lap(width=2048, batch_size=8192, steps=64),
}
LAYERS = 3
LEAST_LAPS = 2
"""Laps that are compared even if one takes all of the time: a device must agree with itself."""
MOST_DIGESTS = 3
"""Hashes that are reported of a device whose laps differ: two are enough to see it."""
CPU_SHARE = 0.2
"""Share of the seconds for an accelerator that a CPU takes: it has no clock that falls with heat in seconds,
and its time before the span is short."""
STEP = 0.05
"""Learning rate: large enough that the low bits of the gradients reach the weights."""


def check_device(device: Device, format: str, rank: int, seconds: float) -> DeviceCheck:
    """Trains laps for `seconds` on an accelerator, or a fifth of it on a CPU. An error of the device is the
    reason why nothing is known; a lack of memory for one is not the run's end."""
    kind = "cpu" if device.kind == "cpu" else "accelerator"
    digests, laps, why_not, began = dict[str, None](), 0, "", perf_counter()
    try:
        with memory_errors(), device.reproducible():
            lap = laps_of(device, format, LAPS[kind])
            until = perf_counter() + seconds * (CPU_SHARE if kind == "cpu" else 1.0)
            while laps < LEAST_LAPS or perf_counter() < until:
                digests[digest(lap())] = None
                laps += 1
    except RuntimeError as error:  # as all that torch raises of a device that cannot do it
        why_not = f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        device.clean()
    return DeviceCheck(
        rank=rank,
        digests=() if why_not else tuple(digests)[:MOST_DIGESTS],
        laps=laps,
        seconds=perf_counter() - began,
        why_not=why_not,
    )


def laps_of(device: Device, format: str, size: Lap) -> Callable[[], list[Tensor]]:
    """A function that trains one lap and returns the weights after it, on the host. Everything random is
    drawn there once: accelerators have generators of their own."""
    width, rng = size.width, torch.Generator().manual_seed(0)
    start = [torch.randn(width, width, generator=rng) * sqrt(2 / width) for _ in range(LAYERS)]
    examples = torch.randn(size.batch_size, width, generator=rng).to(device.torch)
    classes = torch.randint(width, (size.batch_size,), generator=rng)
    targets = torch.eye(width)[classes].to(device.torch)

    def lap() -> list[Tensor]:
        weights = [each.clone().to(device.torch).requires_grad_() for each in start]
        for _ in range(size.steps):
            hidden = examples
            for weight in weights[:-1]:
                hidden = silu(_product(hidden, weight, format))
            outputs = _product(hidden, weights[-1], format).float()
            # A sum, not a mean: gradients of a mean are too small for fp16.
            loss = -(targets * outputs.log_softmax(1)).sum()
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients):
                    weight.sub_(gradient, alpha=STEP / size.batch_size)
        return [weight.detach().cpu() for weight in weights]

    return lap


def digest(weights: list[Tensor]) -> str:
    """SHA-256 of all weights, as 64 hexadecimal digits."""
    found = sha256()
    for weight in weights:
        found.update(weight.numpy().tobytes())
    return found.hexdigest()


def _product(left: Tensor, right: Tensor, format: str) -> Tensor:
    """The product in the run's format; tf32 and fp32 are declared for the whole process."""
    kind = SIXTEEN_BIT.get(format, torch.float32)
    return (left.to(kind) @ right.to(kind)).float()
