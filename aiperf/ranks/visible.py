"""The number of accelerators that this process sees, found without importing torch here: a separate process
counts them, and only if a driver's device files exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from aiperf.errors import WorldError
from aiperf.scheduler_warning import WARNINGS, held

# Device files of the drivers of NVIDIA, AMD, Ascend and Intel.
DEVICE_FILES = ("nvidia[0-9]*", "kfd", "davinci[0-9]*", "dri/renderD*")
COUNT = "from aiperf.device import count_devices as count, first_kind; import sys; kind = sys.argv[1]; "
COUNT += "print(count(first_kind() if kind == 'auto' else kind))"
SECONDS = 300.0  # torch on a cold network file system


def visible_devices(kind: str, folder: Path = Path("/dev")) -> int:
    """Number of devices of the kind that torch sees; devices that the launcher hides do not count. A CPU is
    one."""
    if kind == "cpu" or not any(any(folder.glob(pattern)) for pattern in DEVICE_FILES):
        return 1
    command = [sys.executable, "-c", COUNT, kind]
    try:
        with held(*WARNINGS):
            answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
        return int(answer.stdout.split()[-1])
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise WorldError(f"cannot count the devices: {last}; try --devices 1") from None
    except subprocess.TimeoutExpired:
        raise WorldError(f"importing torch takes more than {SECONDS:.0f} s; check the file system") from None
