"""Devices of NVIDIA, and those of AMD, which have the same name in ROCm builds of torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import ClassVar

import torch
from torch.nn.functional import linear

from aiperf.device.accelerator import Accelerator, first_match, side_stream
from aiperf.device.device import TRAINING, Capture, Device
from aiperf.host import variables
from nas.frozen import frozen

NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
AMD_DRIVER = Path("/sys/module/amdgpu/version")
"""Absent if the driver is that of the kernel itself, which has no version of its own."""
SUGGEST_NHWC = ("PYTORCH_MIOPEN_SUGGEST_NHWC", "PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM")
"""Variables without which torch gives MIOpen images with the channels first only (`ATen/native/ConvUtils.h`;
opt-in since pytorch/pytorch#170780)."""
SHAPE = (32, 4096, 8192)
"""Examples, inputs and outputs of the product with which the leak was reported."""
WARM_UP, REPLAYS = 3, 32
"""Passes before the recording, replays before memory is read, and replays until it is read again."""
LEAST_LEAK = 1 << 20
"""Bytes for each replay that count as a leak: an eighth of what was reported. Other processes of the host
may use the device, but not steadily more of it during some milliseconds."""
AMPERE = (8, 0)
"""First compute capability with bf16 and TF32: NVIDIA A100 architecture white paper, 2020."""


_UNENDED: list[object] = []
"""Graphs whose capture torch did not end: its allocator of host memory refers to them to the end."""


def _stopped_allocating(index: int, pool: tuple[int, int]) -> bool:
    """Ends the allocation of memory to the pool of a failed capture, unless torch has done so. Returns
    whether torch had not.

    If the work has invalidated its capture, as a wait for the device does, CUDAGraph::capture_end raises
    before that (ATen/cuda/CUDAGraph.cpp). Until the process ends, the allocator would then reuse no batch
    that another stream has read, and `empty_cache`, with which every capture begins, would raise
    (captures_underway in c10/cuda/CUDACachingAllocator.cpp).
    """
    newer = getattr(torch._C, "_cuda_endAllocateToPool", None)  # since torch 2.8
    try:
        (newer or torch._C._cuda_endAllocateCurrentStreamToPool)(index, pool)  # type: ignore[attr-defined]
    except RuntimeError:  # it does not allocate to the pool
        return False
    torch._C._cuda_releasePool(index, pool)
    return True


def _free_random_numbers(index: int) -> None:
    """Replaces the state of the random generator by a copy: the state itself is still marked as captured, and
    refuses every number (CUDAGeneratorState::increase in ATen/cuda/CUDAGeneratorImpl.cpp)."""
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(generator.clone_state())


class CudaCapture:
    """A CUDA or HIP graph with its own memory, which is freed with this object."""

    def __init__(self, index: int) -> None:
        self._index, self._graph = index, torch.cuda.CUDAGraph()
        # The stream on which DDP was made and warmed up: nodes of autograd that were made on another one end
        # a capture (pytorch/pytorch, issue 164302 and pull request 180090).
        self._stream = side_stream(torch.cuda, index, TRAINING).stream

    def warm_up(self, work: Callable[[], None]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            work()
        torch.cuda.current_stream().wait_stream(self._stream)

    def record(self, work: Callable[[], None]) -> None:
        pool = torch.cuda.graph_pool_handle()
        # Only this thread is captured, because another one prepares the next trial meanwhile.
        capture = torch.cuda.graph(self._graph, pool, self._stream, capture_error_mode="thread_local")
        try:
            # The outer context restores the stream, which that of a capture without an end does not.
            with torch.cuda.stream(self._stream), capture:
                work()
        except Exception:
            self._graph.reset()
            if _stopped_allocating(self._index, pool):
                _UNENDED.append(self._graph)
                _free_random_numbers(self._index)
            raise

    def replay(self) -> None:
        self._graph.replay()

    def free(self) -> None:
        self._graph.reset()


@frozen
class Cuda(Accelerator):
    """An NVIDIA or AMD device. A build of torch supports one of the two vendors, and `torch.version.hip` says
    which."""

    kind: ClassVar[str] = "cuda"
    backend: ClassVar[str] = "nccl"
    """In ROCm builds this is the name of RCCL."""

    @classmethod
    def bind(cls, index: int, ranks_on_host: int = 1) -> Device:
        if torch.version.hip:  # before the first convolution; what the site has set is kept
            for name in SUGGEST_NHWC:
                os.environ.setdefault(name, "1")
        return super().bind(index, ranks_on_host)

    @classmethod
    def vendor(cls) -> str:
        return "AMD" if torch.version.hip else "NVIDIA"

    @property
    def sensors(self) -> str:
        return "amd" if torch.version.hip else "nvidia"

    @property
    def formats(self) -> tuple[str, ...]:
        if torch.version.hip:  # hipBLASLt multiplies in TF32 only if an environment variable is set
            return ("bf16", "fp16", "fp32")
        modern = self._module.get_device_capability(self.index) >= AMPERE
        return ("bf16", "fp16", "tf32", "fp32") if modern else ("fp16", "fp32")

    @property
    def pci_address(self) -> str:
        """Known to newer versions of torch: the fields of cudaDeviceProp that have these names there."""
        names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
        domain, bus, device = (getattr(self.properties, name, -1) for name in names)
        return f"{domain:04x}:{bus:02x}:{device:02x}.0" if min(domain, bus, device) >= 0 else ""

    @property
    def slowed_by(self) -> str:
        return without_nhwc(os.environ) if torch.version.hip else ""

    @property
    def driver(self) -> str:
        if torch.version.hip:
            return first_match(AMD_DRIVER, r"(\S+)")
        return first_match(NVIDIA_DRIVER, r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s")

    @property
    def why_not_captured(self) -> str:
        return _replay_fault(self) if torch.version.hip else ""

    def capture(self) -> CudaCapture:
        return CudaCapture(self.index)

    def declare(self, format: str) -> None:
        super().declare(format)
        torch.backends.cudnn.allow_tf32 = format == "tf32"
        torch.backends.cudnn.benchmark = True

    @contextmanager
    def untuned(self) -> Iterator[None]:
        """Keeps cuDNN and MIOpen from timing kernels: for a batch size that is used once, that would cost
        seconds for each layer."""
        tuned = torch.backends.cudnn.benchmark  # also MIOpen's
        torch.backends.cudnn.benchmark = False
        try:
            yield
        finally:
            torch.backends.cudnn.benchmark = tuned

    @contextmanager
    def reproducible(self) -> Iterator[None]:
        """Without TunableOp, which tries out kernels for products if the site has turned it on."""
        tunable = self._module.tunable
        tuned = tunable.is_enabled()
        tunable.enable(False)
        try:
            with super().reproducible():
                yield
        finally:
            tunable.enable(tuned)

    def software(self) -> dict[str, str]:
        return super().software() | {
            "cuda": str(torch.version.cuda or torch.version.hip),
            "cudnn": str(torch.backends.cudnn.version()),
        }


@cache
def _replay_fault(device: Cuda) -> str:
    """`replay_fault` of a device, which is measured once in a process."""
    with device.aside(TRAINING).begin():
        return replay_fault(device, device.capture(), lambda: int(torch.cuda.mem_get_info(device.index)[0]))


def replay_fault(
    device: Device, capture: Capture, free_bytes: Callable[[], int], shape: tuple[int, int, int] = SHAPE
) -> str:
    """Why replays cannot be used on a device that can record work; empty if they leave its memory as it is.

    On AMD's devices every replay of a matrix product with its backward pass may keep 8 to 16 MB of workspace
    until the process ends (ROCm/rocm-libraries, issue 9505), so a trial would end without memory after some
    thousand steps. Versions differ, so it is measured on each device.
    """
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


def without_nhwc(environment: Mapping[str, str]) -> str:
    """Which of SUGGEST_NHWC is not 1, and what follows; empty if both are."""
    others = [name for name in SUGGEST_NHWC if variables.word(environment, name) != "1"]
    return f"{others[0]} is not 1, so torch converts the memory format of images" if others else ""
