"""Checks of what a run needs to write and read: limits, folders, space, the data set."""

from __future__ import annotations

from collections.abc import Iterable

from aiperf.doctor.check import Check, failed, not_checked, ok, warning
from aiperf.doctor.reports import Examination, Folder
from aiperf.tasks.registry import task_of

GIB = 1 << 30
"""Bytes of a GiB."""
OPEN_FILES = 4096
"""Number of open files that a run may need, for the sockets of a large group and the files of the loaders;
the common limit of 1,024 is too low."""
LOCKED_MEMORY = 1 << 30
"""Locked memory in bytes that InfiniBand may need to register. With 64 KiB, an old default, NCCL and MPI fail
or fall back to TCP."""
FREE_BYTES, LITTLE_BYTES = 2 * GIB, 20 * GIB
"""Free space below which a check fails, and below which it warns."""
SLOW_BYTES_PER_SECOND = 50e6
"""Rate of writing below which there is a warning: the weights and momentum of a ResNet-50 would take four
seconds of every trial."""
SLOW_APPEND_SECONDS = 0.2
"""Mean time of appending a line above which there is a warning: the master appends up to 43 per second for
all groups."""


def limits(examination: Examination) -> Check:
    """Checks the limits of a process: open files, and locked memory on hosts with accelerators."""
    for each in examination.host_reports:
        files, locked = each.limits["open files"], each.limits["locked memory"]
        if 0 <= files < OPEN_FILES:
            return warning(
                "limits",
                f"{files} open files are allowed on {each.host}",
                f"ulimit -n {OPEN_FILES} in the script",
            )
        if 0 <= locked < LOCKED_MEMORY and each.tools:
            text = f"{locked // 1024} KiB of locked memory are allowed on {each.host}"
            return warning("limits", text, "request an unlimited memlock: InfiniBand needs it (ulimit -l)")
    return ok("limits", "enough open files and locked memory")


def directory(examination: Examination) -> Check:
    """Checks that the run directory can be written, is shared by all hosts, and is fast enough."""
    folder = examination.directory
    if folder.fault:
        return failed("run directory", f"{folder.path}: {folder.fault}", "choose another with --directory")
    apart = [each.host for each in examination.host_reports if not each.probe_seen]
    if apart:
        text = f"{folder.path} is not visible on {some(apart)}"
        return warning(
            "run directory", text, "choose a shared directory; otherwise weights are sent as messages"
        )
    speed = f"{folder.bytes_per_second / 1e6:,.0f} MB/s, {folder.append_seconds * 1e3:.1f} ms per line"
    text = f"{folder.path}: {speed}"
    if folder.bytes_per_second < SLOW_BYTES_PER_SECOND or folder.append_seconds > SLOW_APPEND_SECONDS:
        return warning("run directory", text, "choose a faster file system with --directory")
    return ok("run directory", text + (", shared by all hosts" if len(examination.host_reports) > 1 else ""))


def space(examination: Examination) -> Check:
    """Checks the space for journal and weights."""
    return _room(
        "space",
        [("the run directory", examination.directory)],
        "free some space, or choose another --directory",
    )


def temporary(examination: Examination) -> Check:
    """Checks the space for compiled kernels and the libraries' temporary files, on each host."""
    folders = [(each.host, each.temporary) for each in examination.host_reports]
    return _room("TMPDIR", folders, "set TMPDIR to a folder with free space on a local disk of the node")


def home(examination: Examination) -> Check:
    """Checks that libraries can write their caches."""
    closed = [each for each in examination.host_reports if each.home.fault]
    if closed:
        home, where = closed[0].home, some(each.host for each in closed)
        text = f"{home.path or 'HOME'} on {where}: {home.fault}"
        return warning(
            "home", text, "set XDG_CACHE_HOME and TORCHINDUCTOR_CACHE_DIR to a folder under TMPDIR"
        )
    return ok("home", "can be written")


def data(examination: Examination) -> Check:
    """Checks that every host has the data, and that all of it can be read."""
    name, report = examination.config.data.name, examination.data_report
    without = [each.host for each in examination.host_reports if each.data_entries < 0]
    if without:
        text = f"{examination.config.data.path} does not exist on {some(without)}"
        return failed("data", text, "give a folder that all nodes see with --data, or stage it")
    if report is None:
        text = f"{name}: found on all hosts, but not read completely within {examination.wait_seconds:.0f} s"
        remedy = "none needed: the run checks all of it; a longer --wait-seconds checks it now"
        return not_checked("data", text, remedy)
    if report.fault:
        remedy = report.remedy or "give another folder with --data, or another --preset"
        return failed("data", report.fault, remedy)
    examples = f"{report.examples:,} {task_of(examination.config.data).example}s"
    note = f"; {report.note}" if report.note else ""
    return ok("data", f"{name}: {examples}, sha256 {report.sha256[:12]}…{note}")


def _room(name: str, folders: Iterable[tuple[str, Folder]], remedy: str) -> Check:
    """Check of the free space, by the folder that has the least."""
    worst = ok(name, "")
    for where, folder in folders:
        if folder.fault:
            return failed(name, f"{folder.path} ({where}): {folder.fault}", remedy)
        text = f"{folder.free_bytes / GIB:.3g} GiB free in {folder.path} ({where})"
        if folder.free_bytes < FREE_BYTES:
            return failed(name, text, remedy)
        if folder.free_bytes < LITTLE_BYTES:
            worst = warning(name, text, remedy)
        elif not worst.seen:
            worst = ok(name, text)
    return worst


def some(hosts: Iterable[str]) -> str:
    """The names of hosts, at most four of them."""
    names = sorted(hosts)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
