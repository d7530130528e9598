"""Intel's GPUs, by torch.xpu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aiperf.device.accelerator import Accelerator

__all__ = ["Xpu"]


@dataclass(frozen=True)
class Xpu(Accelerator):
    kind: ClassVar[str] = "xpu"
    backend: ClassVar[str] = "xccl"

    @property
    def sensors(self) -> str:
        return ""

    @property
    def formats(self) -> tuple[str, ...]:
        """The smaller ones emulate bf16, which tells nothing of them."""
        native = self._module.is_bf16_supported(including_emulation=False)
        return ("bf16", "fp16", "fp32") if native else ("fp16", "fp32")

    @property
    def driver(self) -> str:
        return str(getattr(self.properties, "driver_version", ""))
