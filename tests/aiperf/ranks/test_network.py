"""Ranks on a network: order, deaths, and whoever does not know the secret or changes what is sent.

It is one file because all of it needs ranks that have met.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

import pytest

from aiperf.errors import WorldError
from aiperf.ranks import network_link, patience
from aiperf.ranks.launcher import BY_HAND, LaunchedRank
from aiperf.ranks.link import Received
from aiperf.ranks.meeting import MeetingPlace
from aiperf.ranks.network_link import FRAME_BYTES, NetworkLink
from aiperf.ranks.sealing import ANSWER, HELLO, MAC_BYTES, Introduction, Seal, hello
from tests.aiperf.ranks.test_torchrun import killed, lost
from tests.tables import ComesTo

KEY = b"a secret of this run"


@pytest.fixture
def place() -> MeetingPlace:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return MeetingPlace("127.0.0.1", free.getsockname()[1], KEY)


def linked(rank: int, place: MeetingPlace, size: int = 3) -> NetworkLink:
    return NetworkLink(LaunchedRank(rank, size, BY_HAND, False), place)


def joined(
    master: NetworkLink, rank: int, place: MeetingPlace, proxy: MeetingPlace | None = None
) -> NetworkLink:
    """A rank that has connected, through a proxy if there is one."""
    with ThreadPoolExecutor() as pool:
        joining = pool.submit(linked, rank, proxy or place, master.size)
        until = time.monotonic() + 30
        while rank not in master._ways and time.monotonic() < until:
            assert master.receive(0.05) is None
        return joining.result()


def links(size: int, place: MeetingPlace) -> list[NetworkLink]:
    master = linked(0, place, size)
    return [master, *(joined(master, rank, place) for rank in range(1, size))]


def received(link: NetworkLink, hub: NetworkLink, num: int, seconds: float = 60.0) -> list[Received]:
    """What arrives at a rank, while another one passes it on."""
    found: list[Received] = []
    until = time.monotonic() + seconds
    while len(found) < num and time.monotonic() < until:
        if hub is not link:
            assert hub.receive(0.0) is None
        if (each := link.receive(0.01)) is not None:
            found.append(each)
    return found


def leave(*ranks: NetworkLink) -> None:
    """All leave, the master last."""
    ranks[0].dismissed = True
    leaving = [threading.Thread(target=each.finalize) for each in ranks[1:]]
    for each in leaving:
        each.start()
    while any(each.is_alive() for each in leaving):
        ranks[0].receive(0.01)
    ranks[0].finalize()


def test_messages_keep_their_order_between_all_ranks_and_no_port_stays_open(place: MeetingPlace) -> None:
    ranks = links(3, place)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((place.host, place.port))
    short = [bytes([number]) * (number * 1000) for number in range(50)]
    for source, to, sent in ((0, 1, short), (1, 0, short), (1, 2, [*short, bytes(1 << 25), b"", b"again"])):
        flushing = threading.Thread(target=ranks[source].flush, args=(60.0,))
        for tag, data in enumerate(sent):
            ranks[source].send(to, tag, data)
        flushing.start()
        expected = [Received(source, tag, data) for tag, data in enumerate(sent)]
        assert received(ranks[to], ranks[0], len(sent)) == expected
        flushing.join()
    leave(*ranks)


def test_a_rank_may_start_before_the_master(place: MeetingPlace) -> None:
    with ThreadPoolExecutor() as pool:
        early = pool.submit(linked, 1, place, 2)
        time.sleep(0.3)
        master = linked(0, place, 2)
        master.send(1, 7, b"said before it is there")
        while not early.done():
            assert master.receive(0.01) is None
    assert received(early.result(), master, 1) == [Received(0, 7, b"said before it is there")]
    leave(master, early.result())


def test_a_rank_says_whom_it_cannot_reach_long_before_it_gives_up(
    place: MeetingPlace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(patience, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(network_link, "JOIN_SECONDS", 0.3)
    with pytest.raises(WorldError, match="Connection refused; start rank 0 there") as refused:
        linked(1, place)
    assert [each.message for each in caplog.records] == [f"{refused.value}; waiting for 0 s more at most"]


def test_a_dead_rank_is_noticed_and_costs_no_other_one_its_messages(place: MeetingPlace) -> None:
    ranks = links(4, place)
    ranks[3].send(0, 0, b"its last words")
    killed(ranks[3])
    assert [each.data for each in received(ranks[0], ranks[0], 1)] == [b"its last words"]
    assert lost(ranks[0]) == {3}
    ranks[0].send(3, 0, b"to the dead")
    ranks[1].send(3, 0, b"to the dead")
    ranks[1].send(2, 0, b"to the living")
    assert received(ranks[2], ranks[0], 1) == [Received(1, 0, b"to the living")]
    assert ranks[0].flush(5.0)
    leave(*ranks[:3])


def test_a_rank_notices_the_death_of_the_master_at_once(place: MeetingPlace) -> None:
    master, rank = links(2, place)
    killed(master)
    began = time.monotonic()
    assert rank.receive(30.0) is None
    assert (rank.failed, time.monotonic() - began < 10) == ({0}, True)
    assert not rank.orphaned
    rank.send(0, 0, b"nobody hears it")
    assert rank.flush(0.0)
    rank.finalize()


# Whoever does not know the secret


def said(secret: bytes = KEY, rank: int = 1, size: int = 3) -> bytes:
    return hello(secret, Introduction(rank, size), bytes(32))


def test_a_stranger_gets_nothing(
    place: MeetingPlace,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    comes_to_what_was_read: ComesTo,
) -> None:
    """Each comes twice, and is reported once; then the ranks meet."""
    master = linked(0, place)

    def refused(sent: bytes) -> str:
        caplog.clear()
        master._named.clear()
        for _ in range(2):
            with socket.create_connection((place.host, place.port)) as stranger:
                stranger.settimeout(10)
                stranger.sendall(sent)
                assert master.receive(0.05) is None
                with monkeypatch.context() as later:
                    later.setattr(network_link, "PROOF_SECONDS", -1.0)
                    master._keep_up()
                with suppress(ConnectionResetError):
                    assert stranger.recv(1) == b""
        (line,) = caplog.messages
        return re.sub(r"127\.0\.0\.1:\d+", "a stranger", line)

    comes_to_what_was_read("strangers.txt", {**globals(), "refused": refused, "HELLO": HELLO})
    leave(master, joined(master, 1, place))


def test_a_gigabyte_of_garbage_costs_nothing(place: MeetingPlace) -> None:
    """The first 80 bytes show the master that no rank sends them, and it reads no more."""
    master = linked(0, place)
    garbage, sent = os.urandom(1 << 20), 0
    with socket.create_connection((place.host, place.port)) as stranger:
        stranger.sendall(garbage[: HELLO.size + 1])
        assert master.receive(0.05) is None
        with pytest.raises(ConnectionResetError):  # because the last byte was not read
            stranger.recv(1)
    before = time.process_time()
    with socket.create_connection((place.host, place.port)) as stranger:
        stranger.setblocking(False)
        while sent < 1 << 30:
            try:
                sent += stranger.send(garbage)
            except BlockingIOError:
                assert master.receive(0.01) is None
            except ConnectionError:
                break
    assert sent < 1 << 25, "what the two kernels hold"
    assert time.process_time() - before < 1.0
    leave(master)


def test_a_recorded_proof_is_no_proof(place: MeetingPlace, caplog: pytest.LogCaptureFixture) -> None:
    """A record of all that a rank sent, to a later run with the same secret."""
    with recording(place) as (proxy, record):
        master = linked(0, place)
        rank = joined(master, 1, place, proxy)
        rank.send(0, 7, b"a message")
        assert received(master, master, 1)
        leave(master, rank)
    master = linked(0, place)
    with caplog.at_level(logging.ERROR), socket.create_connection((place.host, place.port)) as again:
        again.sendall(bytes(record))
        assert master.receive(0.1) is None
        assert master.receive(0.1) is None
        again.settimeout(10)
        assert len(again.recv(4096)) == ANSWER.size
    assert caplog.messages[-1].endswith("that was not made with the secret of this run, or not now")
    assert not master._ways
    leave(master)


def test_silent_strangers_do_not_keep_a_rank_out(
    place: MeetingPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_link, "CROWDED_SECONDS", 0.1)
    monkeypatch.setattr(network_link, "MOST_STRANGERS", 8)
    master = linked(0, place, 2)
    silent = [
        socket.create_connection((place.host, place.port)) for _ in range(2 * network_link.MOST_STRANGERS)
    ]
    for _ in range(3):
        assert master.receive(0.01) is None
        assert len(master._strangers) <= network_link.MOST_STRANGERS
    rank = joined(master, 1, place)
    assert not master._strangers
    for each in silent:
        each.close()
    leave(master, rank)


def test_a_master_without_a_free_file_lives_on(place: MeetingPlace) -> None:
    master = linked(0, place, 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_connection((place.host, place.port)):
        os.close(free := os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            assert master.receive(0.0) is None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    leave(master, joined(master, 1, place))


def test_records_of_a_hello_cost_no_more_files_than_ranks(place: MeetingPlace) -> None:
    """A hello of this run can be sent again as long as its rank has not proved itself."""
    master = linked(0, place, 4)
    ranks = [joined(master, rank, place) for rank in (1, 2)]
    records = [socket.create_connection((place.host, place.port)) for _ in range(8)]
    for record in records:
        record.sendall(said(rank=3, size=4))
    for _ in range(3):
        assert master.receive(0.05) is None
    assert (len(master._ways), len(master._introduced), len(master._strangers)) == (2, 2, 0)
    for record in records:
        record.close()
    leave(master, *ranks)


def test_a_rank_that_is_refused_says_so(place: MeetingPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with another secret, and a second one with the number of another."""
    monkeypatch.setattr(network_link, "PAUSES", (0.01, 0.01))
    master = linked(0, place)
    first = joined(master, 1, place)
    for rank, secret in ((2, b"another secret, as long"), (1, KEY)):
        with ThreadPoolExecutor() as pool:
            joining = pool.submit(linked, rank, replace(place, secret=secret))
            while not joining.done():
                master.receive(0.01)
        said = "it closed the connection without an answer, and its output says why; give all ranks"
        assert isinstance(error := joining.exception(), WorldError)
        assert str(error).startswith(f"rank {rank} cannot reach rank 0 at {place}: {said}")
    leave(master, first)


