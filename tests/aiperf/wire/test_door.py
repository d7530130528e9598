"""The socket at which a group meets: on one interface, and shut after the meeting."""

from __future__ import annotations

import socket
import sys
from unittest.mock import Mock

import pytest

from aiperf.errors import WorldError
from aiperf.wire.door import interface_towards, keep_others_away, open_door, refuse_unreachable
from tests.tables import ComesTo

NOWHERE = "192.0.2.7"


def test_it_listens_on_one_interface(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((NOWHERE, 9))
        except OSError:
            pytest.skip("no default route")
        own = asked.getsockname()[0]

    def listens(spans_hosts: bool, named: str, **environment: str) -> str:
        """`named` is where the host's name leads to; "its own" is the address of the default route."""
        found = [(None, None, 0, "", (named.replace("its own", own), 0))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with open_door(spans_hosts, environment) as door:
            return str(door.getsockname()[0]).replace(own, "its own")

    comes_to_what_was_read("listening.txt", {"listens": listens, "NOWHERE": NOWHERE})


def test_a_host_that_others_cannot_reach_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node7")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(None, None, 0, "", (NOWHERE, 0))])
    monkeypatch.setattr("aiperf.wire.door._ELSEWHERE", ("255.255.255.255", 9))  # refused: it is a broadcast
    with pytest.raises(WorldError, match=r"^node7: its name leads to no address .*; set GLOO_SOCKET_IFNAME "):
        open_door(True, {})


@pytest.mark.skipif(sys.platform != "linux", reason="sockets of Linux have filters")
def test_after_the_meeting_nobody_gets_in_and_who_is_in_stays() -> None:
    door = open_door(False, {})
    store, address = door.dup(), door.getsockname()
    with door, store, socket.create_connection(address, 5.0) as early, store.accept()[0] as served:
        keep_others_away(door)
        with pytest.raises(TimeoutError):
            socket.create_connection(address, 0.2)
        served.sendall(b"still heard")
        assert early.recv(100) == b"still heard"


def test_the_interface_towards_an_address_is_known_by_its_name() -> None:
    assert interface_towards("127.0.0.1") in {name for _, name in socket.if_nameindex()}
    assert interface_towards("255.255.255.255") == "", "a broadcast"


def test_a_leader_that_cannot_be_reached_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    def reach(raised: OSError) -> None:
        monkeypatch.setattr(socket, "create_connection", Mock(side_effect=raised))
        refuse_unreachable("10.0.0.1", 4711)

    monkeypatch.setattr(socket, "gethostname", lambda: "node7")
    comes_to_what_was_read("unreachable.txt", {"reach": reach})
