"""How a process becomes a rank: what its launcher says, where ranks on a network meet (variables, the file of
the secret, the address of rank 0), and MPI that does not start or does not let go."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.host.other_users import POD
from aiperf.ranks import connect, launcher, meeting, patience, start_guard
from aiperf.ranks.launcher import BY_HAND, SECRET, TORCHRUN, LaunchedRank
from aiperf.ranks.meeting import MeetingPlace, listening_at, meeting_of
from aiperf.ranks.start_guard import Present, Start, ranks_of
from tests.tables import ComesTo

KEY = b"a secret of this run"


def of(path: Path, **changes: str) -> dict[str, str]:
    return {SECRET: str(path), "MASTER_ADDR": "node1", "MASTER_PORT": "29400"} | changes


def written(path: Path) -> Path:
    path.write_bytes(KEY + b"\n")
    path.chmod(0o600)
    return path


def endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def test_where_ranks_meet_and_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """Files that are no secret, variables that lead nowhere, and two places."""
    monkeypatch.delenv(POD, raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")
    monkeypatch.chdir(tmp_path)

    def met(changes: Mapping[str, str], launcher: str) -> MeetingPlace:
        Path("secret").unlink(missing_ok=True)
        return meeting_of({**of(written(Path("secret"))), **changes}, launcher)

    def harmed(harm: Callable[[Path], None]) -> MeetingPlace:
        Path("secret").unlink(missing_ok=True)
        harm(path := written(Path("secret")))
        return meeting_of(of(path), BY_HAND)

    comes_to_what_was_read("meetings.txt", {**globals(), "met": met, "harmed": harmed, "TORCHRUN": TORCHRUN})


def test_a_pod_has_its_secret_as_kubernetes_mounts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (secret := written(tmp_path / "secret")).chmod(0o644)
    (link := secret.with_name("link")).symlink_to(secret)
    monkeypatch.setenv(POD, "10.0.0.1")
    assert meeting_of(of(link), BY_HAND).secret == KEY


def test_torchrun_needs_the_network_only_on_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET, raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(WorldError, match=f"set {SECRET} to a file"):
        connect.connect(LaunchedRank(0, 3, TORCHRUN, False))


def test_rank_0_listens_at_one_address_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = MeetingPlace("127.0.0.1", free.getsockname()[1], KEY)
    elsewhere = r"cannot listen at 192\.0\.2\.1:.*start rank 0 on the host of MASTER_ADDR"
    with pytest.raises(WorldError, match=elsewhere):
        listening_at(replace(place, host="192.0.2.1"), 3)
    taken = f"{os.strerror(errno.EADDRINUSE)}; choose another MASTER_PORT"
    with socket.create_server((place.host, place.port)), pytest.raises(WorldError, match=taken):
        listening_at(place, 3)
    own = socket.getaddrinfo("127.0.1.1", place.port, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: own)
    monkeypatch.setattr(meeting, "addresses_of_host", lambda _: ["127.0.0.3"])
    with listening_at(replace(place, host="node1"), 3) as listening:
        assert listening.getsockname()[0] == "127.0.0.3", "its name is a loopback address, as on Debian"


def test_rank_0_says_that_its_name_has_no_address_long_before_it_gives_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")
    monkeypatch.setattr(patience, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(meeting, "JOIN_SECONDS", 0.1)
    monkeypatch.setattr(meeting, "AGAIN_SECONDS", 0.01)
    with pytest.raises(WorldError) as refused:
        listening_at(MeetingPlace("node7", 29400, KEY), 3)
    assert str(refused.value) == (
        "rank 0 on node1 cannot listen at node7:29400: its name leads to no address; set MASTER_ADDR to a "
        "name or address of this host that all hosts reach"
    )
    assert [each.message for each in caplog.records] == [
        "the name of rank 0, node7, has no address: Name or service not known; waiting for 0 s more at most"
    ]


BY_OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "9"}
BY_TORCHRUN = {"RANK": "2", "WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "x"}
WITH_SECRET = {"AIPERF_SECRET_FILE": "/home/me/secret"}
DAEMONS = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}


def test_what_launchers_say_of_a_rank(comes_to_what_was_read: ComesTo) -> None:
    """Which rank it is, or none, or one line with the variable that is wrong."""
    comes_to_what_was_read("launched.txt", vars(launcher) | globals())


LET_GO = """
import time
from types import SimpleNamespace
from aiperf.ranks import connect
connect.FINALIZE_SECONDS = 0.5
for tolerant, waits in ((True, 0.0), (False, 1.0), (True, 50.0)):
    end = SimpleNamespace(orphaned=False, fault_tolerant=tolerant)
    end.flush, end.finalize = lambda seconds: None, lambda: time.sleep(waits)
    connect.disconnect(end)
    time.sleep(1.0)
    print(f"let go after {waits} s", flush=True)
