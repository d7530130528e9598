"""The kernels: compiled for the CPU on which this process runs, once for each CPU and compiler, loaded, and
called on torch's threads. Whatever prevents that is a NotBuilt with its reason, which `unavailable` returns
and `aiperf-hpc doctor` reports."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

import torch

from aiperf.host import variables
from aiperf.host.other_users import (
    OTHERS_WRITE,
    NotOurs,
    make_private,
    refuse_changeable_file,
    temporary_folder,
)
from aiperf.host.programs import SHOWN, ToolFailed, ask
from nas.bounded import system_text

HERE = Path(__file__).parent
MAIN = HERE / "kernels.c"
SOURCES = (MAIN, HERE / "batchnorm.h", HERE / "images.h", HERE / "sequences.h")

# No -ffast-math, because NaN and infinity must be kept. The flags below allow loops to be vectorised.
# -O3 compiles for twice as long, and the kernels are no faster.
VECTORS = ("-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-fopenmp-simd")
FLAGS = ("-std=gnu99", *VECTORS, "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
LONGEST_REASON = 600
"""Longest line of a compiler that is shown, in characters."""
SECONDS = 120
"""Time limit of a compilation in seconds; it takes 3 s on one core of today."""

# A user can keep torch and oneDNN from using some instructions of the CPU; our kernels obey the same
# variables. The levels are listed from the lowest; their flags replace, or are added to, -march=native.
LOWERED: Mapping[str, tuple[str, ...]] = {
    "baseline": ("-march=x86-64",),
    "sse41": ("-march=x86-64", "-msse4.1"),
    "avx": ("-march=x86-64", "-mavx"),
    "avx2": ("-march=native", "-mno-avx512f"),
}
LIMITS: Mapping[str, Mapping[str, str]] = {
    "ATEN_CPU_CAPABILITY": {"default": "baseline", "avx2": "avx2"},
    "ONEDNN_MAX_CPU_ISA": {
        "SSE41": "sse41",
        "AVX": "avx",
        "AVX2": "avx2",
        "AVX2_VNNI": "avx2",
        "AVX2_VNNI_2": "avx2",
    },
}
"""Level for each value of these variables that limits the kernels. Other values (AVX512_CORE…) allow all that
the kernels use."""

_ADDRESS, _LONG, _INT, _DOUBLE = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_double
_SIGNATURES = {
    "batchnorm_forward": (*[_ADDRESS] * 3, *[_LONG] * 2, *[_INT] * 2, *[_ADDRESS] * 5, *[_DOUBLE] * 2, _INT),
    "batchnorm_backward": (*[_ADDRESS] * 6, *[_LONG] * 2, *[_INT] * 2, *[_ADDRESS] * 5, _INT),
    "mean_forward": (*[_ADDRESS] * 2, *[_LONG] * 3, *[_INT] * 2),
    "mean_backward": (*[_ADDRESS] * 2, *[_LONG] * 3, *[_INT] * 2),
    "gate_forward": (*[_ADDRESS] * 3, *[_LONG] * 3, *[_INT] * 2),
    "gate_backward": (*[_ADDRESS] * 6, *[_LONG] * 3, *[_INT] * 2),
    "pixels": (*[_ADDRESS] * 2, *[_LONG] * 6, *[_INT] * 2),
    "rms_forward": (*[_ADDRESS] * 4, *[_LONG] * 2, *[_INT] * 2, _DOUBLE, _INT),
    "rms_backward": (*[_ADDRESS] * 8, *[_LONG] * 2, *[_INT] * 3),
    "turn": (*[_ADDRESS] * 3, *[_LONG] * 4, *[_INT] * 4),
    "silu_product": (*[_ADDRESS] * 5, _LONG, *[_INT] * 2),
}
"""Types of the arguments by function, as in kernels.c. All return 0 unless there is no memory."""

# Functions of the OpenMP runtime that torch has loaded: GNU's, Intel's and LLVM's all export them.
_RUNTIME = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")

# Options of mallopt, from malloc.h. By default freed memory, of large tensors above all, returns to the
# system, and each step then takes a page fault for every 4 KiB: up to 8,500 in a step of a grown network for
# the digits.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_NEVER = 2**31 - 1  # the largest value that mallopt takes, an int
_LARGEST = (2**30, 2**25)
"""Sizes in bytes up to which memory is taken from the heap, to be tried in this order: glibc before version
2.35 accepts at most 32 MiB."""


class NotBuilt(Exception):
    """There are no kernels; the message gives the reason in one line."""


def unavailable() -> str:
    """Reason why networks cannot be fused in this process, in one line; empty if they can."""
    if sys.platform != "linux":
        return f"fused steps need Linux; this is {sys.platform}"
    try:
        library()
    except NotBuilt as reason:
        return str(reason)
    return ""


@cache
def library() -> ctypes.CDLL:
    """The functions of kernels.c. Raises NotBuilt."""
    runtime = _runtime()
    file = built(os.environ)
    try:
        functions = ctypes.CDLL(str(file))
        for name, arguments in _SIGNATURES.items():
            getattr(functions, name).argtypes = arguments
        functions.use_threads.argtypes = (_ADDRESS,) * len(_RUNTIME)
    except (OSError, AttributeError) as error:
        raise NotBuilt(f"{file} cannot be loaded: {error}; delete it to compile it again") from error
    functions.use_threads(*runtime)
    return functions


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
    if getattr(library(), name)(*arguments, torch.get_num_threads()):
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


def built(environment: Mapping[str, str]) -> Path:
    """Path of the shared library for this CPU. It is compiled unless an intact one of this compiler exists.

    A node without a compiler uses a library that was compiled elsewhere for the same CPU: compute nodes often
    have no compiler, but share the user's cache with a login node that has one. Raises NotBuilt.
    """
    words = (variables.raw(environment, "CC") or "").split() or ["cc"]
    program = shutil.which(words[0], path=variables.raw(environment, "PATH"))
    flags = _processor_flags(environment)
    try:
        folder, kind = _folder(environment), f"kernels-{_kind(flags)}"
        if program is None:
            if (file := _whole(folder, kind)) is None:
                raise NotBuilt(f"no C compiler: {words[0][:SHOWN]} is not in PATH; install one, or set CC")
            return file
        name = f"{kind}-{_version(program, words)}"
        command = [program, *words[1:], *FLAGS, *flags]
        return _whole(folder, name) or _compile(command, folder, name)
    # RuntimeError: the user has no home folder.
    except (OSError, RuntimeError, ToolFailed) as error:
        raise NotBuilt(f"{program or words[0]} does not compile the kernels: {error}") from error


def _whole(folder: Path, name: str) -> Path | None:
    return next(filter(_is_whole, sorted(folder.glob(f"{name}-*.so"))), None)


def _is_whole(file: Path) -> bool:
    """Whether the contents match the digest in the file's name, because loading a truncated file kills the
    process, and no other user can change them."""
    try:
        refuse_changeable_file(file)
        return file.stem.endswith(f"-{_digest(file)}")
    except (OSError, NotOurs):
        return False


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()[:16]


def _processor_flags(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The compiler's flags for the instructions that this process may use. GCC prefers vectors of
    256 bits on CPUs that have 512 as well."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ("-mcpu=native",)
    asked = [known.get(variables.word(environment, name)) for name, known in LIMITS.items()]
    for level, flags in LOWERED.items():
        if level in asked:
            return flags
    return ("-march=native", *(("-mprefer-vector-width=512",) if "avx512f" in _instructions() else ()))


def _kind(flags: tuple[str, ...]) -> str:
    """Digest of what determines the use of a library: sources, flags, and the CPU."""
    asked = "\0".join((*FLAGS, *flags)).encode()
    return _short(
        *(source.read_bytes() for source in SOURCES),
        asked,
        platform.machine().encode(),
        _instructions().encode(),
    )


def _version(program: str, words: list[str]) -> str:
    """Digest of what else determines its contents: the path of the compiler, its version, and the user's
    flags."""
    answer = ask([program, "--version"], SECONDS)
    return _short(*(os.fsencode(part) for part in (program, answer.output, "\0".join(words[1:]))))


def _short(*parts: bytes) -> str:
    whole = sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()[:16]


def _instructions() -> str:
    """Text that identifies the CPU for the compiler: its model and its instruction sets."""
    lines = system_text(Path("/proc/cpuinfo")).splitlines()
    if not lines:
        return platform.processor()
    fields = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU implementer", "CPU part")
    first: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in fields:
            first.setdefault(name.strip(), value.strip())
    return "\n".join(f"{name}: {value}" for name, value in sorted(first.items()))


def _folder(environment: Mapping[str, str]) -> Path:
    """The user's cache folder, or one for temporary files if that is not writable. Raises NotBuilt."""
    home = Path(variables.raw(environment, "HOME") or "~").expanduser()
    caches = variables.raw(environment, "XDG_CACHE_HOME") or home / ".cache"
    last = NotBuilt("no folder to compile into")
    # Code is loaded from this folder, so no other user may be able to write to it.
    for folder_of in (partial(make_private, Path(caches) / "aiperf-hpc", OTHERS_WRITE), temporary_folder):
        try:
            folder = folder_of()
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
            last = NotBuilt(f"{folder} cannot be written; set XDG_CACHE_HOME to a folder that can be written")
        except NotOurs as error:
            last = NotBuilt(f"{error}; set XDG_CACHE_HOME to a folder of your own")
        except OSError as error:
            last = NotBuilt(
                f"{error.filename}: {error.strerror}; set XDG_CACHE_HOME to a folder that can be written"
            )
    raise last


def _compile(command: list[str], folder: Path, name: str) -> Path:
    """Compiles into a temporary file, which is then renamed atomically, because many ranks may compile at the
    same time."""
    handle, own = tempfile.mkstemp(suffix=".so", dir=folder)
    os.close(handle)
    try:
        whole = [*command, "-o", own, str(MAIN), "-lm"]
        done = ask(whole, SECONDS)
        if done.code:
            told = done.text.splitlines()
            said = told[0] if told else f"{done.how} of {' '.join(whole)}"
            raise NotBuilt(f"{command[0]} does not compile the kernels: {said[:LONGEST_REASON]}")
        os.chmod(own, 0o700)  # the compiler may have made a new file, which the umask lets others change
        return Path(own).replace(folder / f"{name}-{_digest(Path(own))}.so")
    finally:
        Path(own).unlink(missing_ok=True)
