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
from aiperf.host.other_users import POD
from aiperf.ranks import connect, meeting, patience
from aiperf.ranks.launcher import BY_HAND, SECRET, TORCHRUN, LaunchedRank
from aiperf.ranks.meeting import MeetingPlace, listening_at, meeting_of
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
