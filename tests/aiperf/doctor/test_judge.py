"""What the doctor makes of what the ranks saw: a well machine, and one fault after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from aiperf.config import load_preset, with_overrides
from aiperf.doctor.check import Check, Grade, checks_json, checks_text
from aiperf.doctor.judge import judge
from aiperf.doctor.reports import DataReport, DeviceReport, Examination, Folder, HostReport
from aiperf.wire.clocks import ClockReading
from tests.tables import ComesTo

GIB = 1 << 30
ROOM = Folder("/tmp", free_bytes=100 * GIB, bytes_per_second=1e9, append_seconds=0.001)
# As `nvidia-smi --query-gpu=… --format=csv,noheader` prints them: MIG is [N/A] on devices without it.
SMI = "NVIDIA A100-SXM4-80GB, 550.54.15, 0, No, Disabled\n" * 2
HOST = HostReport(
    host="node1",
    python="3.11.7",
    clash="",
    cores=64,
    cores_of_rank=16,
    load=3.0,
    limits={"open files": 65536, "processes": -1, "locked memory": -1, "file size": -1},
    home=Folder("/home/ada", free_bytes=GIB),
    temporary=ROOM,
    visible={"CUDA_VISIBLE_DEVICES": "0,1"},
    tools={"nvidia-smi": SMI.strip()},
    data_entries=0,
    probe_seen=True,
    onednn="sound",
)


def device(rank: int, host: str) -> DeviceReport:
    return DeviceReport(
        rank=rank,
        host=host,
        torch="2.13.0+cu130",
        kind="cuda",
        name="NVIDIA A100-SXM4-80GB",
        identity=f"GPU-{rank}",
        memory_bytes=80 * GIB,
        visible_devices=2,
        backend="nccl",
        reduce_bytes_per_second=100e9,
    )


WELL = Examination(
    config=load_preset("digits"),
    directory=replace(ROOM, path="runs"),
    hosts=("node1", "node1", "node1", "node2", "node2"),
    mpi="Open MPI v5.0.3",
    threads=True,
    devices_per_group=2,
    host_reports=(HOST, replace(HOST, host="node2")),
    device_reports=tuple(device(rank, f"node{(rank + 1) // 2}") for rank in range(1, 5)),
    data_report=DataReport(sha256="ab" * 32, examples=1797),
    clocks={"node2": ClockReading(0.002, 0.001)},
    wait_seconds=50.0,
)


def other_host(**changes: object) -> Examination:
    return replace(WELL, host_reports=(HOST, replace(HOST, host="node2", **changes)))  # type: ignore[arg-type]


def other_device(**changes: object) -> Examination:
    *rest, last = WELL.device_reports
    return replace(WELL, device_reports=(*rest, replace(last, **changes)))  # type: ignore[arg-type]


def found(seen: Examination, name: str) -> Check:
    return next(check for check in judge(seen) if check.name == name)


def graded(seen: Examination) -> dict[str, str]:
    """Checks that are not well."""
    return {check.name: check.outcome.value for check in judge(seen) if check.outcome is not Grade.OK}


def smi(answer: str) -> Examination:
    return other_host(tools={"nvidia-smi": answer})


def limited(**limits: int) -> Examination:
    return other_host(
        limits={**HOST.limits, **{name.replace("_", " "): most for name, most in limits.items()}}
    )


def other(**changes: object) -> Examination:
    return replace(WELL, **changes)  # type: ignore[arg-type]


def directory(**changes: object) -> Examination:
    return other(directory=replace(ROOM, **changes))  # type: ignore[arg-type]


BARE = {"kind": "cpu", "not_fused": "no C compiler: cc is not in PATH"}
PROCESSORS = (replace(device(4, "node2"), kind="cpu", identity=""),)
NO_DRIVER, UNSURE = replace(PROCESSORS[0], note="no driver"), ClockReading(-15.0, 15.0)
APART = tuple(replace(each, backend="") for each in WELL.device_reports)
FUSED = with_overrides(WELL.config, {"training.step": "fused"})
KILLED, CLASH = "its process was killed by signal 6", "aiperf 0.3 in /x also installs aiperf"
UNSEEN = DeviceReport(1, "node1", "nvidia-smi lists 8 devices", "install the build", "2.13.0+cpu")
ALONE = replace(WELL, hosts=(), mpi="none: no libmpi", threads=False, clocks={})
NOTHING = replace(WELL, host_reports=(), device_reports=(), clocks={})


# Where workers pretend, only what trains is passed over.
RANKS = tuple(DeviceReport(device.rank, device.host) for device in WELL.device_reports)
HOSTS = tuple(replace(host, onednn="unknown", data_entries=-1) for host in WELL.host_reports)
PRETENDING = replace(WELL, pretends=True, device_reports=RANKS, host_reports=HOSTS, data_report=None)
BUSY = replace(HOST, host="node2", load=200.0)
LATE = {"fault": "nccl all-reduce failed: timed out", "late": True, "remedy": "wait longer"}


def overloaded(seen: Examination) -> Examination:
    host, other = seen.host_reports
    return replace(seen, host_reports=(host, replace(BUSY, tools=other.tools)))


def with_another_late(seen: Examination) -> Examination:
    first, *rest = seen.device_reports
    return replace(seen, device_reports=(replace(first, **LATE), *rest))  # type: ignore[arg-type]


@pytest.mark.contract
def test_each_fault_is_found_and_has_a_remedy(comes_to_what_was_read: ComesTo) -> None:
    """One after the other; of one process, or a device that was not bound, what need not be well; and what is
    due to the load of a host, which is not called broken."""
    comes_to_what_was_read("faults.txt", globals())


def test_what_is_shown(as_it_was_read: Callable[[str, str], None]) -> None:
    checks = [
        Check("python", Grade.OK, "3.11"),
        Check("clocks", Grade.FAILED, "2 s", "set them"),
        Check("torch", Grade.NOT_CHECKED, "no worker trains"),
        Check("data", Grade.NOT_CHECKED, "not read", "wait longer"),
    ]
    as_it_was_read(f"{checks_text(checks)}\n{checks_json(checks)}\n", "shown.txt")
