"""The device of a rank: its name, its memory, its formats, and how to wait for it."""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import ModuleType

import psutil
import torch

from aiperf.errors import WorldError

__all__ = ["KINDS", "Device", "bind", "count_devices", "first_kind"]

KINDS = ("cuda", "npu", "xpu", "cpu")  # in order of preference; ROCm builds of torch call theirs cuda
_SIXTEEN_BIT = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Device:
    """One device, bound to this process."""

    kind: str
    index: int
    name: str
    memory_bytes: int

    @property
    def torch(self) -> torch.device:
        return torch.device(self.kind) if self.kind == "cpu" else torch.device(self.kind, self.index)

    @property
    def identity(self) -> str:
        """The UUID of the device, or of its part; empty for a CPU, and where the driver tells none."""
        if self.kind == "cpu":
            return ""
        return str(getattr(_module(self.kind).get_device_properties(self.index), "uuid", ""))

    def synchronise(self) -> None:
        """Returns when everything submitted to the device is done."""
        if self.kind != "cpu":
            _module(self.kind).synchronize(self.index)

    def clean(self) -> None:
        """Gives cached memory back."""
        if self.kind != "cpu":
            _module(self.kind).empty_cache()

    def autocast(self, format: str) -> AbstractContextManager[object]:
        """Multiplications in this format, accumulation and everything delicate in fp32."""
        if format in _SIXTEEN_BIT:
            return torch.autocast(self.kind, dtype=_SIXTEEN_BIT[format])
        return nullcontext()

    def declare(self, format: str) -> None:
        """Sets what the process multiplies in where autocast does not. Raises WorldError."""
        if format == "tf32" and self.kind != "cuda":
            raise WorldError(f"training.format is tf32, which {self.name} does not have; use fp32 or bf16")
        if format == "fp16" and self.kind == "cpu":
            raise WorldError("training.format is fp16, which is unusable on a CPU; use bf16 or fp32")
        torch.set_float32_matmul_precision("high" if format == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = format == "tf32"
        torch.backends.cudnn.benchmark = True

    def software(self) -> dict[str, str]:
        """Versions of what the measurement rests on."""
        found = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "system": platform.platform(),
        }
        if self.kind == "cuda":
            found["cuda"] = str(torch.version.cuda or torch.version.hip)
            found["cudnn"] = str(torch.backends.cudnn.version())
        return found


def count_devices(kind: str) -> int:
    """Visible devices of a kind; a host is one CPU device."""
    if kind == "cpu":
        return 1
    module = getattr(torch, kind, None)
    return int(module.device_count()) if module is not None and module.is_available() else 0


def first_kind() -> str:
    """The first of KINDS that is there."""
    return next(kind for kind in KINDS if count_devices(kind))


def bind(kind: str, index: int, ranks_on_host: int = 1) -> Device:
    """Takes a device for this process; `auto` is the first kind of KINDS that is there.

    Raises WorldError when there is none of that kind and index.
    """
    if kind == "auto":
        kind = first_kind()
    if kind == "cpu":
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(_own_cores(ranks_on_host))
        return Device("cpu", 0, _cpu_name(), psutil.virtual_memory().total)
    if count_devices(kind) <= index:
        raise WorldError(f"{kind} device {index} is wanted, {count_devices(kind)} are visible")
    module = _module(kind)
    module.set_device(index)
    memory = module.get_device_properties(index).total_memory
    return Device(kind, index, str(module.get_device_name(index)), int(memory))


def _own_cores(ranks_on_host: int) -> int:
    """Those that the launcher bound this rank to, else its share of the host's."""
    bound, all_cores = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    return max(1, bound if bound < all_cores else all_cores // ranks_on_host)


def _module(kind: str) -> ModuleType:
    module: ModuleType = getattr(torch, kind)
    return module


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux: the portable name is good enough
    return platform.processor() or platform.machine()
