"""Checks of the software: Python, packages, torch, MPI, and a fault of oneDNN."""

from __future__ import annotations

from aiperf.doctor.check import Check, failed, not_checked, ok, warning
from aiperf.doctor.host_report import ONEDNN_SECONDS, SOUND, UNKNOWN
from aiperf.doctor.reports import Examination, patient
from aiperf.host.variables import number

OLDEST_PYTHON, OLDEST_TORCH = (3, 10), (2, 6)
"""The oldest versions that are tested."""


def python(examination: Examination) -> Check:
    """Checks the version of Python on all nodes."""
    versions = {each.python for each in examination.host_reports}
    return _same_version("python", versions, OLDEST_PYTHON, "install aiperf-hpc under Python 3.10 or newer")


def names(examination: Examination) -> Check:
    """Checks that no other distribution owns one of our packages, as NVIDIA's `aiperf` does. Two
    distributions with one package overwrite each other's files."""
    clashes = {each.clash: each.host for each in examination.host_reports if each.clash}
    if clashes:
        clash, host = next(iter(clashes.items()))
        return failed(
            "packages", f"{clash} (on {host})", "install aiperf-hpc into a separate virtual environment"
        )
    return ok("packages", "aiperf, nas, launch and analysis belong to this program")


def torch(examination: Examination) -> Check:
    """Checks the version of torch on all nodes."""
    versions = {each.torch for each in examination.device_reports if each.torch}
    return _same_version("torch", versions, OLDEST_TORCH, "install PyTorch 2.6 or newer")


def mpi(examination: Examination) -> Check:
    """Checks that MPI can be called from several threads, which Horovod needs."""
    if not examination.hosts:
        return ok("MPI", f"not needed by one process ({examination.mpi})")
    if not examination.mpi:
        return ok("MPI", "not needed: the ranks have sockets")
    if not examination.threads:
        text = f"{examination.mpi}; without MPI_THREAD_MULTIPLE"
        if examination.backend == "horovod":
            return failed("MPI", text, "Horovod needs an MPI built with MPI_THREAD_MULTIPLE")
        return warning("MPI", text, "use an MPI with MPI_THREAD_MULTIPLE if you want --backend horovod")
    return ok("MPI", f"{examination.mpi}; MPI_THREAD_MULTIPLE")


def onednn(examination: Examination) -> Check:
    """Check for a fault that every known torch has on CPUs with AVX2 or more. Runs are not affected by it."""
    hosts = examination.host_reports
    faults = {each.onednn: each.host for each in hosts if each.onednn not in (SOUND, UNKNOWN)}
    if faults:
        fault, host = next(iter(faults.items()))
        text = f"strided 1x1 convolutions of few channels write outside their memory ({fault}, on {host})"
        return warning("oneDNN", text, "none needed: a run avoids them; other programs may meet it")
    if any(each.onednn == UNKNOWN for each in hosts):
        unknown = next(each.host for each in hosts if each.onednn == UNKNOWN)
        limit = patient(ONEDNN_SECONDS, examination.wait_seconds)
        text = f"torch did not start on {unknown} within {limit:.0f} s, or cannot be imported"
        return not_checked("oneDNN", text, "none needed: a run avoids the known fault everywhere")
    return ok("oneDNN", "strided 1x1 convolutions of few channels stay within their memory")


def _same_version(name: str, versions: set[str], oldest: tuple[int, ...], remedy: str) -> Check:
    """Checks that the versions of a program are new enough and the same on all nodes; `remedy` is for a
    version that is too old."""
    listed = ", ".join(sorted(versions))
    if any(_version(version) < oldest for version in versions):
        return failed(name, listed, remedy)
    if len(versions) > 1:
        return failed(name, f"differs between nodes: {listed}", "give all nodes the same environment")
    return ok(name, listed)


def _version(text: str) -> tuple[int, ...]:
    """The first two numbers of a version; 0 in the place of what is not a number."""
    return tuple(
        number("".join(filter(str.isdecimal, part))) or 0 for part in text.split("+")[0].split(".")[:2]
    )
