"""What a host shows of itself: folders that can and cannot be written, a file that all must see. What the
doctor makes of it: a well machine, and one fault after the other."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from aiperf.config import load_preset, with_overrides
from aiperf.doctor import host_report
from aiperf.doctor.check import Check, Grade, checks_json, checks_text
from aiperf.doctor.examination import OwnProcess, device_process
from aiperf.doctor.host_report import examine_host, examine_onednn, try_folder
from aiperf.doctor.judge import judge
from aiperf.doctor.reports import DataReport, DeviceReport, Examination, Folder, HostReport, Meet, patient
from aiperf.host import child_process
from aiperf.host.child_process import Child, NoReply
from aiperf.wire.clocks import ClockReading
from aiperf.wire.layout import Place
from tests.launch.stand_ins import install
from tests.tables import ComesTo

HERE = {"HOME": os.environ.get("HOME", "/")}


def test_a_folder_is_tried_and_left_as_it_was_or_has_its_reason(tmp_path: Path) -> None:
    found = try_folder(tmp_path)
    assert found.fault == ""
    assert min(found.free_bytes, found.bytes_per_second, found.append_seconds) > 0
    assert list(tmp_path.iterdir()) == []
    assert try_folder(tmp_path / "none").fault == "No such file or directory"
    (tmp_path / "file").touch()
    assert try_folder(tmp_path / "file").fault == "Not a directory"


def test_a_host_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_report, "PROBE_SECONDS", 0.0)
    monkeypatch.setattr(host_report, "FILE_BYTES", 1 << 20)
    monkeypatch.setattr(host_report, "examine_onednn", lambda seconds: "sound")  # which imports torch
    (tmp_path / "probe").write_text("nonce")
    tools = {
        "nvidia-smi": "#!/bin/sh\necho 'NVIDIA T4, 550, 0, No, [N/A]'\n",
        "npu-smi": "#!/bin/sh\necho no driver >&2; exit 3\n",
    }
    install(tmp_path, tools)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    seen = examine_host(
        tmp_path / "probe", "nonce", str(tmp_path), HERE | {"CUDA_VISIBLE_DEVICES": "MIG-1"}, 50.0
    )
    assert (seen.probe_seen, seen.data_entries, seen.home.fault) == (True, 3, "")
    assert seen.visible == {"CUDA_VISIBLE_DEVICES": "MIG-1"}
    answers = ["NVIDIA T4, 550, 0, No, [N/A]", "failed: exit code 3, no driver"]
    assert [seen.tools[name] for name in tools] == answers
    other = examine_host(tmp_path / "probe", "another", str(tmp_path / "gone"), {}, 50.0)
    assert (other.probe_seen, other.data_entries, other.home.fault) == (False, -1, "HOME is not set")


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(450)
def test_onednn_is_looked_at_in_a_process_that_may_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """With SSE4.1 it has no kernel that is at fault; what the processor has is not known beforehand."""
    monkeypatch.setattr(host_report, "ONEDNN_SECONDS", 200.0)  # more than doctor gives a busy machine
    assert examine_onednn(200.0)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    assert examine_onednn(200.0) == "sound"


@pytest.mark.torch
def test_a_rank_whose_group_does_not_come_blames_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiperf.doctor import device_report

    monkeypatch.setattr(device_report, "MEETING_SECONDS", 0.3)
    place = Place(1, (1, 2), 0, 2)
    with socket.create_server(("127.0.0.1", 0)) as door:
        meet = Meet("127.0.0.1", door.getsockname()[1], os.dup(door.fileno()))
        seen = device_report.examine_device("cpu", "fp32", place, "node1", meet, 50.0)
    assert seen.fault.startswith("gloo all-reduce failed: ")
    assert (seen.late, seen.remedy) == (True, device_report.LATE_REMEDY)


@pytest.mark.torch
def test_a_processor_says_why_it_cannot_make_fused_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "none-of-this-name")
    seen = device_process("cpu", "fp32", Place(1, (1,), 0, 1), "node1", None, 50.0).answer(100.0)
    assert seen is not None
    assert seen.fault == ""
    assert seen.not_fused == "no C compiler: none-of-this-name is not in PATH; install one, or set CC"


class Ended:
    """A child that ended without an answer."""

    def __init__(self, error: NoReply) -> None:
        self.error = error

    def answer(self, seconds: float) -> object:
        raise self.error


def test_a_broken_import_and_a_lack_of_memory_have_remedies_of_their_own(
    comes_to_what_was_read: ComesTo,
) -> None:
    """Without one, the device itself is suspected."""

    def ended(error: NoReply) -> tuple[str, str]:
        """The fault, which is the error, and its remedy."""
        child = OwnProcess(
            cast("Child", Ended(error)), DeviceReport, lambda *fault: DeviceReport(1, "node1", *fault)
        )
        seen = child.answer(1.0)
        assert seen is not None
        return seen.fault, seen.remedy.replace(sys.executable, "python")

    comes_to_what_was_read("remedies.txt", {**vars(child_process), "ended": ended})


def test_a_longer_examination_has_longer_limits_in_its_parts() -> None:
    assert [patient(20.0, seconds) for seconds in (1.0, 50.0, 400.0)] == [20.0, 20.0, 160.0]


def test_each_end_of_that_process_is_told(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    def ends(program: str) -> str:
        say = "import os, sys, time; say = lambda word: os.write(int(sys.argv[1]), word.encode())"
        monkeypatch.setattr(host_report, "ONEDNN_PROGRAM", f"{say}\n{program}")
        return examine_onednn(50.0)

    monkeypatch.setattr(host_report, "ONEDNN_SECONDS", 3.0)
    comes_to_what_was_read("onednn.txt", {"ends": ends})


# What the doctor makes of it

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
