"""The interface of a device, the same for all vendors."""

from __future__ import annotations

import platform
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import sha256
from typing import ClassVar, Protocol

import torch
from torch import Tensor, memory_format

from aiperf.errors import WorldError
from aiperf.wire.reports import Processor
from nas.frozen import frozen

SIXTEEN_BIT = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Capture(Protocol):
    """Work of a device that is recorded once and then replayed, on the same memory each time (CUDA
    graphs)."""

    def warm_up(self, work: Callable[[], None]) -> None:
        """Does the work on its own, before it is recorded."""

    def record(self, work: Callable[[], None]) -> None:
        """Records the work. Raises what torch raises if it cannot be recorded."""

    def replay(self) -> None:
        """Submits the recorded work once more, without waiting for it."""

    def free(self) -> None:
        """Frees the recorded work and its memory, whoever still refers to this object."""


TRAINING, PREPARING, BATCHES = "training", "preparing", "batches"
"""What the queues of a device are for: the steps of trials, which may be captured; the start of the next
trial; the next batch, which is copied during the step before it."""


class Aside:
    """A queue of a device for work next to that of its other queues. This class is for devices without
    several: everything is done in order."""

    def begin(self) -> AbstractContextManager[object]:
        """A context for the calling thread: work that is submitted inside it does not wait for work that was
        submitted outside."""
        return nullcontext()

    def join(self, *results: Tensor) -> None:
        """Work that is submitted from here on waits for the work of `begin`, and may use its results."""

    def finish(self) -> None:
        """Waits until the work of `begin` is done."""


