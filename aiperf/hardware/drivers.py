"""What a host shows of accelerators without a vendor's library: drivers, device files, PCI bus, and tools.

None of them suffices alone. A job or a container that was given no device still sees the driver of its host
in /sys/module, and a job often the device files, too; and the drivers of AMD and Intel also serve the
graphics unit of a laptop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nas.bounded import system_text


@dataclass(frozen=True)
class VendorTool:
    """How a vendor's tool lists the devices of a host."""

    words: tuple[str, ...]
    """Arguments of the tool."""
    device: str
    """Regular expression that matches once per device in its output."""


@dataclass(frozen=True)
class Vendor:
    """One vendor's accelerators."""

    name: str
    tools: Mapping[str, VendorTool]
    """Tools by name; the first one that is installed and lists devices is believed."""
    hidden_by: tuple[str, ...]
    """Environment variables by which a user chooses among these devices, or hides all of them."""
    modules: tuple[str, ...]
    """Names of the driver's kernel modules, as patterns below /sys/module. A driver that is built into the
    kernel has its folder there, too, but no line in /proc/modules."""
    files: tuple[str, ...]
    """Device files, as patterns below /dev. A process that was given a device has a file of each."""
    pci_vendor: int
    pci_classes: tuple[int, ...]
    """Classes of its accelerators on the PCI bus: 0x0300 and 0x0302 draw, 0x0380 is another display
    controller, 0x1200 a processing accelerator."""
    is_graphics: bool = False
    """Whether driver and device files are also those of a processor's own graphics unit."""


@dataclass(frozen=True)
class Traces:
    """What the kernel shows of one vendor's accelerators."""

    driver: bool
    """Whether the driver is loaded, on this host, if this is a container."""
    files: tuple[tuple[Path, ...], ...]
    """Device files, for each pattern of the vendor."""
    on_bus: tuple[str, ...]
    """Addresses of its accelerators on the PCI bus."""

    @property
    def has_files(self) -> bool:
        return all(self.files)


# The tools are the same as in .ci/choose_torch.py. An MI300 is of class 0x1200, an MI250 of 0x0380. A Radeon
# is of 0x0300, as the graphics unit of a processor, from which it cannot be told on the bus. Huawei also
# makes the 0x0300 of server boards. Of Intel, what is on bus 0 is a part of the processor. The names of
# Ascend's modules are those of its packages; no device has confirmed them, but its device files suffice.
VENDORS = (
    Vendor(
        "NVIDIA",
        {"nvidia-smi": VendorTool(("--list-gpus",), r"(?m)^GPU \d+:")},
        ("CUDA_VISIBLE_DEVICES",),
        ("nvidia",),
        ("nvidia[0-9]*",),
        0x10DE,
        (0x0300, 0x0302),
    ),
    Vendor(
        "AMD",
        {
            "rocm-smi": VendorTool(("--showid",), r"GPU\[(\d+)\]"),
            "amd-smi": VendorTool(("list",), r"(?m)^GPU: (\d+)"),
        },
        ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        ("amdgpu",),
        ("kfd", "dri/renderD*"),
        0x1002,
        (0x0302, 0x0380, 0x1200),
        is_graphics=True,
    ),
    Vendor(
        "Ascend",
        {"npu-smi": VendorTool(("info", "-l"), r"NPU ID\s*:\s*(\d+)")},
        ("ASCEND_RT_VISIBLE_DEVICES",),
        ("drv_davinci*", "asdrv_*"),
        ("davinci[0-9]*",),
        0x19E5,
        (0x1200,),
    ),
    Vendor(
        "Intel",
        {"xpu-smi": VendorTool(("discovery",), r"\|\s*(\d+)\s*\|\s*Device Name")},
        ("ZE_AFFINITY_MASK",),
        ("i915", "xe"),
        ("dri/renderD*",),
        0x8086,
        (0x0300, 0x0302, 0x0380),
        is_graphics=True,
    ),
)
TOOLS: Mapping[str, VendorTool] = {tool: how for vendor in VENDORS for tool, how in vendor.tools.items()}
"""All tools, by name."""
OF_PROCESSOR = re.compile(r"[0-9a-f]{4,}:00:")
"""Addresses on bus 0 of any domain."""


def find_traces(vendor: Vendor, root: Path) -> Traces:
    """The traces of one vendor's devices on the host whose file systems are at `root`."""
    modules = root / "sys/module"
    return Traces(
        driver=any(next(modules.glob(pattern), None) for pattern in vendor.modules),
        files=tuple(tuple(_files(vendor, pattern, root)) for pattern in vendor.files),
        on_bus=tuple(_on_bus(vendor, root)),
    )


def _files(vendor: Vendor, pattern: str, root: Path) -> Iterator[Path]:
    """Device files. A file of /dev/dri is any vendor's: whose it is, and on which bus, is in /sys."""
    for path in sorted((root / "dev").glob(pattern)):
        device = root / "sys/class/drm" / path.name / "device"
        if path.parent.name != "dri" or _is_accelerator(vendor, device):
            yield path


def _on_bus(vendor: Vendor, root: Path) -> Iterator[str]:
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        kind = _number(device / "class") >> 8  # the last byte is the programming interface
        if kind in vendor.pci_classes and _is_accelerator(vendor, device):
            yield device.name


def _is_accelerator(vendor: Vendor, device: Path) -> bool:
    """Whether a PCI device is of this vendor, and no part of an Intel processor."""
    if _number(device / "vendor") != vendor.pci_vendor:
        return False
    return vendor.name != "Intel" or not OF_PROCESSOR.match(device.resolve().name)


def _number(path: Path) -> int:
    """A number in a file of /sys; 0 if it cannot be read, because containers hide some of them."""
    try:
        return int(system_text(path).strip(), 16)
    except ValueError:
        return 0
