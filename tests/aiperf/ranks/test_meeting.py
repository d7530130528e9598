"""Where ranks on a network meet: variables, the file of the secret, and the address of rank 0."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import WorldError
from aiperf.host import variables
from aiperf.host.other_users import POD
from aiperf.ranks import connect, meeting, patience
from aiperf.ranks.launcher import BY_HAND, SECRET, TORCHRUN, LaunchedRank
from aiperf.ranks.meeting import MeetingPlace, listening_at, meeting_of

KEY = b"a secret of this run"


def of(path: Path, **changes: str) -> dict[str, str]:
    return {SECRET: str(path), "MASTER_ADDR": "node1", "MASTER_PORT": "29400"} | changes


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(KEY + b"\n")
    path.chmod(0o600)
    return path


def test_the_port_is_the_next_one_where_torchrun_has_that_one(secret: Path) -> None:
    assert meeting_of(of(secret), BY_HAND) == MeetingPlace("node1", 29400, KEY)
    assert meeting_of(of(secret), TORCHRUN) == MeetingPlace("node1", 29401, KEY)


def open_to_all(path: Path) -> None:
    path.chmod(0o644)


def short(path: Path) -> None:
    path.write_text("short\n")


def endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def large(path: Path) -> None:
    path.write_bytes(b"x" * 5000)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (open_to_all, "{} on node1: it can be read by other users (mode 644; `chmod go=` corrects it)"),
        (short, "{} on node1: it has 5 bytes; a secret has 16 to 4,096, as of: (umask 077; head"),
        (large, "{} on node1: it has 4097 bytes; a secret has 16 to 4,096"),
        (endless, "{} on node1: it is a device"),
        (Path.unlink, "{} on node1: No such file or directory; each host needs it"),
    ],
)
def test_a_file_that_is_no_secret_is_refused(
    harm: Callable[[Path], None], told: str, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(POD, raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")
    harm(secret)
    with pytest.raises(WorldError) as refused:
        meeting_of(of(secret), BY_HAND)
    assert str(refused.value).startswith(f"{SECRET}: {told.format(str(secret)[: variables.SHOWN])}")


def test_a_pod_has_its_secret_as_kubernetes_mounts_it(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret.chmod(0o644)
    (link := secret.with_name("link")).symlink_to(secret)
    monkeypatch.setenv(POD, "10.0.0.1")
    assert meeting_of(of(link), BY_HAND).secret == KEY


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({SECRET: ""}, "torchrun started ranks on several hosts, which need a secret of the run: set "),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not set; set it to the host of rank 0"),
        ({"MASTER_PORT": " "}, "MASTER_PORT is not set; set it to the host of rank 0"),
        ({"MASTER_PORT": "0"}, "MASTER_PORT is '0'; it must be a whole number from 1 to 65,534"),
        ({"MASTER_PORT": "65535"}, "MASTER_PORT is '65535'; it must be"),
    ],
)
def test_variables_that_lead_nowhere_are_named(changes: Mapping[str, str], told: str, secret: Path) -> None:
    with pytest.raises(WorldError) as refused:
        meeting_of(of(secret, **changes), TORCHRUN)
    assert str(refused.value).startswith(told)


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
