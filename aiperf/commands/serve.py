"""`serve`: a run in a browser, during the run.

Every user of a login node can connect to its loopback address, so each request must bring the token that is
printed as part of the address.
"""

from __future__ import annotations

import hmac
import math
import re
import secrets
import socket
import sys
import threading
from collections import deque
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import parse_qs

import click

from aiperf.commands.arguments import Whole, run_argument
from aiperf.commands.optional_libraries import extra
from aiperf.errors import AiperfError, JournalError
from aiperf.journal.run_files import RunFiles
from analysis.readings.live import Follower, Snapshot

LOOPBACK, PORT = "127.0.0.1", 8321
"""Address that only users of this host can reach, and the default port."""
TOKEN_BYTES = 24
"""Length of a token before it is written in base64: 192 random bits."""
NO_TOKEN = (
    "this page is for whoever has its token: open the whole address that `aiperf-hpc serve` has printed"
)
"""Answer to a request without the right token."""
NAMES = (LOOPBACK, "localhost", "[::1]")
"""Host names under which a browser may request the page; the last one is for a tunnel."""
LEAST_SECONDS = 5.0
"""Minimum time in seconds between two reads of the journal."""
SHARE_OF_TIME = 0.05
"""Maximum fraction of the time that is spent on making pages, because a login node has other users, and the
run uses the same disk."""

MOST_CONNECTIONS = 64
"""Maximum number of simultaneous connections, each with a thread; a page is sent in milliseconds."""
BURST_SECONDS = 0.25
"""Time in seconds that one more connection waits for one of them to end."""
BACKLOG = 1024
"""Number of connections that the system holds until they are accepted; Linux limits it to
net.core.somaxconn."""
REQUEST_SECONDS = 10.0
"""Time limit in seconds for a whole request to arrive. A browser sends it at once; a connection that a
browser opens in advance is closed."""
ANSWER_SECONDS = 30.0
"""Time limit in seconds for the client to receive an answer."""
LINGER_SECONDS = 2.0
"""Time in seconds after which a refused connection is closed."""


