"""A tuner for NNI's dispatcher: it starts the master, and passes on the trials that the master proposes.

It has the methods of `nni.tuner.Tuner` that the dispatcher calls, and needs nothing else of NNI.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from aiperf.errors import WorldError
from aiperf.journal.run_files import RunFiles
from aiperf.on_nni.trial_messages import TrialDescribed, TrialWanted, Word, call, hear, tell

START_SECONDS = 300.0
"""Time in seconds for the master to open its socket."""
LOOK_SECONDS = 0.2
"""Time in seconds between two checks whether NNI stops."""
STOP_SECONDS = 300.0
"""Time limit in seconds for a stopped run to close its trials. The master has its own time limits, which on a
busy machine may take minutes. NNI's manager waits 30 s, and then ends without this process."""


class SearchTuner:
    """A tuner for one run, which exists as long as the dispatcher."""

    def __init__(self, command: list[str], folder: str) -> None:
        """`command` are the arguments of `aiperf-hpc nni master`, the directory last; paths are relative to
        `folder`."""
        self._files, self._folder = RunFiles(Path(command[-1])), folder
        self._words = [sys.executable, "-m", "aiperf", "nni", "master", *command]
        self._started: subprocess.Popen[bytes] | None = None

    def update_search_space(self, space: Any) -> None:
        """Starts the master. NNI calls this method first; the search space itself is in the configuration of
        the run. The master is not started earlier, because until this call the dispatcher connects to NNI's
        manager, which waits only ten seconds for it."""
        if self._started is None:
            # Its output goes to NNI's log of the dispatcher.
            # With PYTHONFAULTHANDLER a master that has to be killed says there where it was.
            self._started = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            )

    def generate_multiple_parameters(
        self, identifiers: list[int], st_callback: Any, **_: Any
    ) -> list[dict[str, Any]]:
        """The next trials; fewer than requested if the run is over or stopped.

        `st_callback` is a method of NNI's dispatcher, which calls `_on_exit` only after this has returned
        (nni/runtime/msg_dispatcher_base.py). So this checks for a stop while the master has no trial to
        propose, as before the clock starts; otherwise the run would continue after NNI has ended.
        """
        proposed = []
        for _identifier in identifiers:
            answer = self._next(lambda: bool(st_callback.__self__.stopping))
            if not isinstance(answer, TrialDescribed):
                break
            proposed.append(dict(answer.parameters))
        return proposed

    def receive_trial_result(self, *_: Any, **__: Any) -> None:
        """Does nothing, because the trial itself reports to the master."""

    trial_end = receive_trial_result
    import_data = receive_trial_result
    save_checkpoint = load_checkpoint = receive_trial_result  # the journal is the run

    def _on_exit(self) -> None:
        """Ends the run at `nnictl stop`, with a result for the work that was done."""
        master = self._started
        if master is not None and master.poll() is None:
            master.terminate()
            try:
                master.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                master.send_signal(signal.SIGABRT)
                master.wait()

    _on_error = _on_exit

    def _next(self, stopping: Callable[[], bool]) -> Word | None:
        """The master's answer; None if NNI stops before it arrives. Raises WorldError, or EOFError, if the
        master has ended."""
        connection = self._call(stopping)
        if connection is None:
            return None
        with connection:
            tell(connection, TrialWanted())
            while not connection.poll(LOOK_SECONDS):
                if stopping():
                    return None
            return hear(connection)

    def _call(self, stopping: Callable[[], bool]) -> Connection | None:
        """A connection to the master, once it listens; None if NNI stops before. Raises WorldError if the
        master has ended."""
        until = time.monotonic() + START_SECONDS
        while not stopping():
            try:
                return call(self._files)
            except WorldError:
                if self._started is None or self._started.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(LOOK_SECONDS)
        return None
