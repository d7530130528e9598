"""Test processes that die or hang: their test fails by name, the others go on, and pytest ends. A suite of
which every test was skipped does not pass."""

from __future__ import annotations

import _thread
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Generator

import pytest
from pytest_timeout import Settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# In a test's own limits. pytest-timeout's signal is handled between two steps of Python, so it does not end a
# hang inside C or in a clean-up; the process is ended, and says what each of its threads was doing.
KILLED_AFTER = 1.5
# Of no news from any test process: one hangs where no test's limit holds, while it starts or collects. Limits
# of single tests in the suites of several processes are at most five times the limit of all.
SILENT_AFTER = 8.0
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)  # before a test's output is captured
    if not hasattr(config, "workerinput"):  # which the processes have that xdist starts
        # A shell starts background jobs with it ignored, and then `interrupt_main` does nothing.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        config.pluginmanager.register(Watch())


def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> None:
    limit = settings.timeout * KILLED_AFTER
    faulthandler.dump_traceback_later(limit, exit=True, file=item.config.stash[STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


class ByFile(LoadFileScheduling):
    """`--dist loadfile`, whose processes may die.

    pytest-xdist 3.8.0 hands a dead process's files on with four faults (github.com/pytest-dev/pytest-xdist):
    the test that killed it is run again until no restart is left (#1371); a file with no test left (#1323)
    and a single test (#1327) are waited for without end; a process that still collects is given work (#1362).
    """

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that the process died in, or None."""
        if self.collection is None:  # nothing is distributed yet: its replacement is to be waited for
            self.registered_collections.pop(node, None)
        files = self.assigned_work.pop(node)
        left = [(file, test) for file, tests in files.items() for test, done in tests.items() if not done]
        for file, test in left[1:]:
            self.workqueue.setdefault(file, {})[test] = False
        for other in self.nodes:
            self._reschedule(other)
        return left[0][1] if left else None

    def _reschedule(self, node: WorkerController) -> None:
        """A process begins a test when it knows the next one, or that there is none."""
        if node.shutting_down or node not in self.registered_collections:
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) <= 2:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()


class Watch:
    """What has begun and not ended, and when there was news last."""

    def __init__(self) -> None:
        self.running: dict[str, None] = {}
        self.news = time.monotonic()
        self.skipped = self.ran = False

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.running[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.running.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.news = time.monotonic()
        self.skipped |= report.skipped
        self.ran |= report.when == "call" and not report.skipped
        if report.when not in ("setup", "call", "teardown"):  # the one that xdist makes of a death
            self.running.pop(report.nodeid, None)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A suite, chosen by its mark, of which every test was skipped lacks what it needs."""
        if session.config.option.markexpr and self.skipped and not self.ran and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.running:
            terminalreporter.section("had not ended")
            for nodeid in self.running:
                terminalreporter.write_line(nodeid)

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> ByFile | None:
        threading.Thread(target=self._end_silence, args=[config], name="silence", daemon=True).start()
        return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None

    def _end_silence(self, config: pytest.Config) -> None:
        """Interrupts the process that waits for all others, as a person would."""
        limit = SILENT_AFTER * float(config.getini("timeout"))
        while (silent := time.monotonic() - self.news) < limit:
            time.sleep(limit - silent)
        terminal = config.pluginmanager.getplugin("terminalreporter")
        terminal.write_line(f"\nno test process has reported anything for {silent:.0f} s: ending them all")
        terminal.flush()
        _thread.interrupt_main()
