"""Examination of one host with the standard library alone: limits, folders, variables, drivers. It needs no
torch, so that a host with a broken one can be examined as well."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from aiperf.doctor.reports import Folder, HostReport, patient
from aiperf.host import variables
from aiperf.host.child_process import answer_file, written
from aiperf.host.cores import allowed_cores
from aiperf.host.package_clash import foreign_owner, hidden_package
from aiperf.host.programs import ToolFailed, ask
from nas.bounded import read_text

LIMITS = {"open files": resource.RLIMIT_NOFILE, "processes": resource.RLIMIT_NPROC}
LIMITS |= {"locked memory": resource.RLIMIT_MEMLOCK, "file size": resource.RLIMIT_FSIZE}
"""Limits of a process that a run may reach, by the name that is shown."""
VISIBLE: tuple[str, ...] = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
VISIBLE += ("ASCEND_RT_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables by which a scheduler or a user hides devices from a process."""
FILE_BYTES = 64 << 20
"""Number of bytes written to measure the speed of a folder and to see whether a quota allows it: about the
weights of a ResNet-50."""
APPENDS = 20  # lines, each flushed to the disk before the next
PROBE_SECONDS = 10.0  # network file systems show a new file to other hosts some seconds late
TOOL_SECONDS = 20.0
"""Time limit in seconds for the tool of a driver, which hangs if the driver does."""
# Properties to query, printed as one line per device; `nvidia-smi --help-query-gpu` explains them.
NVIDIA = (
    "name",
    "driver_version",
    "ecc.errors.uncorrected.volatile.total",
    "retired_pages.pending",
    "mig.mode.current",
)
"""Fields that `_fields` of `judge.py` expects in this order."""
TOOLS: Mapping[str, tuple[str, ...]] = {
    "nvidia-smi": (f"--query-gpu={','.join(NVIDIA)}", "--format=csv,noheader"),
    "rocm-smi": ("--showdriverversion", "--showproductname", "--csv"),
    "npu-smi": ("info",),
    "xpu-smi": ("discovery",),
}
"""Tools that report drivers, and how to call them."""
ONEDNN_SECONDS = 20.0
"""Time limit in seconds, mostly for importing torch from a cold network file system; the test itself takes
tenths of a second."""
STARTED, SOUND, UNKNOWN = "started", "sound", "unknown"
"""What the process of the test writes, and what is recorded if it wrote nothing."""
# The images are as large as AVX-512 needs: it computes smaller ones in one block, and only later blocks are
# written to a wrong place. If the process survives, a gradient may be wrong. If it dies, it leaves no core
# file, whose size some schedulers do not limit.
ONEDNN_PROGRAM = f"""
import os, resource, sys, torch
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
torch.set_num_threads(1)
os.write(int(sys.argv[1]), b"{STARTED}")
for channels in (4, 12):
    images = torch.randn(4, channels, 128, 128).to(memory_format=torch.channels_last)
    convolution = torch.nn.Conv2d(channels, 8, kernel_size=1, stride=2, bias=False)
    exact = images.double()[:, :, ::2, ::2].sum((0, 2, 3))
    for _ in range(8):
        convolution.zero_grad()
        convolution(images).sum().backward()
        torch.testing.assert_close(convolution.weight.grad[0, :, 0, 0].double(), exact, rtol=0, atol=0.1)
os.write(int(sys.argv[1]), b"{SOUND}")
"""


def examine_host(
    probe: Path,
    nonce: str,
    data_path: str,
    environment: Mapping[str, str],
    wait_seconds: float,
    trains: bool = True,
) -> HostReport:
    """Examines this host. This takes some seconds at most, unless a file system hangs.

    `wait_seconds` is the time limit of the whole examination; `trains`: whether workers train here, and so
    need torch and the data.
    """
    return HostReport(
        load=_load(),  # first, before the examination itself adds to it
        host=socket.gethostname(),
        python=platform.python_version(),
        clash=foreign_owner(sys.path) or hidden_package() or "",
        cores=os.cpu_count() or 1,
        cores_of_rank=allowed_cores(),
        limits={name: resource.getrlimit(which)[0] for name, which in LIMITS.items()},
        home=_home(environment),
        temporary=try_folder(Path(tempfile.gettempdir())),
        visible=_visible(environment),
        tools={name: _ask(name, words, wait_seconds) for name, words in TOOLS.items() if shutil.which(name)},
        data_entries=_entries(data_path if trains else ""),
        probe_seen=_is_visible(probe, nonce, wait_seconds),
        onednn=examine_onednn(wait_seconds) if trains else UNKNOWN,
    )


