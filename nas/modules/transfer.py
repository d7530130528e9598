"""Copies from the host's memory to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """The values on the device, without waiting for it: only a copy from pinned memory does not."""
    if values.device.type != "cpu" or device.type in ("cpu", "mps"):
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
