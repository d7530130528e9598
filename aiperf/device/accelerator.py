"""The common part of the devices that torch supports by a module of their own: torch.cuda, npu, xpu."""

from __future__ import annotations

import re
from abc import abstractmethod
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from aiperf.device.device import Aside, Device
from aiperf.errors import WorldError
from aiperf.hardware.device_names import visible_name
from nas.bounded import system_text
from nas.frozen import frozen

NO_FAULT = re.compile(r"(?i)no NVIDIA driver|no \w+ (?:GPUs?|devices?) (?:are|is) available|not compiled")
"""How torch says that there is no driver, or no device that it was given."""


class SideStream(Aside):
    """A stream of a vendor's module, which has the classes and functions of torch.cuda."""

    def __init__(self, module: Any, index: int) -> None:
        self._module, self.stream = module, module.Stream(index)

    def begin(self) -> AbstractContextManager[object]:
        context: AbstractContextManager[object] = self._module.stream(self.stream)
        return context

    def join(self, *results: torch.Tensor) -> None:
        current = self._module.current_stream()
        current.wait_stream(self.stream)
        for result in results:
            if not result.is_cpu:  # as is the number of steps of some optimizers
                result.record_stream(current)  # its memory is reused only after the current work has read it

    def finish(self) -> None:
        self.stream.synchronize()


@cache
def side_stream(module: Any, index: int, purpose: str) -> SideStream:
    """The stream of a device for a purpose. There is one in a process, because torch reuses freed memory only
    on the stream for which it was allocated: a new stream for each trial would strand memory."""
    return SideStream(module, index)


@frozen
class Accelerator(Device):
    """An accelerator. Every vendor's module has the functions of torch.cuda under the same names."""

    @classmethod
    def module(cls) -> ModuleType | None:
        """The vendor's module; None if neither torch nor an extension of it supports such devices."""
        module: ModuleType | None = getattr(torch, cls.kind, None)
        return module

    @classmethod
    def count(cls) -> int:
        module = cls.module()
        return int(module.device_count()) if module is not None and module.is_available() else 0

    @classmethod
    @abstractmethod
    def vendor(cls) -> str:
        """The vendor whose devices this torch has under the kind, by its name in
        `aiperf.hardware.host_accelerators`."""

    @classmethod
    def fault(cls) -> str:
        """Why the runtime of a torch that supports such devices shows none, in its words; empty if it
        supports none, or finds no driver or no device."""
        initialise = getattr(cls.module(), "init", None)
        try:
            if initialise is not None:
                initialise()
        except AssertionError:  # so a torch that was built without them says
            return ""
        except (RuntimeError, OSError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return "" if NO_FAULT.search(first) else first.rstrip(".")
        return ""

    @classmethod
    def bind(cls, index: int, ranks_on_host: int = 1) -> Device:
        """Binds the device with this index and makes it the current one of this thread. Raises WorldError if
        the process sees fewer devices."""
        module, seen = cls.module(), cls.count()
        if module is None or seen <= index:
            visible = f"{seen or 'none'} {'is' if seen < 2 else 'are'} visible"
            raise WorldError(
                f"{cls.kind} device {index} requested, but {visible}; choose another --device, or check "
                f"whether the launcher or a container hides it, or torch lacks support for it"
            )
        module.set_device(index)
        memory = module.get_device_properties(index).total_memory
        return cls(index, visible_name(str(module.get_device_name(index))), int(memory))

    @property
    def properties(self) -> Any:
        return self._module.get_device_properties(self.index)

    @property
    def identity(self) -> str:
        return str(getattr(self.properties, "uuid", ""))

    @property
    def traits(self) -> dict[str, str]:
        """The size of the device or of its partition, by which libraries divide matrices, and its instruction
        set, as far as the vendor's module reports them."""
        names = {
            "multiprocessors": ("multi_processor_count", "gpu_eu_count", "cube_core_num"),
            # In builds for CUDA, gcnArchName is the name of the device (torch/csrc/cuda/Module.cpp).
            "architecture": (*(("gcnArchName",) if torch.version.hip else ()), "major", "architecture"),
            "revision": ("minor", "device_id"),
            "caches": ("L2_cache_size", "last_level_cache_size"),
        }
        found = {
            trait: next((str(value) for each in given if (value := getattr(self.properties, each, None))), "")
            for trait, given in names.items()
        }
        return super().traits | {trait: value for trait, value in found.items() if value}

    def enter_thread(self) -> None:
        # A new thread begins with device 0, on which any call would open a context: pytorch/pytorch#58626.
        self._module.set_device(self.index)

    def aside(self, purpose: str) -> Aside:
        return side_stream(self._module, self.index, purpose)

    def synchronise(self) -> None:
        self._module.synchronize(self.index)

    def clean(self) -> None:
        self._module.empty_cache()

    @property
    def _module(self) -> Any:
        return self.module()


def first_match(path: Path, pattern: str) -> str:
    """The first group of the pattern in a driver's file; empty if there is no such file."""
    found = re.search(pattern, system_text(path))
    return found.group(1) if found else ""