def try_folder(path: Path) -> Folder:
    """Measures how fast a folder can be written to. Nothing remains in it. Rates are in bytes per second,
    times in seconds. A fault is in the folder's `fault`."""
    try:
        began = time.perf_counter()
        with tempfile.NamedTemporaryFile(dir=path, prefix=".aiperf-hpc-") as file:
            block = os.urandom(1 << 20)
            for _ in range(FILE_BYTES >> 20):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            written = time.perf_counter()
            for _ in range(APPENDS):
                file.write(b"{}\n")
                file.flush()
                os.fsync(file.fileno())
        ended = time.perf_counter()
        free = os.statvfs(path)
    except OSError as error:
        return Folder(str(path), fault=error.strerror or str(error))
    return Folder(
        str(path),
        free_bytes=free.f_bavail * free.f_frsize,
        bytes_per_second=FILE_BYTES / (written - began),
        append_seconds=(ended - written) / APPENDS,
    )


def examine_onednn(wait_seconds: float) -> str:
    """Tests for a known fault of oneDNN, in a process that may die: on some CPUs it writes outside its memory
    when it computes the gradient of the weights of a strided 1x1 convolution of few channels. `nas.modules`
    never lets it compute that: https://github.com/uxlfoundation/oneDNN/issues/6035

    Returns SOUND, UNKNOWN if torch cannot be imported in time, or the fault in words. It takes as long as
    importing torch. `wait_seconds` is the time limit of the whole examination."""
    limit = patient(ONEDNN_SECONDS, wait_seconds)
    with answer_file() as file:
        number = file.fileno()
        try:
            code = ask([sys.executable, "-c", ONEDNN_PROGRAM, str(number)], limit, keep=(number,)).code
        except ToolFailed:
            # After the start only the fault can make it hang: two threads that overwrite each other spin
            # forever.
            return "the gradient does not end" if written(file) == STARTED else UNKNOWN
        answer = written(file)
    if answer == STARTED + SOUND:
        return SOUND
    if not answer:
        return UNKNOWN
    return f"its process was killed by signal {-code}" if code < 0 else "the gradient is wrong"


def _visible(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that choose devices, if they are set."""
    values = {name: variables.raw(environment, name) for name in VISIBLE}
    return {name: variables.word(environment, name) for name, value in values.items() if value is not None}


def _home(environment: Mapping[str, str]) -> Folder:
    """Checks that a small file can be created in the home folder, where libraries put their caches."""
    home = variables.raw(environment, "HOME") or ""
    if not home:
        return Folder("", fault="HOME is not set")
    try:
        with tempfile.NamedTemporaryFile(dir=home, prefix=".aiperf-hpc-"):
            free = os.statvfs(home)
    except OSError as error:
        return Folder(home, fault=error.strerror or str(error))
    return Folder(home, free_bytes=free.f_bavail * free.f_frsize)


def _load() -> float | None:
    """Processes that ran or waited in the last minute; None if the system does not say."""
    try:
        return os.getloadavg()[0]
    except OSError:  # the system does not tell it
        return None


def _ask(tool: str, words: tuple[str, ...], wait_seconds: float) -> str:
    """The answer of a driver's tool, or why there is none; a broken driver makes its tool hang."""
    try:
        answer = ask((tool, *words), patient(TOOL_SECONDS, wait_seconds))
    except ToolFailed as error:
        return f"failed: it {error}"
    return answer.text if answer.code == 0 else f"failed: {answer.how}, {answer.reason}"


def _entries(data_path: str) -> int:
    """Number of entries of the data folder: 0 if none is needed, -1 if it does not exist."""
    if not data_path:
        return 0
    try:
        return len(os.listdir(data_path))
    except OSError:
        return -1


def _is_visible(probe: Path, nonce: str, wait_seconds: float) -> bool:
    """Whether this host sees the master's file in the run directory, after a while if not at once."""
    until = time.monotonic() + patient(PROBE_SECONDS, wait_seconds)
    while True:
        with contextlib.suppress(OSError):  # not there, or not yet
            if read_text(probe) == nonce:
                return True
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
