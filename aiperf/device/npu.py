"""Huawei's Ascend devices, through torch_npu, which torch loads by itself if it is installed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import ClassVar

import torch

from aiperf.device.accelerator import Accelerator, first_match
from aiperf.host import variables
from aiperf.telemetry import ascend
from nas.frozen import frozen

DRIVER = Path("/usr/local/Ascend/driver/version.info")
VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
"""Variable with the numbers of the devices that the runtime shows, as CUDA_VISIBLE_DEVICES."""


@frozen
class Npu(Accelerator):
    """An Ascend device. Nothing here has run on one: it follows torch_npu's source and the documentation of
    CANN."""

    kind: ClassVar[str] = "npu"
    backend: ClassVar[str] = "hccl"

    @classmethod
    def vendor(cls) -> str:
        return "Ascend"

    @property
    def sensors(self) -> str:
        return "ascend"

    @property
    def formats(self) -> tuple[str, ...]:
        return ("bf16", "fp16", "fp32") if self._module.is_bf16_supported() else ("fp16", "fp32")

    @property
    def layout(self) -> torch.memory_format:
        """The only format that torch_npu accepts (Ascend/pytorch, torch_npu/csrc/aten/common: `_to_copy` in
        ToKernelNpu.cpp and `contiguous` in TensorProperties.cpp raise for channels_last)."""
        return torch.contiguous_format

    @property
    def identity(self) -> str:
        """The device's number on its host; the runtime may show this process only some of the devices."""
        shown = _numbers(variables.word(os.environ, VISIBLE))
        return f"npu-{shown[self.index] if self.index < len(shown) else self.index}"

    @property
    def pci_address(self) -> str:
        return ascend.pci_address(self.identity)

    @property
    def driver(self) -> str:
        return first_match(DRIVER, r"(?m)^Version=(\S+)")

    def declare(self, format: str) -> None:
        """Sets the format, and turns off HF32 (19 bits), which convolutions in fp32 would use otherwise."""
        super().declare(format)
        self._module.conv.allow_hf32 = False
        self._module.matmul.allow_hf32 = False


def _numbers(text: str) -> list[int]:
    """The device numbers in a list such as "4,6" or "0-3,8" (CANN, ASCEND_RT_VISIBLE_DEVICES), up to the
    first part that cannot be parsed."""
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,4})\s*(?:-\s*([0-9]{1,4})\s*)?", part)
        if ends is None:
            break
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return found
