"""`serve`: who is answered, and real sockets that send half a request, never read, or come all at once."""

from __future__ import annotations

import math
import re
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stdout
from http.server import ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import pytest

from aiperf.commands import serve
from aiperf.commands.serve import LivePage, make_server
from aiperf.errors import AiperfError
from aiperf.journal.run_files import RunFiles
from tests.journals import Scene, told, write_run
from tests.tables import ComesTo

TOKEN = "the-token-of-this-test"
SECONDS = 60.0  # for what takes milliseconds where nothing else runs


@contextmanager
def served(live: LivePage) -> Iterator[ThreadingHTTPServer]:
    with make_server(live, 0, TOKEN) as server:
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


def asked(
    server: ThreadingHTTPServer,
    path: str = f"/?token={TOKEN}",
    host: str = "localhost",
    method: str = "GET",
    more: str = "",
) -> bytes:
    request = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"
    with connected(server, request.encode("latin-1")) as client:
        return received(client)


def handlers() -> int:
    """Threads that answer a connection."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def wait_for(num_handlers: int) -> None:
    until = time.monotonic() + SECONDS
    while handlers() != num_handlers and time.monotonic() < until:
        time.sleep(0.02)
    assert handlers() == num_handlers


def test_the_run_is_shown_on_loopback_only_and_to_its_own_name_only(
    live: LivePage, capfd: pytest.CaptureFixture[str]
) -> None:
    """At any port: a tunnel may begin at another. A browser that turns away is worth no line."""
    with served(live) as server:
        assert server.server_address[0] == "127.0.0.1"
        page = asked(server)
        assert page.startswith(b"HTTP/1.0 200")
        assert b"sustained OPS" in page
        assert b"connect-src &#39;self&#39;" in page
        assert asked(server, f"/metrics?token={TOKEN}").rstrip().endswith(b"# EOF")
        assert asked(server, f"/../../etc/passwd?token={TOKEN}").startswith(b"HTTP/1.0 404")
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example:8321", ":8321"):
            answer = asked(server, host=host)
            assert answer.startswith(b"HTTP/1.0 403"), host
            assert answer.endswith(b"open this page as 127.0.0.1 or localhost or [::1]\n")
        for host in ("127.0.0.1:9000", "localhost:1", "[::1]:9000", "localhost"):
            assert asked(server, host=host).startswith(b"HTTP/1.0 200"), host
        for _ in range(3):
            request = f"GET /?token={TOKEN} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            with connected(server, request) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        assert asked(server).startswith(b"HTTP/1.0 200")
        assert capfd.readouterr().err == ""
        with pytest.raises(AiperfError, match="choose another with --port"):
            make_server(live, server.server_port, TOKEN)


def test_only_who_has_the_token_is_answered_and_head_as_get(
    live: LivePage, comes_to_what_was_read: ComesTo
) -> None:
    """As other users of a login node have not. The answer says where the address is."""

    def without_date(lines: bytes) -> list[bytes]:
        return [line for line in lines.splitlines() if not line.startswith(b"Date:")]

    def status(path: str, header: str = "") -> int:
        more = f"Authorization: {header}\r\n" if header else ""
        head, _, body = asked(server, path, more=more).partition(b"\r\n\r\n")
        found = int(head.split()[1])
        assert (found == 403) == (
            body
            == b"this page is for whoever has its token: open the whole address that `aiperf-hpc serve` has "
            b"printed\n"
        )
        answer = asked(server, path, method="HEAD", more=more)
        assert answer.endswith(b"\r\n\r\n"), "no body"
        assert without_date(answer[:-4]) == without_date(head)
        assert b"Referrer-Policy: no-referrer" in head
        assert f"Content-Length: {len(body)}".encode() in head
        return found

    with served(live) as server:
        comes_to_what_was_read("tokens.txt", {"status": status, "TOKEN": TOKEN})


def test_the_printed_address_is_answered_and_another_server_has_another(
    live: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed, answers = list[str](), list[bytes]()

    def open_it(server: ThreadingHTTPServer) -> None:
        thread = threading.Thread(target=ThreadingHTTPServer.serve_forever, args=(server, 0.05))
        thread.start()
        printed.append(output.getvalue().split()[-6])
        answers.append(asked(server, printed[-1].partition(str(server.server_port))[2]))
        server.shutdown()
        thread.join(SECONDS)

    monkeypatch.setattr(serve._Server, "serve_forever", open_it)
    monkeypatch.setattr(serve, "LivePage", lambda files: live)
    for _ in range(2):
        with redirect_stdout(StringIO()) as output:
            serve.serve.callback(live.files.directory, 0)  # type: ignore[misc]
    assert all(re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", each) for each in printed)
    assert len({each.partition("=")[2] for each in printed}) == 2
    assert all(answer.startswith(b"HTTP/1.0 200") for answer in answers)


def test_a_journal_that_is_gone_is_told_in_a_line(live: LivePage, tmp_path: Path) -> None:
    gone = RunFiles(tmp_path / "gone")
    shutil.copytree(live.files.directory, gone.directory)
    page = LivePage(gone)
    page.html()
    gone.journal.unlink()
    with pytest.raises(AiperfError, match=r"journal\.jsonl: No such file"):
        page.metrics()


def test_all_who_come_at_once_are_answered(live: LivePage) -> None:
    with served(live) as server, ThreadPoolExecutor(200) as clients:
        answers = list(clients.map(lambda _: asked(server), range(400)))
    assert {answer[:12] for answer in answers} <= {b"HTTP/1.0 200", b"HTTP/1.0 503"}
    assert sum(answer.startswith(b"HTTP/1.0 200") for answer in answers) >= serve.MOST_CONNECTIONS


def test_beyond_the_bound_nobody_gets_a_thread(live: LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(serve, "REQUEST_SECONDS", SECONDS)
    with served(live) as server, ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connected(server, b"GET / HT"))
        wait_for(4)
        answer = asked(server)
        assert answer.startswith(b"HTTP/1.0 503 Service Unavailable\r\n")
        assert answer.endswith(b"\r\n\r\n4 connections are open; try again in 60 s\n")
        assert handlers() == 4


def test_half_a_request_is_waited_for_so_long_and_no_longer(
    live: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "REQUEST_SECONDS", 2.0)
    with served(live) as server, connected(server, b"GET / HTTP/1.1\r\n") as client:
        assert received(client).endswith(b"no whole request in 2 s\n")
        wait_for(0)
        assert asked(server).startswith(b"HTTP/1.0 200")


def test_an_answer_that_nobody_takes_is_given_up(live: LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "ANSWER_SECONDS", 0.5)
    large = LivePage(live.files)
    large._page, large._next = "x" * (64 << 20), math.inf  # more than the system's buffers hold
    request = f"GET /?token={TOKEN} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with served(large) as server, connected(server, request, buffer=4096):
        wait_for(1)
        wait_for(0)
