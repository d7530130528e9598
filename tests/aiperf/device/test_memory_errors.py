"""Each library has its own words for a lack of memory; none of them has an exception class for it."""

from __future__ import annotations

import pytest
import torch

from aiperf.device.device import is_out_of_memory, memory_errors


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate`"), True),
        (RuntimeError("miopenStatusAllocFailed"), True),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"), True),
        (RuntimeError("HIP error: out of memory"), True),
        (RuntimeError("NPU out of memory. Tried to allocate 138.00 MiB (NPU 0; 60.97 GiB total)"), True),
        (RuntimeError("GET was unable to find an engine to execute this computation"), True),
        (RuntimeError("FIND was unable to find an engine to execute this computation"), True),
        (torch.distributed.DistBackendError("NCCL error: Cuda failure 2 'out of memory'"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), False),
        (ValueError("NPU out of time"), False),
    ],
)
def test_a_lack_of_memory_is_known_by_its_words(error: Exception, known: bool) -> None:
    assert is_out_of_memory(error) == known
    with pytest.raises(torch.OutOfMemoryError if known else type(error)), memory_errors():
        raise error
