"""The sub-command that shows a run in a browser while it goes on."""

from __future__ import annotations

import re
import sys
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any

import click

from aiperf.commands.extras import extra
from aiperf.commands.options import run_argument
from aiperf.errors import AiperfError, JournalError
from aiperf.files import RunFiles
from analysis.readings.live import Follower, Snapshot

LOOPBACK, PORT = "127.0.0.1", 8321
NAMES = (LOOPBACK, "localhost", "[::1]")
"""By which a browser may ask; the last is where a tunnel may begin."""
LEAST_SECONDS = 5.0
"""Between two looks at the journal."""
SHARE_OF_TIME = 0.05
"""At most so much of the time is spent on pages: a login node has other users, the run its disk."""


@click.command()
@run_argument
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any free.")
def serve(directory: Path, port: int) -> None:
    """Show a run as a page that refreshes itself, on this machine's loopback address only.

    From elsewhere: ssh -t -L 8321:127.0.0.1:8321 LOGIN_NODE aiperf-hpc serve RUN, then open
    http://127.0.0.1:8321/. Ends by Ctrl-C. /metrics has the same figures for Prometheus.
    """
    live = LivePage(RunFiles(directory))
    live.html()  # a run that cannot be read is told now, not in the browser
    with make_server(live, port) as server:
        click.echo(f"http://{LOOPBACK}:{server.server_port}/ shows {directory}; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):  # the way to end it
            server.serve_forever()


class LivePage:
    """The page of a run, made anew at most every few seconds, and for all who ask at once."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self._follower = Follower(files)
        self._lock = threading.Lock()
        self._made = ""
        self._wait, self._next = LEAST_SECONDS, 0.0

    def html(self) -> str:
        """Raises JournalError."""
        with extra("report"):
            from analysis.pages.live_page import live_html
        with self._lock:
            begun = monotonic()
            if begun >= self._next:
                self._follower.update()
                if not self._follower.replay.lines:
                    raise JournalError(f"{self.files.journal} has no whole line yet; try again in a moment")
                self._made = live_html(self._snapshot(), self._follower.replay, self._wait)
                self._wait = max(LEAST_SECONDS, (monotonic() - begun) / SHARE_OF_TIME)
                self._next = monotonic() + self._wait
            return self._made

    def metrics(self) -> str:
        """Raises JournalError."""
        with extra("report"):
            from analysis.exports.openmetrics import live_openmetrics_text
        self.html()
        with self._lock:
            return live_openmetrics_text(self._snapshot())

    def _snapshot(self) -> Snapshot:
        return self._follower.snapshot(self._follower.silent_seconds)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser may turn away before the page is sent: that is worth no line."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def make_server(live: LivePage, port: int) -> ThreadingHTTPServer:
    """Listens on the loopback address. Raises AiperfError for a port that is taken."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page elsewhere could point its own name at this address: only our own names are answered,
            # at any port, for a tunnel may begin at another one.
            name = re.sub(r":\d+$", "", self.headers.get("Host", ""))
            if name not in NAMES:
                self._answer(HTTPStatus.FORBIDDEN, "text/plain", f"open this page as {' or '.join(NAMES)}\n")
                return
            try:
                if self.path == "/":
                    self._answer(HTTPStatus.OK, "text/html", live.html())
                elif self.path == "/metrics":
                    kind = "application/openmetrics-text; version=1.0.0"
                    self._answer(HTTPStatus.OK, kind, live.metrics())
                else:
                    self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there are / and /metrics\n")
            except AiperfError as error:
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", f"{error}\n")

        def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Every request is one of ours; none is worth a line."""

    try:
        return _Server((LOOPBACK, port), Handler)
    except OSError as error:
        raise AiperfError(f"port {port}: {error.strerror}; choose another by --port, or 0 for any") from None
