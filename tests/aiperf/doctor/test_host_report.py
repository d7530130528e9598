"""What a host shows of itself: folders that can and cannot be written, a file that all must see."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import cast

import pytest

from aiperf.doctor import host_report
from aiperf.doctor.examination import OwnProcess, device_process
from aiperf.doctor.host_report import examine_host, examine_onednn, try_folder
from aiperf.doctor.reports import DeviceReport, Meet, patient
from aiperf.host import child_process
from aiperf.host.child_process import Child, NoReply
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