"""


def test_a_process_that_mpi_does_not_let_go_is_ended_and_no_other() -> None:
    """One that it lets go is left alone, and one without fault tolerance, which its launcher ends."""
    ended = subprocess.run([sys.executable, "-c", LET_GO], capture_output=True, text=True, timeout=40)
    assert (ended.returncode, ended.stdout) == (-9, "let go after 0.0 s\nlet go after 1.0 s\n")


# MPI that does not start: one line says who is missing, and the job ends

START = Start(0, 3, "node1", 4711, 4710, False, on_host=3)
ALIVE, STOPPED = Present(1, False), Present(99, True)
ELSEWHERE = replace(START, size=8)
GUARDED = """
import time
from aiperf.ranks import start_guard
from aiperf.ranks.launcher import LaunchedRank
start_guard.INIT_SECONDS = {limit}
with start_guard.guarded(LaunchedRank(0, 2, "mpiexec", False), "node1"):
    time.sleep({seconds})
print("connected")
"""


def test_a_rank_that_does_not_connect_is_ended_with_a_line_on_who_is_missing(
    folders: Iterator[Path], comes_to_what_was_read: ComesTo
) -> None:
    def ended(limit: float, seconds: float, *tools: str) -> tuple[int, str]:
        """The exit code, and what is printed, of a rank that needs so many seconds and finds these tools."""
        (folder := next(folders)).mkdir()
        for tool in tools:
            (folder / tool).symlink_to(str(shutil.which(tool)))
        words = [sys.executable, "-c", GUARDED.format(limit=limit, seconds=seconds)]
        own = {**os.environ, "PMI_RANK": "0", "PATH": str(folder)}
        done = subprocess.run(words, env=own, stdout=-1, stderr=subprocess.STDOUT, text=True, timeout=50)
        return done.returncode, done.stdout

    comes_to_what_was_read("start_guard.txt", {**vars(start_guard), **globals(), "ended": ended})


def test_ranks_are_found_by_their_parent_and_their_variables(tmp_path: Path) -> None:
    processes = {
        "10": ("(python) R 7", b"OMPI_COMM_WORLD_RANK=0\0"),
        "11": ("(a ) name) T 7", b"\xff\0=x\0SLURM_PROCID=\0PMI_RANK=1\0"),
        "12": ("(python) Z 7", b"PMI_RANK=2\0"),
        "13": ("(python) S 8", b"PMI_RANK=3\0"),
        "14": ("(sh) S 7", b"HOME=/\0PMI_RANK=word\0"),
        "15": ("", b""),
    }
    for process, (status, environment) in processes.items():
        folder = tmp_path / process
        folder.mkdir()
        (folder / "stat").write_text(f"{process} {status} 0 0")
        (folder / "environ").write_bytes(environment)
    (tmp_path / "16").mkdir()
    assert ranks_of(7, tmp_path) == {0: Present(10, False), 1: Present(11, True)}
