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


def test_of_a_well_machine_every_check_is_well() -> None:
    assert [check for check in judge(WELL) if check.outcome is not Grade.OK] == []


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


F, W, N = Grade.FAILED, Grade.WARNING, Grade.NOT_CHECKED
BARE = {"kind": "cpu", "not_fused": "no C compiler: cc is not in PATH"}
PROCESSORS = (replace(device(4, "node2"), kind="cpu", identity=""),)
NO_DRIVER, UNSURE = replace(PROCESSORS[0], note="no driver"), ClockReading(-15.0, 15.0)
APART = tuple(replace(each, backend="") for each in WELL.device_reports)
FUSED = with_overrides(WELL.config, {"training.step": "fused"})
KILLED, CLASH = "its process was killed by signal 6", "aiperf 0.3 in /x also installs aiperf"
UNSEEN = DeviceReport(1, "node1", "nvidia-smi lists 8 devices", "install the build", "2.13.0+cpu")
ALONE = replace(WELL, hosts=(), mpi="none: no libmpi", threads=False, clocks={})
NOTHING = replace(WELL, host_reports=(), device_reports=(), clocks={})


@pytest.mark.contract
def test_each_fault_is_found_and_has_a_remedy(comes_to_what_was_read: ComesTo) -> None:
    """One after the other; and of one process, or a device that was not bound, what need not be well."""
    comes_to_what_was_read("faults.txt", globals())


# What the process that judges knows without an answer of any rank.
KNOWN_ANYWAY = {"MPI", "space"}


def test_a_check_that_looked_at_nothing_is_not_well() -> None:
    outcomes = {check.name: check.outcome for check in judge(NOTHING)}
    assert {name for name, outcome in outcomes.items() if outcome is not Grade.NOT_CHECKED} == KNOWN_ANYWAY


def test_the_only_rank_timed_out() -> None:
    alone = replace(WELL, hosts=(), device_reports=(), clocks={}, silent=("device 0",))
    outcomes = {check.name: check.outcome for check in judge(alone)}
    unknown = dict.fromkeys(("torch", "devices", "fused steps", "backend"), N)
    assert {name: grade for name, grade in outcomes.items() if grade is not Grade.OK} == unknown | {
        "ranks": F
    }


def test_what_is_shown(as_it_was_read: Callable[[str, str], None]) -> None:
    checks = [
        Check("python", Grade.OK, "3.11"),
        Check("clocks", Grade.FAILED, "2 s", "set them"),
        Check("torch", Grade.NOT_CHECKED, "no worker trains"),
        Check("data", Grade.NOT_CHECKED, "not read", "wait longer"),
    ]
    as_it_was_read(f"{checks_text(checks)}\n{checks_json(checks)}\n", "shown.txt")


def test_where_workers_pretend_only_what_trains_is_passed_over() -> None:
    ranks = tuple(DeviceReport(device.rank, device.host) for device in WELL.device_reports)
    hosts = tuple(replace(host, onednn="unknown", data_entries=-1) for host in WELL.host_reports)
    seen = replace(WELL, pretends=True, device_reports=ranks, host_reports=hosts, data_report=None)
    passed = [check.name for check in judge(seen) if check.outcome is N]
    assert passed == ["torch", "devices", "oneDNN", "fused steps", "backend", "data"]
    assert {check.outcome for check in judge(seen)} == {Grade.OK, N}
    assert found(seen, "ranks").seen == "4 ranks on 2 hosts, and the master on node1"
    lost = replace(seen, host_reports=(hosts[0], replace(hosts[1], probe_seen=False)))
    assert [check.name for check in judge(lost) if check.outcome is W] == ["run directory"]


BUSY = (
    "node2 is overloaded, not broken: stop other programs there (top lists them), or use another node; a "
    "longer --wait-seconds gives it more time to answer"
)
BROKEN = "check that device; exclude its node until it is repaired"
LATE = {"fault": "nccl all-reduce failed: timed out", "late": True, "remedy": "wait longer"}


def test_an_overloaded_host_is_not_called_broken() -> None:
    """What came too late is due to the load; what is wrong is not."""
    busy = replace(HOST, host="node2", load=200.0)
    for name, seen in {
        "ranks": other(silent=("rank 3 on node2",)),
        "drivers": smi("failed: it did not answer within 20 s"),
        "devices": other_device(**LATE),
    }.items():
        (host, answers), idle = seen.host_reports, found(seen, name).remedy
        overloaded = replace(seen, host_reports=(host, replace(busy, tools=answers.tools)))
        assert (found(overloaded, name).remedy, idle != BUSY) == (BUSY, True), name
    wrong = replace(other_device(fault="wrong in 3 places"), host_reports=(HOST, busy))
    assert found(wrong, "devices").remedy == BROKEN
    first, *rest = other_device(fault="wrong in 3 places").device_reports
    both = other(device_reports=(replace(first, **LATE), *rest))  # type: ignore[arg-type]
    assert found(both, "devices").seen == "rank 4 on node2: wrong in 3 places; and 1 more"
