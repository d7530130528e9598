"""On PYTHONPATH it shortens the ceiling and the control of every process: tests wait for other things. Of the
control a processor then does the smallest size only.

With AIPERF_TEST_BUSY set, a worker that gets SIGUSR2 starts a busy loop in its own session.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import signal
import subprocess
import sys
from types import ModuleType

SHORT = {
    "aiperf.proposing.plan": {"MEASURING_SECONDS": (0.2, 0.2)},
    "aiperf.measuring.ceiling": {
        "SIDES": {"cpu": (64,)},
        "COPY_BYTES": {"cpu": 1 << 20},
        "SUM_BYTES": 1 << 16,
    },
}


class _Short(importlib.abc.MetaPathFinder):
    """Finds a module as usual, and changes its constants when it has run."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name not in SHORT:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def run_and_shorten(module: ModuleType) -> None:
            run(module)
            vars(module).update(SHORT[name])

        spec.loader.exec_module = run_and_shorten  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Short())


def _busy(number: int, frame: object) -> None:
    subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])


if os.environ.get("AIPERF_TEST_BUSY") and "aiperf.training.worker_process" in sys.orig_argv:
    signal.signal(signal.SIGUSR2, _busy)
