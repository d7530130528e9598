"""The sub-command that shows a run in a browser while it goes on."""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic

import click

from aiperf.commands.extras import extra
from aiperf.errors import AiperfError, JournalError
from aiperf.files import RunFiles
from analysis.live import Follower, Snapshot

__all__ = ["LivePage", "make_server", "serve"]

LOOPBACK, PORT = "127.0.0.1", 8321
LEAST_SECONDS = 5.0
"""Between two looks at the journal."""
SHARE_OF_TIME = 0.05
"""At most so much of the time is spent on pages: a login node has other users, the run its disk."""


@click.command()
@click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any free.")
def serve(directory: Path, port: int) -> None:
    """Show a run as a page that refreshes itself, on this machine's loopback address only.

    From elsewhere: ssh -L 8321:127.0.0.1:8321 LOGIN_NODE, then open http://127.0.0.1:8321/. Ends by
    Ctrl-C. /metrics has the same figures for Prometheus.
    """
    live = LivePage(RunFiles(directory))
    live.html()  # a run that cannot be read is told now, not in the browser
    with make_server(live, port) as server:
        click.echo(f"http://{LOOPBACK}:{server.server_port}/ shows {directory}; Ctrl-C ends it")
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
            from analysis.live_page import live_html
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
            from analysis.openmetrics import live_openmetrics_text
        self.html()
        with self._lock:
            return live_openmetrics_text(self._snapshot())

    def _snapshot(self) -> Snapshot:
        return self._follower.snapshot(self._follower.silent_seconds)


def make_server(live: LivePage, port: int) -> ThreadingHTTPServer:
    """Listens on the loopback address. Raises AiperfError for a port that is taken."""

    class Handler(BaseHTTPRequestHandler):
        server: ThreadingHTTPServer

        def do_GET(self) -> None:
            # A page elsewhere could point its own name at this address: only our own names are answered.
            own = {f"{name}:{self.server.server_port}" for name in (LOOPBACK, "localhost")}
            if self.headers.get("Host") not in own:
                self._answer(HTTPStatus.FORBIDDEN, "text/plain", "this is not the address of this page\n")
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
        return ThreadingHTTPServer((LOOPBACK, port), Handler)
    except OSError as error:
        raise AiperfError(f"port {port}: {error.strerror}; choose another by --port, or 0 for any") from None