@contextmanager
def in_place_of_the_master(place: MeetingPlace, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    with socket.create_server((place.host, place.port)) as listening:
        answering = threading.Thread(target=answer, args=[listening])
        answering.start()
        yield
        answering.join()


def test_a_rank_does_not_speak_to_a_master_without_the_secret(
    place: MeetingPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_link, "PAUSES", (0.0, 0.0))

    def pretend(listening: socket.socket) -> None:
        for _ in range(network_link.REFUSALS):
            other, _ = listening.accept()
            with closing(other):
                other.recv(HELLO.size)
                other.sendall(bytes(ANSWER.size))
                assert other.recv(1) == b""

    refused = "whoever listens there does not know the secret of this run"
    with in_place_of_the_master(place, pretend), pytest.raises(WorldError, match=refused):
        linked(1, place)


def test_a_slow_answer_has_one_limit(place: MeetingPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for each of its bytes."""
    monkeypatch.setattr(network_link, "ANSWERED_SECONDS", 0.2)
    monkeypatch.setattr(network_link, "JOIN_SECONDS", 0.0)
    gone = threading.Event()

    def trickle(listening: socket.socket) -> None:
        other, _ = listening.accept()
        with closing(other), suppress(OSError):
            for _ in range(ANSWER.size):
                other.sendall(b"x")
                gone.wait(0.05)

    with in_place_of_the_master(place, trickle):
        with pytest.raises(WorldError, match="timed out; start rank 0 there"):
            linked(1, place)
        gone.set()


# Whoever changes what is sent


@contextmanager
def recording(
    place: MeetingPlace, change: Callable[[bytes], bytes] = bytes
) -> Iterator[tuple[MeetingPlace, bytearray]]:
    """A proxy before the master, and what a rank has sent through it. `change` is given what follows the
    hello and the proof."""
    record = bytearray()

    def pass_back(master: socket.socket, rank: socket.socket) -> None:
        with suppress(OSError):
            while data := master.recv(1 << 16):
                rank.sendall(data)
            rank.shutdown(socket.SHUT_RDWR)

    def pass_on() -> None:
        rank, _ = listening.accept()
        master = socket.create_connection((place.host, place.port))
        back = threading.Thread(target=pass_back, args=(master, rank))
        back.start()
        with suppress(OSError):
            for number_bytes in (HELLO.size, FRAME_BYTES):  # the proof follows the master's answer
                record.extend(data := rank.recv(number_bytes, socket.MSG_WAITALL))
                master.sendall(data)
            while data := rank.recv(1 << 16):
                record.extend(data)
                master.sendall(change(data))
        with suppress(OSError):
            master.shutdown(socket.SHUT_WR)
        back.join(10)
        master.close()
        rank.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=pass_on)
        serving.start()
        yield replace(place, port=listening.getsockname()[1]), record
        serving.join(10)


def flipped(position: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    "change",
    [
        *(flipped(position) for position in (0, 8, 16, 24, 32, FRAME_BYTES, FRAME_BYTES + 5)),
        lambda data: data + data,
        lambda data: data[FRAME_BYTES + 6 :],
        lambda data: data[:5] + data[6:],
    ],
    ids=["length", "to", "source", "tag", "mac", "first", "last", "repeated", "first is missing", "shifted"],
)
def test_no_changed_message_is_heard(change: Callable[[bytes], bytes], place: MeetingPlace) -> None:
    """The rank says two things at once; of what is not as it said it, nothing is heard."""
    with recording(place, change) as (proxy, _):
        master = linked(0, place)
        rank = joined(master, 1, place, proxy)
        first, second = (bytes(part) for part in (b"first!", b"second"))
        with rank._turn:
            way = rank._ways[0]
            for tag, data in enumerate((first, second)):
                head = network_link.HEAD.pack(len(data), 0, 1, tag)
                way.leaving.append(memoryview(head + rank._seals[way][0].mac(head, data) + data))
            whole = b"".join(way.leaving)
            way.leaving.clear()
            way.leaving.append(memoryview(whole))
            rank._push(way)
        heard = received(master, master, 3, 0.15)
        killed(rank)  # the master may wait for the rest of a longer message
        assert lost(master) == {1}
        assert heard in ([], [Received(1, 0, first)], [Received(1, 0, first), Received(1, 1, second)])
        leave(master)


def test_a_length_is_believed_only_as_far_as_a_message_may_have_it(
    place: MeetingPlace, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even one byte is waited for before the proof of who sends it is complete."""
    master = linked(0, place)
    rank = joined(master, 1, place)
    with socket.create_connection((place.host, place.port)) as stranger:
        stranger.sendall(said(rank=2) + network_link.HEAD.pack(1, 0, 2, 0) + bytes(MAC_BYTES))
        stranger.settimeout(10)
        assert master.receive(0.05) is None
        assert master.receive(0.05) is None
        assert len(stranger.recv(4096)) == ANSWER.size
        assert stranger.recv(1) == b""
    rank._ways[0].socket.sendall(network_link.HEAD.pack((1 << 25) + 1, 0, 1, 0) + bytes(MAC_BYTES))
    assert master.receive(10.0) is None
    assert master.failed == {1}
    assert [line.rpartition(": ")[2] for line in caplog.messages] == [
        "it sent a message of 1 bytes; the limit is 0",
        "it sent a message of 33554433 bytes; the limit is 33554432",
    ]
    killed(rank)
    leave(master)


def test_each_frame_has_its_own_mac() -> None:
    """Two frames of one content differ, and so do two directions and two connections."""
    differences = [(direction, answered) for direction in (b"a", b"b") for answered in (b"x", b"y")]
    seals = [Seal(KEY, direction, b"said", answered) for direction, answered in differences]
    macs = [seal.mac(b"head", b"data") for seal in (*seals, *seals)]
    assert len(set(macs)) == 8