@frozen
class Device(ABC):
    """One device, bound to this process."""

    index: int
    """Index among the devices of its kind that this process sees."""
    name: str
    """Name as the vendor's module reports it; the listed peak is looked up by it."""
    memory_bytes: int
    """Memory of the whole device, or of the host within the limit of a container."""
    note: str = ""
    """What the user should know about the choice of this device; empty if there is nothing."""

    kind: ClassVar[str]
    """Kind of the device as torch names it."""
    backend: ClassVar[str]
    """Backend of torch.distributed for collectives between devices of this kind."""

    @property
    def sensors(self) -> str:
        """Module of aiperf.telemetry that reads its power and clocks; empty if there is none."""
        return ""

    @classmethod
    @abstractmethod
    def count(cls) -> int:
        """Number of devices of this kind that this process sees."""

    @classmethod
    @abstractmethod
    def bind(cls, index: int, ranks_on_host: int = 1) -> Device:
        """Binds a device to this process. Raises WorldError if there is no device with that index."""

    @property
    @abstractmethod
    def formats(self) -> tuple[str, ...]:
        """Number formats of multiplications that the device supports; other formats are refused."""

    @property
    def pci_address(self) -> str:
        """Address on the PCI bus of its host, such as 0000:c1:00.0; empty if it is unknown or not there."""
        return ""

    @property
    def slowed_by(self) -> str:
        """A setting of the environment that makes the device slow, for the user; empty if there is none."""
        return ""

    @property
    def identity(self) -> str:
        """Identifier that is unique on its host, usually a UUID; empty if there is none."""
        return ""

    @property
    def driver(self) -> str:
        """Version of the driver; empty if there is no driver or it does not report one."""
        return ""

    @property
    def torch(self) -> torch.device:
        return torch.device(self.kind, self.index)

    @property
    def layout(self) -> memory_format:
        """Memory format of images and of the weights of convolutions: the one in which the libraries of this
        device are fastest, or the only one that they accept."""
        return torch.channels_last

    def arranged(self, examples: Tensor) -> Tensor:
        """A batch of images in the memory format `layout`; any other batch unchanged."""
        return examples.to(memory_format=self.layout) if examples.dim() == 4 else examples

    @property
    def processor(self) -> Processor | None:
        """Properties of the host's CPU; None if the device is not a CPU."""
        return None

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Numbers of threads from which one is chosen by measuring, in rising order; empty without a
        choice."""
        return ()

    @property
    def threads(self) -> int:
        """Number of threads that this process computes with; 0 if the device is not a CPU."""
        return 0

    def use_threads(self, count: int) -> None:
        """Sets the number of threads of this process from now on; `count` is one of `thread_counts`."""
        raise NotImplementedError(f"{self.kind} devices have no thread setting")

    @abstractmethod
    def synchronise(self) -> None:
        """Waits until all work submitted to the device is done."""

    @abstractmethod
    def clean(self) -> None:
        """Returns cached memory to the device."""

    @abstractmethod
    def enter_thread(self) -> None:
        """Makes this the current device of the calling thread."""

    def aside(self, purpose: str) -> Aside:
        """The queue for a purpose, one of those above; the same at every call."""
        return Aside()

    @property
    def why_not_captured(self) -> str:
        """Reason why work cannot be recorded and replayed; empty if it can."""
        return f"work of {self.kind} devices cannot be captured"

    def capture(self) -> Capture:
        """A new, empty recording. Raises WorldError if the device cannot record work."""
        raise WorldError(f"{self.name}: work of {self.kind} devices cannot be recorded and replayed")

    def autocast(self, format: str) -> AbstractContextManager[object]:
        """A context in which multiplications use this format; accumulation, and operations that torch regards
        as sensitive to rounding, stay in fp32."""
        if format in SIXTEEN_BIT:
            return torch.autocast(self.kind, dtype=SIXTEEN_BIT[format])
        return nullcontext()

    def declare(self, format: str) -> None:
        """Sets the format of the multiplications to which autocast does not apply. Raises WorldError if the
        device does not support it."""
        if format not in self.formats:
            raise WorldError(
                f"training.format is {format}, which is too slow on {self.name}; use "
                f"{' or '.join(self.formats)}"
            )
        torch.set_float32_matmul_precision("high" if format == "tf32" else "highest")

    def untuned(self) -> AbstractContextManager[object]:
        """A context in which libraries do not try out kernels for each new shape: for work that is done
        once."""
        return nullcontext()

    @contextmanager
    def reproducible(self) -> Iterator[None]:
        """A context in which the same work on an equal device gives the same bits: deterministic algorithms,
        and no kernel chosen by trying."""
        # A warning, not an error: on CUDA torch asks for CUBLAS_WORKSPACE_CONFIG, which it reads once in a
        # process and which would slow the run down. It gives each stream a workspace of its own anyway
        # (ATen/cuda/CublasHandlePool.cpp), which is what cuBLAS asks for ("Results Reproducibility").
        before = torch.get_deterministic_debug_mode()
        torch.set_deterministic_debug_mode("warn")  # without the compiler, which takes seconds to import
        try:
            with self.untuned(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Deterministic behavior was enabled")
                yield
        finally:
            torch.set_deterministic_debug_mode(before)

    @property
    def traits(self) -> dict[str, str]:
        """What the bits of its results depend on besides its name, the software and the variables, by the
        names of `TRAITS`. The build of torch has the versions of its libraries for matrix products."""
        return {"torch build": sha256(torch.__config__.show().encode()).hexdigest()[:16]}

    def software(self) -> dict[str, str]:
        """Versions of the software that the measurements depend on, by name."""
        found = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "system": platform.platform(),
        }
        return found | ({"driver": self.driver} if self.driver else {})


NO_MEMORY = (
    "DefaultCPUAllocator: can't allocate memory",  # c10/core/impl/alloc_cpu.cpp
    "CUDNN_STATUS_ALLOC_FAILED",  # ATen/cudnn/Exceptions.h prints cudnnGetErrorString, which has the names
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",  # cuDNN 9's, cudnnStatus_t
    "CUBLAS_STATUS_ALLOC_FAILED",  # ATen/cuda/CUDABlas.cpp, _cublasGetErrorEnum
    "HIPBLAS_STATUS_ALLOC_FAILED",
    "miopenStatusAllocFailed",
    "CUDA error: out of memory",  # c10/cuda/CUDAException.cpp: of the driver, not of torch's allocator
    "HIP error: out of memory",
    "NPU out of memory",  # torch_npu/csrc/core/npu/NPUCachingAllocator.cpp: a RuntimeError in old versions
    "EL0004",  # of Ascend's CANN, "Failed to allocate memory": vllm-project/vllm-ascend#3141, from HCCL
    "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",  # of Intel's oneCCL: intel/torch-ccl#65
    # ATen/native/cudnn/Conv_v8.cpp drops the errors of all kernels that it tries, also a lack of memory for
    # their workspace (pytorch/pytorch#108645). A rank without any kernel for its format is never ready: it
    # makes a convolution before.
    "unable to find an engine to execute this computation",
    "Triton Error [CUDA]: out of memory",  # of what loads a kernel: triton/backends/nvidia/driver.c
    "Triton Error [HIP]:  Code: 2,",  # hipErrorOutOfMemory: triton/backends/amd/driver.c
    "Cuda failure 2 'out of memory'",  # of NCCL: src/include/checks.h
    "Cuda failure 'out of memory'",  # of older ones
)
"""Parts of the messages of those that have no exception class for a lack of memory."""


@contextmanager
def memory_errors() -> Iterator[None]:
    """A context in which any lack of memory is raised as torch.OutOfMemoryError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, torch.OutOfMemoryError) or not is_out_of_memory(error):
            raise
        raise torch.OutOfMemoryError(str(error)) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is a lack of memory, of the host or of a device."""
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or any(words in str(error) for words in NO_MEMORY)
