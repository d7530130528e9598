"""Whether replays of captured work leave the memory of a device as it is.

On AMD's devices every replay of a matrix product with its backward pass may keep 8 to 16 MB of workspace
until the process ends (ROCm/rocm-libraries, issue 9505), so a trial would end without memory after some
thousand steps. Versions differ, so it is measured on each device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import linear

from aiperf.device.device import Capture, Device

SHAPE = (32, 4096, 8192)
"""Examples, inputs and outputs of the product with which the leak was reported."""
WARM_UP, REPLAYS = 3, 32
"""Passes before the recording, replays before memory is read, and replays until it is read again."""
LEAST_LEAK = 1 << 20
"""Bytes for each replay that count as a leak: an eighth of what was reported. Other processes of the host
may use the device, but not steadily more of it during some milliseconds."""


def replay_fault(
    device: Device, capture: Capture, free_bytes: Callable[[], int], shape: tuple[int, int, int] = SHAPE
) -> str:
    """Why replays cannot be used on a device that can record work; empty if they keep its memory."""
    examples, inputs, outputs = shape
    weight = torch.ones(outputs, inputs, device=device.torch, requires_grad=True)
    batch = torch.ones(examples, inputs, device=device.torch)

    def work() -> None:
        with device.autocast("bf16"):
            loss = linear(batch, weight).float().mean()
        torch.autograd.grad(loss, weight)

    try:
        for _ in range(WARM_UP):
            capture.warm_up(work)
        capture.record(work)
    except RuntimeError as error:  # as all that torch raises of a device
        return f"a matrix product cannot be captured: {error}".splitlines()[0]
    free = []
    for count in (WARM_UP, REPLAYS):
        for _ in range(count):
            capture.replay()
        device.synchronise()
        free.append(free_bytes())
    leak = (free[0] - free[1]) // REPLAYS
    return f"each replay keeps {leak / 1e6:.0f} MB of {device.name}" if leak >= LEAST_LEAK else ""
