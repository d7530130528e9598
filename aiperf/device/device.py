"""What a device is to the rest of the program: one interface, whatever the vendor."""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch

from aiperf.device_names import visible_name
from aiperf.errors import WorldError
from aiperf.wire.messages import Processor

SIXTEEN_BIT = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Capture(Protocol):
    """Work of a device that is recorded once and then replayed, on the same memory each time."""

    def warm_up(self, work: Callable[[], None]) -> None:
        """Does the work, apart from all other work."""

    def record(self, work: Callable[[], None]) -> None:
        """Raises what torch raises where the work cannot be recorded."""

    def replay(self) -> None:
        """Submits the recorded work once more, without waiting for it."""


class Aside:
    """Work of a device beside what is under way, as a batch beside the step before. Here there is none."""

    def begin(self) -> AbstractContextManager[object]:
        """What is submitted inside does not wait for what was submitted before."""
        return nullcontext()

    def join(self, *results: torch.Tensor) -> None:
        """What is submitted from here on waits for what was begun, and may use its results."""


@dataclass(frozen=True)
class Device(ABC):
    """One device, bound to this process."""

    index: int
    """Among those of its kind that this process sees."""
    name: str
    """As the vendor's module tells it; the peak is looked up by it."""
    memory_bytes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", visible_name(self.name))

    kind: ClassVar[str]
    """As torch calls it."""
    backend: ClassVar[str]
    """Of torch.distributed, between devices of this kind."""

    @property
    def sensors(self) -> str:
        """The module of aiperf.telemetry that reads its power and clocks; empty where there is none."""
        return ""

    @classmethod
    @abstractmethod
    def count(cls) -> int:
        """Devices of this kind that this process sees."""

    @classmethod
    @abstractmethod
    def bind(cls, index: int, ranks_on_host: int = 1) -> Device:
        """Takes a device for this process. Raises WorldError when there is none of that index."""

    @property
    @abstractmethod
    def formats(self) -> tuple[str, ...]:
        """Of multiplications, those that it has; the others are refused."""

    @property
    def identity(self) -> str:
        """What tells it from all others of its host, a UUID mostly; empty where nothing does."""
        return ""

    @property
    def driver(self) -> str:
        """Version of the driver; empty where there is none or it is not told."""
        return ""

    @property
    def torch(self) -> torch.device:
        return torch.device(self.kind, self.index)

    @property
    def processor(self) -> Processor | None:
        """Of the host, where it is the device."""
        return None

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Numbers of threads that work can be divided among, rising; empty where nobody chooses."""
        return ()

    @property
    def threads(self) -> int:
        """That this process computes with; 0 where the device is not a processor."""
        return 0

    def use_threads(self, count: int) -> None:
        """From now on, in this process; one of `thread_counts`."""
        raise NotImplementedError(f"{self.kind} devices have no thread setting")

    @abstractmethod
    def synchronise(self) -> None:
        """Returns when everything submitted to the device is done."""

    @abstractmethod
    def clean(self) -> None:
        """Gives cached memory back."""

    def aside(self) -> Aside:
        return Aside()

    @property
    def captures(self) -> bool:
        """Whether work can be recorded and replayed."""
        return False

    def capture(self) -> Capture:
        """Room for one recording. Raises WorldError where there is none."""
        raise WorldError(f"{self.name}: work of {self.kind} devices cannot be recorded and replayed")

    def autocast(self, format: str) -> AbstractContextManager[object]:
        """Multiplications in this format, accumulation and everything delicate in fp32."""
        if format in SIXTEEN_BIT:
            return torch.autocast(self.kind, dtype=SIXTEEN_BIT[format])
        return nullcontext()

    def declare(self, format: str) -> None:
        """Sets what the process multiplies in where autocast does not. Raises WorldError."""
        if format not in self.formats:
            raise WorldError(
                f"training.format is {format}, which is too slow on {self.name}; use "
                f"{' or '.join(self.formats)}"
            )
        torch.set_float32_matmul_precision("high" if format == "tf32" else "highest")

    def software(self) -> dict[str, str]:
        """Versions of what the measurement rests on."""
        found = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "system": platform.platform(),
        }
        return found | ({"driver": self.driver} if self.driver else {})


def is_out_of_memory(error: BaseException) -> bool:
    """On the host torch has no class for it, only words (c10/core/impl/alloc_cpu.cpp)."""
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or "DefaultCPUAllocator: can't allocate memory" in str(error)
