"""The compiled kernels, and the threads that they run on."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

import torch

from aiperf.engines.fused.build import NotBuilt, built

_ADDRESS, _LONG, _INT, _DOUBLE = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_double
_SIGNATURES = {
    "batchnorm_forward": (*[_ADDRESS] * 3, *[_LONG] * 2, *[_INT] * 2, *[_ADDRESS] * 5, *[_DOUBLE] * 2, _INT),
    "batchnorm_backward": (*[_ADDRESS] * 6, *[_LONG] * 2, *[_INT] * 2, *[_ADDRESS] * 5, _INT),
    "mean_forward": (*[_ADDRESS] * 2, *[_LONG] * 3, *[_INT] * 2),
    "mean_backward": (*[_ADDRESS] * 2, *[_LONG] * 3, *[_INT] * 2),
    "gate_forward": (*[_ADDRESS] * 3, *[_LONG] * 3, *[_INT] * 2),
    "gate_backward": (*[_ADDRESS] * 6, *[_LONG] * 3, *[_INT] * 2),
    "pixels": (*[_ADDRESS] * 2, *[_LONG] * 6, *[_INT] * 2),
}

# Functions of the OpenMP runtime that torch has loaded: GNU's, Intel's and LLVM's all export them.
_RUNTIME = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")

# Options of mallopt, from malloc.h. By default freed memory, of large tensors above all, returns to the
# system, and each step then takes a page fault for every 4 KiB: up to 8,500 in a step of a grown network for
# the digits.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_NEVER = 2**31 - 1
_LARGEST = (2**30, 2**25)
"""Sizes in bytes up to which memory is taken from the heap, to be tried in this order: glibc before version
2.35 accepts at most 32 MiB."""

# Formats that the kernels read: fp32, and bf16, which has the same exponent.
TYPES = (torch.float32, torch.bfloat16)


def unavailable() -> str:
    """Reason why networks cannot be fused in this process, in one line; empty if they can."""
    if sys.platform != "linux":
        return f"fused steps need Linux; this is {sys.platform}"
    try:
        kernels()
    except NotBuilt as reason:
        return str(reason)
    return ""


@cache
def kernels() -> ctypes.CDLL:
    """The functions of kernels.c. Raises NotBuilt."""
    runtime = _runtime()
    file = built(os.environ)
    try:
        library = ctypes.CDLL(str(file))
        for name, arguments in _SIGNATURES.items():
            getattr(library, name).argtypes = arguments
        library.use_threads.argtypes = (_ADDRESS,) * len(_RUNTIME)
    except (OSError, AttributeError) as error:
        raise NotBuilt(f"{file} cannot be loaded: {error}; delete it to compile it again") from error
    library.use_threads(*runtime)
    return library


@cache
def hold_memory() -> None:
    """Makes this process keep freed memory for the next tensors, if its malloc is glibc's."""
    process = ctypes.CDLL(None)
    if not hasattr(process, "mallopt"):
        return
    # The mmap threshold first: once a trim threshold is set, glibc no longer raises it by itself.
    if any(process.mallopt(_MMAP_THRESHOLD, most) for most in _LARGEST):
        process.mallopt(_TRIM_THRESHOLD, _NEVER)


def call(name: str, *arguments: object) -> None:
    """Calls a kernel with as many threads as torch uses in this thread. Raises MemoryError if the kernel
    could not allocate memory."""
    if getattr(kernels(), name)(*arguments, torch.get_num_threads()):
        raise MemoryError(f"no memory for the sums of {name}")


def _runtime() -> list[int | None]:
    """Addresses of the functions in torch's own OpenMP runtime. A second runtime would start further threads
    on the same cores."""
    process = ctypes.CDLL(None)
    try:
        return [ctypes.cast(getattr(process, name), ctypes.c_void_p).value for name in _RUNTIME]
    except AttributeError:
        missing = ", ".join(name for name in _RUNTIME if not hasattr(process, name))
        raise NotBuilt(
            f"torch has loaded no OpenMP runtime with {missing}; use torch built with OpenMP"
        ) from None
