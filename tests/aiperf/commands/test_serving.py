"""`serve` under load: real sockets that send half a request, never read, or come all at once."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import ThreadingHTTPServer

import pytest

from aiperf.commands.looking import serving
from aiperf.commands.looking.serving import LivePage, make_server
from tests.journals import Scene, told, write_run

SECONDS = 60.0  # for what takes milliseconds where nothing else runs


@contextmanager
def served(live: LivePage) -> Iterator[ThreadingHTTPServer]:
    with make_server(live, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(SECONDS)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> LivePage:
    page = LivePage(write_run(tmp_path_factory.mktemp("runs") / "simulated", told(Scene())))
    page.html()
    page._next = math.inf  # it is shown as it is: these tests are of what carries it
    return page


def connected(server: ThreadingHTTPServer, sent: bytes, buffer: int = 0) -> socket.socket:
    client = socket.socket()
    client.settimeout(SECONDS)
    if buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.connect(("127.0.0.1", server.server_port))
    client.sendall(sent)
    return client


def received(client: socket.socket) -> bytes:
    """Up to the end of the connection."""
    answer = b""
    while piece := client.recv(1 << 16):
        answer += piece
    return answer


def asked(server: ThreadingHTTPServer) -> bytes:
    with connected(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") as client:
        return received(client)


def handlers() -> int:
    """Threads that answer a connection."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def wait_for(num_handlers: int) -> None:
    until = time.monotonic() + SECONDS
    while handlers() != num_handlers and time.monotonic() < until:
        time.sleep(0.02)
    assert handlers() == num_handlers


def test_all_who_come_at_once_are_answered(live: LivePage) -> None:
    with served(live) as server, ThreadPoolExecutor(200) as clients:
        answers = list(clients.map(lambda _: asked(server), range(400)))
    assert {answer[:12] for answer in answers} <= {b"HTTP/1.0 200", b"HTTP/1.0 503"}
    assert sum(answer.startswith(b"HTTP/1.0 200") for answer in answers) >= serving.MOST_CONNECTIONS


def test_beyond_the_bound_nobody_gets_a_thread(live: LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(serving, "REQUEST_SECONDS", SECONDS)
    with served(live) as server, ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connected(server, b"GET / HT"))
        wait_for(4)
        assert asked(server).startswith(b"HTTP/1.0 503 Service Unavailable\r\n")
        assert asked(server).endswith(b"\r\n\r\n4 connections are open; try again in 60 s\n")
        assert handlers() == 4


def test_half_a_request_is_waited_for_so_long_and_no_longer(
    live: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 2.0)
    with served(live) as server, connected(server, b"GET / HTTP/1.1\r\n") as client:
        assert received(client).endswith(b"no whole request in 2 s\n")
        wait_for(0)
        assert asked(server).startswith(b"HTTP/1.0 200")


def test_an_answer_that_nobody_takes_is_given_up(live: LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "ANSWER_SECONDS", 0.5)
    large = LivePage(live.files)
    large._made, large._next = "x" * (64 << 20), math.inf  # more than the system's buffers hold
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with served(large) as server, connected(server, request, buffer=4096):
        wait_for(1)
        wait_for(0)
