"""Fakes of what vendors add to torch: their modules, with the names and signatures of the real ones.

`torch.cuda` and `torch.xpu` are in every build of torch, so a test compares each signature with the real
one. torch_npu is not installed where tests run: its module follows torch_npu/npu/utils.py and
torch_npu/npu/backends.py of Ascend/pytorch, and is announced to torch as torch_npu announces it.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from aiperf.device import xpu

GIB = 1 << 30


@dataclass(eq=False)
class FakeStream:
    """A stream of a device, and the streams it has waited for."""

    device: int
    waited_for: list[FakeStream] = field(default_factory=list)
    ended: bool = False

    def wait_stream(self, stream: FakeStream) -> None:
        self.waited_for.append(stream)

    def synchronize(self) -> None:
        self.ended = True


@dataclass
class FakeContext:
    """As torch's: one that is never left does nothing when it is forgotten."""

    module: FakeModule
    stream: FakeStream

    def __enter__(self) -> None:
        self.before, self.module.submitted_to = self.module.submitted_to, self.stream

    def __exit__(self, *raised: object) -> None:
        self.module.submitted_to = self.before


@dataclass
class FakeModule:
    """Devices that remember what was asked of them."""

    names: tuple[str, ...]
    calls: list[tuple[str, int | None]] = field(default_factory=list)
    current: int = 0
    fault: Exception | None = None
    streams: list[FakeStream] = field(default_factory=list)
    submitted_to: FakeStream = field(default_factory=lambda: FakeStream(0))

    def init(self) -> None:
        if self.fault is not None:
            raise self.fault

    def is_available(self) -> bool:
        return bool(self.names)

    def device_count(self) -> int:
        return len(self.names)

    def set_device(self, device: Any) -> None:
        self.calls.append(("set_device", device))
        self.current = device

    def current_device(self) -> int:
        return self.current

    def Stream(self, device: Any = None, priority: int = 0, **kwargs: Any) -> FakeStream:  # noqa: N802
        self.streams.append(FakeStream(device))
        return self.streams[-1]

    def stream(self, stream: FakeStream) -> FakeContext:
        return FakeContext(self, stream)

    def current_stream(self, device: Any = None) -> FakeStream:
        return self.submitted_to

    def get_device_name(self, device: Any = None) -> str:
        return self.names[device]

    def synchronize(self, device: Any = None) -> None:
        self.calls.append(("synchronize", device))

    def empty_cache(self) -> None:
        self.calls.append(("empty_cache", None))


SIZE = {"multi_processor_count": 132, "major": 9, "minor": 0, "L2_cache_size": 50 << 20}


class FakeCuda(FakeModule):
    """torch.cuda; in a ROCm build, the same."""

    capability = (9, 0)

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        tunes = [True]
        self.tunable = SimpleNamespace(is_enabled=lambda: tunes[-1], enable=tunes.append)

    def get_device_properties(self, device: Any = None) -> Any:
        uuid = f"0000000{device}-1111-2222-3333-444444444444"
        place = {"pci_domain_id": 0, "pci_bus_id": 0xC1 + device, "pci_device_id": 0}
        named = dict.fromkeys(("name", "gcnArchName"), self.names[device])
        return SimpleNamespace(**named, total_memory=141 * GIB, uuid=uuid, **place, **SIZE)

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return self.capability

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        return including_emulation or self.capability >= (8, 0)


class FakeXpu(FakeModule):
    """torch.xpu."""

    def get_device_properties(self, device: Any = None) -> Any:
        return SimpleNamespace(
            name=self.names[device], total_memory=64 * GIB, driver_version="1.3.30872", uuid=f"xpu-{device}"
        )

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        return True


class FakeNpu(FakeModule):
    """torch_npu.npu. Its properties have a name and a memory, and no UUID."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.conv, self.matmul = SimpleNamespace(allow_hf32=True), SimpleNamespace(allow_hf32=False)

    def get_device_name(self, device_name: Any = None) -> str:
        return self.names[device_name]

    def get_device_properties(self, device_name: Any = None) -> Any:
        return SimpleNamespace(name=self.names[device_name], total_memory=64 * GIB)

    def is_bf16_supported(self) -> bool:
        return self.names[0].startswith("Ascend910B")

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16, torch.float32]


class OnlyContiguous(TorchDispatchMode):
    """Refuses memory formats as torch_npu does: `_to_copy` of torch_npu/csrc/aten/common/ToKernelNpu.cpp and
    `contiguous` of TensorProperties.cpp next to it (Ascend/pytorch), which torch dispatches as a clone."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wanted = (kwargs or {}).get("memory_format")
        if wanted not in (None, torch.contiguous_format, torch.preserve_format):
            raise RuntimeError("Only contiguous_format or preserve_format is supported.")
        return func(*args, **(kwargs or {}))


def install_cuda(
    monkeypatch: pytest.MonkeyPatch, name: str = "NVIDIA H200", hip: str | None = None
) -> FakeCuda:
    fake = FakeCuda((name, name))
    _put(monkeypatch, "cuda", fake)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.version, "cuda", None if hip else "13.0")
    return fake


def install_rocm(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return install_cuda(monkeypatch, "AMD Instinct MI300X", "6.4.43482")


def install_npu(monkeypatch: pytest.MonkeyPatch) -> FakeNpu:
    fake = FakeNpu(("Ascend910B3", "Ascend910B3\u200b"))
    if torch._C._get_privateuse1_backend_name() != "npu":
        # For good: torch allows one name a process. So later tests find a module for it, with no device.
        torch.utils.rename_privateuse1_backend("npu")
        absent = ModuleType("torch.npu")
        vars(absent).update(is_available=lambda: False, device_count=lambda: 0)
        vars(absent).update(_is_in_bad_fork=lambda: False, manual_seed_all=lambda seed: None)
        torch._register_device_module("npu", absent)
    # Which keeps its answers: the one of now would outlive this test.
    monkeypatch.setattr(torch, "get_device_module", inspect.unwrap(torch.get_device_module))
    _put(monkeypatch, "npu", fake)
    return fake


def install_xpu(monkeypatch: pytest.MonkeyPatch) -> FakeXpu:
    fake = FakeXpu(("Intel(R) Data Center GPU Max 1550", "Intel(R) Data Center GPU Max 1550"))
    monkeypatch.setattr(xpu, "OLDEST_TORCH", (2, 6))  # the fake's own version is that of a new one
    _put(monkeypatch, "xpu", fake)
    return fake


def _put(monkeypatch: pytest.MonkeyPatch, name: str, fake: FakeModule) -> None:
    """In place of the module of torch: one with the functions of the fake, and all else as it was."""
    module = ModuleType(f"torch.{name}")
    vars(module).update(vars(getattr(torch, name, ModuleType(name))))
    offered = {word for kind in type(fake).__mro__ for word in vars(kind) if not word.startswith("_")}
    vars(module).update({word: getattr(fake, word) for word in offered - vars(fake).keys()})
    vars(module).update(
        {word: value for word, value in vars(fake).items() if word in ("conv", "matmul", "tunable")}
    )
    monkeypatch.setattr(torch, name, module, raising=False)
