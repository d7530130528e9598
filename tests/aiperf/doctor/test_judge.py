"""What the doctor makes of what the ranks saw: a well machine, and one fault after the other."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aiperf.config import load_preset, with_overrides
from aiperf.doctor.check import Check, Grade, checks_json, checks_text
from aiperf.doctor.judge import judge
from aiperf.doctor.reports import DataReport, DeviceReport, Examination, Folder, HostReport
from aiperf.wire.clocks import ClockReading

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
FAULTS: list[tuple[str, Grade, str, Examination]] = [
    ("python", F, "3.9.1", other_host(python="3.9.1")),
    ("python", F, "differs between nodes: 3.11.7, 3.12.0", other_host(python="3.12.0")),
    ("packages", F, f"{CLASH} (on node2)", other_host(clash=CLASH)),
    ("torch", F, "2.13.0+cu130, 2.5.1", other_device(torch="2.5.1")),
    ("torch", F, "differs between nodes", other_device(torch="2.12.0")),
    ("MPI", W, "without MPI_THREAD_MULTIPLE", other(threads=False)),
    ("MPI", F, "without MPI_THREAD_MULTIPLE", other(threads=False, backend="horovod")),
    ("ranks", F, "no answer from rank 3 on node2 within 50 s", other(silent=("rank 3 on node2",))),
    ("ranks", F, "different numbers", other(layout_fault="the hosts have different numbers")),
    ("ranks", F, "node2 has 8 visible devices for 2 training ranks", other_device(visible_devices=8)),
    ("cores", W, "node2 binds each rank to one of its 64 cores", other_host(cores_of_rank=1)),
    ("devices", F, "rank 4 on node2: out of order", other_device(fault="out of order")),
    ("devices", F, "2 ranks on node2 have the same device", other_device(identity="GPU-3")),
    ("devices", W, "3 × NVIDIA A100-SXM4-80GB, 1 × NVIDIA L4", other_device(name="NVIDIA L4")),
    ("drivers", F, "node2 returned unexpected output: '\\x00,,,,\\x7f'", smi("\0,,,,\x7f\n\ufffd")),
    ("drivers", F, "nvidia-smi on node2 failed: no", smi("failed: no")),
    ("drivers", W, "nvidia-smi on node2 failed: no", replace(smi("failed: no"), device_reports=PROCESSORS)),
    ("devices", W, "node2: no driver", other(device_reports=(*PROCESSORS, NO_DRIVER))),
    ("devices", W, "4 × NVIDIA A100-SXM4-80GB; node2: X is not 1", other_device(slowed_by="X is not 1")),
    ("drivers", F, "3 uncorrected memory errors", smi("NVIDIA A100, 550.54.15, 3, No, Disabled")),
    ("drivers", W, "memory pages pending retirement", smi("NVIDIA A100, 550.54.15, 0, Yes, Disabled")),
    ("drivers", W, "differ between nodes", smi(SMI.replace("550", "535"))),
    ("visible", W, "MIG is enabled on node2", smi("NVIDIA A100, 550.54.15, 0, No, Enabled")),
    ("visible", W, "selects device partitions", other_host(visible={"CUDA_VISIBLE_DEVICES": "MIG-8f0c"})),
    ("backend", F, "an all-reduce failed", other_device(fault="nccl all-reduce failed: x")),
    ("backend", W, "4 GB/s on node2", other_device(reduce_bytes_per_second=4e9)),
    ("oneDNN", W, f"write outside their memory ({KILLED}, on node2)", other_host(onednn=KILLED)),
    ("oneDNN", N, "torch did not start on node2 within 20 s", other_host(onednn="unknown")),
    ("fused steps", W, "node2: no C compiler: cc is not in PATH", other_device(**BARE)),
    ("fused steps", F, "node2: no C compiler: cc is", replace(other_device(**BARE), config=FUSED)),
    ("fused steps", W, "node2: no triton", other_device(not_fused="no triton")),
    ("clocks", F, "is 2.500 s, of node2", other(clocks={"node2": ClockReading(-2.5, 0.1)})),
    ("clocks", W, "is 0.400 s, of node2", other(clocks={"node2": ClockReading(0.4, 0.1)})),
    ("clocks", W, "clock of node2 is known only to 15.0 s", other(clocks={"node2": UNSURE})),
    ("limits", W, "1024 open files are allowed on node2", limited(open_files=1024)),
    ("limits", W, "64 KiB of locked", limited(locked_memory=65536)),
    ("run directory", F, "runs: Read-only file", directory(path="runs", fault="Read-only file")),
    ("run directory", W, "is not visible on node2", other_host(probe_seen=False)),
    ("run directory", W, "20 MB/s", directory(bytes_per_second=20e6)),
    ("run directory", W, "500.0 ms per line", directory(append_seconds=0.5)),
    ("space", F, "1 GiB free", directory(free_bytes=GIB)),
    ("space", W, "10 GiB free", directory(free_bytes=10 * GIB)),
    ("TMPDIR", F, "/tmp (node2): no quota", other_host(temporary=Folder("/tmp", fault="no quota"))),
    ("home", W, "/home/ada on node2: full", other_host(home=Folder("/home/ada", fault="full"))),
    ("data", F, "does not exist on node2", other_host(data_entries=-1)),
    ("data", F, "no folder of images", other(data_report=DataReport("no folder of images"))),
    ("data", N, "not read completely within 50 s", other(data_report=None)),
    ("load", W, "load average 96.0 on 64 cores of node2", other_host(load=96.0)),
    ("load", N, "the system does not report it", other_host(load=None)),
    ("clocks", N, "no answer from node2", other(clocks={})),
    ("clocks", N, "is 0.002 s, of node2; no answer from node3", other(hosts=(*WELL.hosts, "node3"))),
    ("backend", N, "the ranks of no group could meet", other(device_reports=APART)),
    ("drivers", N, "no accelerator tool is in PATH on node2", other_host(tools={})),
]


@pytest.mark.contract
@pytest.mark.parametrize(("name", "outcome", "seen", "fault"), FAULTS)
def test_a_fault_is_found(name: str, outcome: Grade, seen: str, fault: Examination) -> None:
    check = found(fault, name)
    assert check.outcome is outcome
    assert seen in check.seen
    assert check.remedy or outcome is N


# What the process that judges knows without an answer of any rank.
KNOWN_ANYWAY = {"MPI", "space"}


def test_a_check_that_looked_at_nothing_is_not_well() -> None:
    nothing = replace(WELL, host_reports=(), device_reports=(), clocks={})
    outcomes = {check.name: check.outcome for check in judge(nothing)}
    assert {name for name, outcome in outcomes.items() if outcome is not Grade.NOT_CHECKED} == KNOWN_ANYWAY
    assert found(nothing, "drivers") == Check(
        "drivers",
        Grade.NOT_CHECKED,
        "nothing could be examined",
        "see the failed checks; fix them, or use a longer --wait-seconds, then check again",
    )


def test_the_only_rank_timed_out() -> None:
    alone = replace(WELL, hosts=(), device_reports=(), clocks={}, silent=("device 0",))
    outcomes = {check.name: check.outcome for check in judge(alone)}
    unknown = dict.fromkeys(("torch", "devices", "fused steps", "backend"), N)
    assert {name: grade for name, grade in outcomes.items() if grade is not Grade.OK} == unknown | {
        "ranks": F
    }


def test_a_device_that_could_not_be_bound_joined_no_backend() -> None:
    """ "None is needed" would be a guess: nobody knows what it would have been joined with."""
    unseen = DeviceReport(1, "node1", "nvidia-smi lists 8 devices", "install the build", "2.13.0+cpu")
    alone = replace(WELL, hosts=(), device_reports=(unseen,), clocks={})
    assert found(alone, "backend").outcome is N
    assert found(alone, "devices") == Check(
        "devices", Grade.FAILED, "rank 1 on node1: nvidia-smi lists 8 devices", "install the build"
    )


def test_devices_by_uuid_are_told_and_one_process_needs_no_mpi() -> None:
    seen = other_host(visible={"CUDA_VISIBLE_DEVICES": "GPU-8f0c,GPU-9a1d"})
    assert found(seen, "visible").seen.endswith("; by UUID")
    alone = replace(WELL, hosts=(), mpi="none: no libmpi", threads=False, clocks={})
    assert found(alone, "MPI") == Check("MPI", Grade.OK, "not needed by one process (none: no libmpi)")
    assert found(alone, "clocks").seen == "one host"


def test_what_is_shown() -> None:
    checks = [
        Check("python", Grade.OK, "3.11"),
        Check("clocks", Grade.FAILED, "2 s", "set them"),
        Check("torch", Grade.NOT_CHECKED, "no worker trains"),
        Check("data", Grade.NOT_CHECKED, "not read", "wait longer"),
    ]
    assert checks_text(checks) == (
        "ok          python          3.11\n"
        "failed      clocks          2 s\n"
        "                            remedy: set them\n"
        "not checked torch           no worker trains\n"
        "not checked data            not read\n"
        "                            remedy: wait longer\n"
        "1 ok, 0 warnings, 1 failed, 2 not checked: torch, data"
    )
    assert json.loads(checks_json(checks)) == {
        "checks": [
            {"name": "python", "outcome": "ok", "seen": "3.11", "remedy": ""},
            {"name": "clocks", "outcome": "failed", "seen": "2 s", "remedy": "set them"},
            {"name": "torch", "outcome": "not checked", "seen": "no worker trains", "remedy": ""},
            {"name": "data", "outcome": "not checked", "seen": "not read", "remedy": "wait longer"},
        ],
        "outcomes": {"ok": 1, "warning": 0, "failed": 1, "not checked": 2},
    }


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
