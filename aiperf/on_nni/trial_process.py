"""The process of a trial under NNI: a worker for this trial alone, which also reports its accuracies to
NNI."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from aiperf.device import bind_place
from aiperf.errors import WorldError
from aiperf.journal.run_files import RunFiles
from aiperf.on_nni.trial_messages import Given, ProcessBegan, call, hear, tell
from aiperf.parallel.parallel import Solo
from aiperf.training.worker import Worker
from aiperf.wire.messages import Setup, ToGroup, Validated, pack, unpack
from aiperf.wire.reports import Finished, FromGroup
from aiperf.wire.trial import State

log = logging.getLogger(__name__)


def train_one() -> int:
    """Trains the trial that NNI assigned to this process; returns the exit code. 1 for a trial that failed.
    Raises WorldError if the run is over."""
    import nni

    parameters: Any = nni.get_next_parameter()
    connection = call(RunFiles(Path(parameters["run"])))
    tell(connection, ProcessBegan(int(parameters["trial"])))
    given = hear(connection)
    if not isinstance(given, Given):
        raise WorldError(f"trial {parameters['trial']} is not expected; the run is over")
    channel = NniChannel(connection, nni)
    setup = channel.receive()
    assert isinstance(setup, Setup), setup
    device = bind_place(given.device, given.place)
    Worker(setup, channel, device, given.place, Solo()).serve()
    return int(channel.failed)


class NniChannel:
    """Channel to the master, which also reports accuracies to NNI; the best one is NNI's result. A trial that
    failed, or validated nothing, has no result, and the process of a failed one ends with exit code 1."""

    def __init__(self, connection: Connection, nni: Any) -> None:
        """`nni` is NNI's module."""
        self._connection, self._nni = connection, nni
        self._sending = threading.Lock()
        """The worker sends from several threads."""
        self._best: float | None = None
        """The best accuracy so far, which NNI takes for the trial's result."""
        self.failed = False
        """Whether the trial failed."""

    def send(self, message: FromGroup) -> None:
        """Sends a message to the master, and then reports an accuracy to NNI if the message has one."""
        with self._sending:
            self._connection.send_bytes(pack(message))
            if isinstance(message, Validated):
                accuracy = 1 - message.segment.error
                self._best = accuracy if self._best is None else max(self._best, accuracy)
                _report(self._nni.report_intermediate_result, accuracy)
            elif isinstance(message, Finished):
                self.failed = message.state is State.FAILED
                if self._best is not None and not self.failed:
                    _report(self._nni.report_final_result, self._best)

    def receive(self) -> ToGroup:
        """Waits for the next message. Raises EOFError if the master is gone."""
        with contextlib.suppress(ConnectionResetError):
            message: ToGroup = unpack(ToGroup, self._connection.recv_bytes())
            return message
        raise EOFError


def _report(report: Callable[[float], None], accuracy: float) -> None:
    """Reports an accuracy for NNI's page. When NNI is stopped, its manager closes the port for reports before
    it asks the trials to stop, so an error here must not make the trial fail."""
    try:
        report(accuracy)
    except OSError as error:  # as all errors of requests are
        log.warning("the accuracy %.4f was not reported to NNI: %s", accuracy, error)
