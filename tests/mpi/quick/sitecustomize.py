"""On PYTHONPATH it shortens what every process measures, and what `doctor` examines: tests wait for other
things. Of the control a processor then does the smallest size only, with two examples.

With AIPERF_TEST_BUSY set, a worker that gets SIGRTMIN starts a busy loop in its own session. With
AIPERF_TEST_FLIP="3:1" the device of rank 3 gets one bit of one product of each lap wrong from its second
device check on, and says so on its standard error.
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
    "aiperf.proposing.plan": {"MEASURING_SECONDS": (0.2, 0.2), "COUPLED_SECONDS": 10.0},
    "aiperf.measuring.ceiling": {
        "SIDES": {"cpu": (64,)},
        "COPY_BYTES": {"cpu": 1 << 20},
        "SUM_BYTES": 1 << 16,
    },
    # A fault of oneDNN is looked for in a process that imports torch.
    "aiperf.doctor.host_report": {
        "FILE_BYTES": 1 << 20,
        "APPENDS": 2,
        "ONEDNN_PROGRAM": "import os, sys; os.write(int(sys.argv[1]), b'startedsound')",
    },
    "aiperf.tasks.images.task": {},
}


CHECK = "aiperf.measuring.device_check"
FLIP = os.environ.get("AIPERF_TEST_FLIP", "")


def _flip(module: ModuleType) -> None:
    """One bit is wrong in the first product of each lap, from the stated check on."""
    rank, first = map(int, FLIP.split(":"))
    check, laps_of, product = module.check_device, module.laps_of, module._product
    state = {"checks": 0, "products": 0}

    def check_device(device, format, number, seconds):  # type: ignore[no-untyped-def]
        state["wrong"] = number == rank and state["checks"] >= first
        state["checks"] += 1
        if state["wrong"]:
            print(f"AIPERF_TEST_FLIP={FLIP}: a test gets one bit wrong on rank {rank}", file=sys.stderr)
        return check(device, format, number, seconds)

    def laps(*given):  # type: ignore[no-untyped-def]
        lap = laps_of(*given)

        def once():  # type: ignore[no-untyped-def]
            state["products"] = 0
            return lap()

        return once

    def multiply(*given):  # type: ignore[no-untyped-def]
        found = product(*given)
        if state["wrong"] and not state["products"]:
            numbers = found.data.view(-1)
            numbers[0] = -numbers[0]  # its sign
        state["products"] += 1
        return found

    module.check_device, module.laps_of, module._product = check_device, laps, multiply


class _Short(importlib.abc.MetaPathFinder):
    """Finds a module as usual, and changes its constants when it has run."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name not in SHORT and (name != CHECK or not FLIP):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def run_and_shorten(module: ModuleType) -> None:
            run(module)
            vars(module).update(SHORT.get(name, {}))
            if name == "aiperf.tasks.images.task":
                object.__setattr__(module.IMAGES.control, "climb", ((32, 2),))
            if name == CHECK:
                _flip(module)

        spec.loader.exec_module = run_and_shorten  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Short())


def _busy(number: int, frame: object) -> None:
    subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])


if os.environ.get("AIPERF_TEST_BUSY") and "aiperf.training.worker_process" in sys.orig_argv:
    signal.signal(signal.SIGRTMIN, _busy)
