"""Detection of devices that a driver lists and torch does not see. Otherwise a run would measure the CPU
unnoticed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiperf import variables
from aiperf.errors import UnseenDevices
from aiperf.programs import ToolFailed, ask

TOOL_SECONDS = 10.0
"""Time limit in seconds for a driver's tool. A driver that must wake up its devices takes some seconds; a
broken one hangs forever."""
REMEDY = "install the matching build of torch, or use the processor with --device cpu"


@dataclass(frozen=True)
class VendorTool:
    """How a vendor's tool lists the devices of a host."""

    words: tuple[str, ...]
    """Arguments of the tool."""
    device: str
    """Regular expression that matches once per device in its output."""
    hidden_by: tuple[str, ...]
    """Environment variables by which a user chooses among these devices, or hides all of them."""


# The same tools as in .ci/choose_torch.py. Files are less reliable: /dev/nvidia* also exists for a job that
# was given no device, and /sys/class/kfd for the graphics unit of a laptop's CPU.
LISTED_BY: Mapping[str, VendorTool] = {
    "nvidia-smi": VendorTool(("--list-gpus",), r"(?m)^GPU \d+:", ("CUDA_VISIBLE_DEVICES",)),
    "rocm-smi": VendorTool(
        ("--showid",),
        r"GPU\[(\d+)\]",
        ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    ),
    "npu-smi": VendorTool(("info", "-l"), r"NPU ID\s*:\s*(\d+)", ("ASCEND_RT_VISIBLE_DEVICES",)),
    "xpu-smi": VendorTool(("discovery",), r"\|\s*(\d+)\s*\|\s*Device Name", ("ZE_AFFINITY_MASK",)),
}


def refuse_unseen(torch: str, environment: Mapping[str, str]) -> None:
    """Raises UnseenDevices if a driver lists devices, for a torch of that version that sees none.

    If a variable hides all devices of a vendor, that is the user's decision, and the tool is not called.
    Without any tool this takes no time. A tool that hangs also raises, because its driver may have any number
    of devices.
    """
    for tool, listing in LISTED_BY.items():
        if shutil.which(tool) is None or _hides_all(listing.hidden_by, environment):
            continue
        try:
            answer = ask((tool, *listing.words), TOOL_SECONDS)
        except ToolFailed as error:
            raise UnseenDevices(
                f"torch {torch} sees no device, and {tool} {error}",
                "have the driver checked, or use the processor with --device cpu",
            ) from None
        devices = set(re.findall(listing.device, answer.text))
        if answer.code == 0 and devices:
            counted = f"{len(devices)} device{'s' * (len(devices) > 1)}"
            raise UnseenDevices(f"{tool} lists {counted}, torch {torch} sees none", REMEDY)


def _hides_all(names: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a variable hides all devices. A driver reads the list up to the first entry that names no
    device, so an empty value, -1 and NoDevFiles hide all."""
    values = [variables.raw(environment, name) for name in names]
    first = [value.split(",")[0].strip() for value in values if value is not None]
    return any(not re.match(r"\d|GPU-|MIG-", word) for word in first)
