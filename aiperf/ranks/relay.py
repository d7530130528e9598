"""A rank that is not the master: it starts a worker process and relays its messages over MPI.

Training runs in a child of the rank, so that whatever kills a trial's process (a fault in a library, or the
out-of-memory killer, which takes the largest process) leaves the rank alive, and with it the job, on every
MPI. Only Horovod over MPI must train in the rank itself.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.pretending.assumptions import Assumptions
from aiperf.ranks.link import Link
from aiperf.ranks.post import MpiChannel, Post
from aiperf.ranks.rank_worker import RankWorker, worker_at
from aiperf.ranks.shipping import LOGS_SECONDS
from aiperf.wire.layout import Bye, Lost, Place
from aiperf.wire.messages import FromGroup, Quit, Setup, ToGroup, pack, unpack

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # between two checks whether the master is alive, while no message arrives
RANKS_WITH_A_LOG = 64  # with more ranks, those of a host share one log


def serve(link: Link, device: str, backend: str, pretend: Assumptions | None = None) -> None:
    """Serves the master from this rank's first message to its last. Ends the process if the master is
    gone."""
    post = Post(link, device, pretend)
    try:
        while post.place is None:
            if isinstance(post.receive(1.0), Quit):
                break
        else:
            if backend == "horovod":
                _train_here(post, post.place, device)
            else:
                _Relay(post, post.place, device).run()
    except EOFError:
        log.error("rank %d: the master is gone", link.rank)
        link.abandon()
        os._exit(1)
    sent = post.send_log()
    link.send(0, 0, pack(Bye()))
    link.flush(LOGS_SECONDS if sent else 5.0)


class _Relay:
    """Passes messages on between the master and the worker process."""

    def __init__(self, post: Post, place: Place, device: str) -> None:
        self.post, self.place, self.device = post, place, device
        self.worker: RankWorker | None = None
        self.incarnation = 0

    def run(self) -> None:
        """Relays until Quit."""
        try:
            while not isinstance(message := self.post.receive(LOOK_SECONDS, self.worker), Quit):
                if message is not None:
                    self._down(message)
                if self.worker is not None:
                    self._up(self.worker)
            if self.worker is not None:
                self.worker.send(pack(message))
                self.worker.end()
                self.worker = None
        finally:
            self._kill()

    def _down(self, message: ToGroup) -> None:
        if self.post.tag > self.incarnation:
            self.incarnation = self.post.tag
            self._kill()
            if isinstance(message, Setup):
                self._start()
        if self.worker is not None:
            self.worker.send(pack(message))

    def _start(self) -> None:
        try:
            self.worker = worker_at(self.place, self.device, self._log(), self.post.pretend)
        except OSError as error:
            self.post.send(Lost(f"no worker can be started: {error}"))

    def _up(self, worker: RankWorker) -> None:
        try:
            data = worker.receive(0.0)
        except EOFError:
            self.post.send(Lost(worker.obituary()))
            self._kill()
            return
        if data is not None:
            self.post.send(unpack(FromGroup, data))

    def _kill(self) -> None:
        if self.worker is not None:
            self.worker.kill()
            self.worker = None

    def _log(self) -> Path:
        files, host = self.post.files, socket.gethostname()
        assert files is not None
        return files.log(host, self.place.rank if self.post.link.size <= RANKS_WITH_A_LOG else None)


def _train_here(post: Post, place: Place, device: str) -> None:
    from aiperf.ranks.in_rank import train_in_rank

    channel = MpiChannel(post)
    try:
        train_in_rank(post.link, channel, place, device)
    except AiperfError as error:
        post.send(Lost(str(error)))
        channel.wait_for_quit()  # which the worker's listener may take
