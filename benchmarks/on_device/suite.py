"""`aiperf-hpc doctor`, and the tests of this repository that ask a real device."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, figures, row

NEEDED = ("pytest", "pytest_timeout", "xdist", "hypothesis")
MARKED = {"cuda": "gpu", "npu": "npu"}
NO_TESTS = 5  # pytest's exit code where none was selected
LENIENT = ("-W", "default")
"""A warning of another torch than the one of the tests is no fault of the device."""
ON_CPU = ("tests/aiperf/device/test_devices.py", "-k", "TestCpu")


def measure(setting: Setting) -> Figures:
    """A test that fails is a fault, and so is a doctor who finds a failure. Without pytest there are none."""
    command = [sys.executable, "-m", "aiperf", "doctor", "--device", setting.kind, "--devices", "1"]
    doctor = subprocess.run(command, capture_output=True, text=True)
    rows = [row("doctor", "fit" if doctor.returncode == 0 else "found a failure", "", "fit", "exit code 0")]
    faults = [] if doctor.returncode == 0 else [f"doctor: {_last(doctor.stdout + doctor.stderr)}"]
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        rows.append(row("tests", f"not run: {', '.join(missing)} not installed"))
        return figures(rows, faults=faults, doctor=doctor.stdout.splitlines())
    words = ("-m", MARKED[setting.kind], "tests/aiperf") if setting.kind in MARKED else ON_CPU
    if setting.kind not in (*MARKED, "cpu"):
        rows.append(row("tests", f"there are none for a real {setting.kind} device"))
        return figures(rows, faults=faults, doctor=doctor.stdout.splitlines())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *LENIENT, *words]
    tested = subprocess.run(command, capture_output=True, text=True)
    print(tested.stdout, tested.stderr, sep="\n", flush=True)
    rows.append(row("tests", _last(tested.stdout)))
    if tested.returncode == NO_TESTS:
        rows.append(row("tests", "none was selected"))
    elif tested.returncode:
        faults.append(f"tests: {_last(tested.stdout + tested.stderr)}")
    return figures(rows, faults=faults, doctor=doctor.stdout.splitlines(), tests=tested.stdout.splitlines())


def _last(output: str) -> str:
    """The last line of an output."""
    return (output.strip().splitlines() or ["no output"])[-1]