@click.command()
@run_argument
@click.option("--port", type=Whole(0, 65535), default=PORT, help="Port; 0: any free port.")
def serve(directory: Path, port: int) -> None:
    """Serve a live web page of a run, on the loopback address only.

    From another machine: ssh -t -L 8321:127.0.0.1:8321 LOGIN_NODE aiperf-hpc serve RUN, then open the
    printed address. Only whoever has its token is answered. Stop it with Ctrl-C. /metrics has the same
    figures for Prometheus.
    """
    live = LivePage(RunFiles(directory))
    live.html()  # a run that cannot be read fails now, not in the browser
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with make_server(live, port, token) as server:
        click.echo(f"{address(server, token)} shows {directory}; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):  # the way to end it
            server.serve_forever()


def address(server: ThreadingHTTPServer, token: str) -> str:
    """The address of the page, with its token."""
    return f"http://{LOOPBACK}:{server.server_port}/?token={token}"


class LivePage:
    """The page of a run. It is made at most every few seconds, once for all clients."""

    def __init__(self, files: RunFiles) -> None:
        """Reads nothing yet; the first request does."""
        self.files = files
        self._follower = Follower(files)
        self._lock = threading.Lock()
        self._page = ""
        self._wait, self._next = LEAST_SECONDS, 0.0

    def html(self) -> str:
        """The page as HTML. Raises JournalError if the journal cannot be read, or has no line yet. A request
        that comes earlier gets the page that was made last."""
        with extra("report"):
            from analysis.pages.live_page import live_html
        with self._lock:
            begun = monotonic()
            if begun >= self._next:
                self._follower.update()
                if not self._follower.replay.lines:
                    raise JournalError(
                        f"{self.files.journal} has no complete line yet; try again in a moment"
                    )
                self._page = live_html(self._snapshot(), self._follower.replay, self._wait)
                self._wait = max(LEAST_SECONDS, (monotonic() - begun) / SHARE_OF_TIME)
                self._next = monotonic() + self._wait
            return self._page

    def metrics(self) -> str:
        """The figures in the OpenMetrics format. Raises JournalError as `html`."""
        with extra("report"):
            from analysis.exports.openmetrics import live_openmetrics_text
        self.html()
        with self._lock:
            return live_openmetrics_text(self._snapshot())

    def _snapshot(self) -> Snapshot:
        """The run as it is now; called with the lock held."""
        return self._follower.snapshot(self._follower.silent_seconds)


class _Server(ThreadingHTTPServer):
    """An HTTP server with a thread for each connection, a maximum number of connections, and a time limit for
    each."""

    request_queue_size = BACKLOG

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        """`address` is host and port, where port 0 takes any free one."""
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._is_full = False
        self._due: dict[socket.socket, float] = {}
        """Time by which the whole request must have arrived, by connection that has a thread."""
        self._refused: deque[tuple[float, socket.socket]] = deque()
        """Refused connections, each with the time at which it is closed. They are not closed at once, because
        a client that is still sending would lose the answer."""
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread for a connection, or refuses it if too many are open."""
        # The first connection beyond the maximum waits, which lets others finish; if none does, further ones
        # do not wait.
        self._is_full = not self._slots.acquire(timeout=0 if self._is_full else BURST_SECONDS)
        if self._is_full:
            self._refuse(request)
            return
        self._due[request] = monotonic() + REQUEST_SECONDS
        super().process_request(request, client_address)

    def heard(self, request: socket.socket) -> None:
        """The whole request has arrived; the answer has a separate time limit."""
        self._due[request] = math.inf

    def shutdown_request(self, request: Any) -> None:
        """Frees the place of a connection that has a thread; refused ones have none."""
        if self._due.pop(request, None) is not None:
            self._slots.release()
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Enforces the time limits; called between two requests, and twice per second."""
        now = monotonic()
        for request in [request for request, due in list(self._due.items()) if due < now]:
            _say(request, HTTPStatus.REQUEST_TIMEOUT, f"no whole request in {REQUEST_SECONDS:g} s")
            with suppress(OSError):
                request.shutdown(socket.SHUT_RD)  # its thread reads the end, and closes it
        while self._refused and (self._refused[0][0] < now or len(self._refused) > BACKLOG):
            self._refused.popleft()[1].close()

    def server_close(self) -> None:
        """Also closes refused connections that are still open."""
        super().server_close()
        for _, request in self._refused:
            request.close()

    def _refuse(self, request: socket.socket) -> None:
        """Answers that the server is busy, without reading the request."""
        text = f"{MOST_CONNECTIONS} connections are open; try again in {REQUEST_SECONDS:g} s"
        _say(request, HTTPStatus.SERVICE_UNAVAILABLE, text)
        self._refused.append((monotonic() + LINGER_SECONDS, request))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a client that has closed the connection before the page is sent."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _say(request: socket.socket, status: HTTPStatus, text: str) -> None:
    """Sends a short answer without waiting, because it fits into the system's buffer."""
    head = f"HTTP/1.0 {status.value} {status.phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    head += f"Content-Length: {len(text) + 1}\r\nConnection: close\r\n\r\n"
    with suppress(OSError):  # it is gone already
        request.send(f"{head}{text}\n".encode(), socket.MSG_DONTWAIT)
        request.shutdown(socket.SHUT_WR)


def make_server(live: LivePage, port: int, token: str) -> ThreadingHTTPServer:
    """Listens on the loopback address. Raises AiperfError for a port that is taken."""

    class Handler(BaseHTTPRequestHandler):
        timeout = ANSWER_SECONDS

        def do_GET(self) -> None:
            """Answers with the page, the figures, or the reason why there is neither."""
            assert isinstance(self.server, _Server)
            self.server.heard(self.connection)
            path, _, query = self.path.partition("?")
            try:
                if name := self._foreign_name():
                    self._answer(HTTPStatus.FORBIDDEN, "text/plain", name)
                elif not _is_token(_token_of(query, self.headers.get("Authorization", "")), token):
                    self._answer(HTTPStatus.FORBIDDEN, "text/plain", f"{NO_TOKEN}\n")
                elif path == "/":
                    self._answer(HTTPStatus.OK, "text/html", live.html())
                elif path == "/metrics":
                    kind = "application/openmetrics-text; version=1.0.0"
                    self._answer(HTTPStatus.OK, kind, live.metrics())
                else:
                    self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there are / and /metrics\n")
            except AiperfError as error:
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", f"{error}\n")

        def do_HEAD(self) -> None:
            self.do_GET()  # which leaves the page itself out

        def _foreign_name(self) -> str:
            """Why the host name of the request is refused; empty if it is ours.

            Another web site could resolve its own name to this address (DNS rebinding), so only our own names
            are answered; at any port, because a tunnel may use another one.
            """
            name = re.sub(r":\d+$", "", self.headers.get("Host", ""))
            return "" if name in NAMES else f"open this page as {' or '.join(NAMES)}\n"

        def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")  # the address has the token
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Prints nothing for a request."""

    try:
        return _Server((LOOPBACK, port), Handler)
    except OSError as error:
        raise AiperfError(
            f"port {port}: {error.strerror}; choose another with --port, or 0 for any free port"
        ) from None


def _token_of(query: str, authorization: str) -> str:
    """The token of a request, from its address or from its header `Authorization: Bearer TOKEN`; empty if it
    has none."""
    kind, _, value = authorization.partition(" ")
    if kind.lower() in ("bearer", "token"):
        return value.strip()
    return parse_qs(query).get("token", [""])[0]


def _is_token(given: str, token: str) -> bool:
    """Compares in a time that says nothing about how many characters are right."""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())
