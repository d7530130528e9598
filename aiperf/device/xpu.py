"""Intel's GPUs, through torch.xpu."""

from __future__ import annotations

from typing import ClassVar

import torch

from aiperf.device.accelerator import Accelerator
from aiperf.device.device import Device
from aiperf.errors import WorldError
from aiperf.telemetry import level_zero
from nas.frozen import frozen

OLDEST_TORCH = (2, 8)  # the first with XCCL; it can also tell native bf16 from emulated bf16


def is_too_old() -> bool:
    """Whether this torch is too old for these devices."""
    return tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH


@frozen
class Xpu(Accelerator):
    """An Intel GPU. A device of two stacks appears as one device or as two, depending on a setting of its
    driver."""

    kind: ClassVar[str] = "xpu"
    backend: ClassVar[str] = "xccl"

    @classmethod
    def vendor(cls) -> str:
        return "Intel"

    @classmethod
    def bind(cls, index: int, ranks_on_host: int = 1) -> Device:
        if is_too_old():
            oldest = ".".join(map(str, OLDEST_TORCH))
            raise WorldError(f"Intel's devices need PyTorch {oldest} or newer; this is {torch.__version__}")
        return super().bind(index, ranks_on_host)

    @property
    def formats(self) -> tuple[str, ...]:
        """Formats of the device. Smaller devices emulate bf16, whose rate would say nothing about them."""
        native = self._module.is_bf16_supported(including_emulation=False)
        return ("bf16", "fp16", "fp32") if native else ("fp16", "fp32")

    @property
    def sensors(self) -> str:
        """Found by the UUID, which torch has since 2.9."""
        return "intel" if self.identity else ""

    @property
    def pci_address(self) -> str:
        return level_zero.pci_address(self.identity)

    @property
    def driver(self) -> str:
        return str(getattr(self.properties, "driver_version", ""))
