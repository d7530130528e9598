"""Accelerators that a host shows by drivers, device files, PCI bus and tools, and that torch does not see:
otherwise a run would measure the CPU unnoticed.

Refused is a host whose driver lists devices, or is loaded and fails: somebody meant to use them, and they can
be had. It is only noted that a driver was never loaded, or that a job or a container was given none of the
devices of its host, because its user may know no remedy, and a CPU is then the only device to measure.

No trace suffices alone. A job or a container that was given no device still sees the driver of its host in
/sys/module, and a job often the device files, too; and the drivers of AMD and Intel also serve the graphics
unit of a laptop.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path

from aiperf.errors import UnseenDevices
from aiperf.host import variables
from aiperf.host.programs import ToolFailed, ask
from nas.bounded import system_text
from nas.frozen import frozen

ROOT = Path("/")
TOOL_SECONDS = 10.0
"""Time limit in seconds for a driver's tool. A driver that must wake up its devices takes some seconds; a
broken one hangs forever."""
LONGEST_REASON = 160
"""Longest reason of a tool that is shown, in characters."""
INSTALL = "install the matching build of torch, or use the processor with --device cpu"
REPAIR = "have the driver checked, or use the processor with --device cpu"
PERMIT = "have your account added to the group of that file, or use the processor with --device cpu"
GIVEN_NONE = "ask the scheduler or the container for them if they are to be measured"
# How tools say that there is nothing to list, with any exit code: this is no failure.
NO_DEVICE = re.compile(
    r"(?i)no (?:amd |intel )?(?:gpus?|devices?) (?:were |was )?(?:found|discovered|specified)"
)
FAILURE = re.compile(r"(?i)fail|error|mismatch|unable|couldn't|lost")
# Only a tool that has reached a driver can say so: a process may not see /sys/module.
OF_LOADED_DRIVER = re.compile(r"(?i)version mismatch|unknown error|is lost|fallen off|device handle")
# Opens each file, and prints the number of the error; a driver may need seconds to open its device, or hang.
OPEN = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
        print(0)
    except OSError as error:
        print(error.errno)
"""


@frozen
class VendorTool:
    """How a vendor's tool lists the devices of a host."""

    words: tuple[str, ...]
    """Arguments of the tool."""
    device: str
    """Regular expression that matches once per device in its output."""


@frozen
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
    """The vendor's number on the PCI bus."""
    pci_classes: tuple[int, ...]
    """Classes of its accelerators on the PCI bus: 0x0300 and 0x0302 draw, 0x0380 is another display
    controller, 0x1200 a processing accelerator."""
    is_graphics: bool = False
    """Whether driver and device files are also those of a processor's own graphics unit."""


@frozen
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


class Access(Enum):
    """What becomes of opening a vendor's device files."""

    ABSENT = "there are none"
    OPENS = "one of each kind opens"
    DENIED = "the control group of the job or the container forbids them: none was given to it"
    FORBIDDEN = "their permissions forbid them"
    FAILS = "the driver fails, or does not answer"


@frozen
class Listing:
    """The answer of a vendor's tool."""

    tool: str
    devices: int = 0
    """Number of devices that it lists."""
    failure: str = ""
    """Why it lists none; empty if it did not fail."""
    unanswered: bool = False
    """Whether it could not be started, or gave no answer in time."""

    @property
    def reached(self) -> bool:
        """Whether the failure is one of a driver that is loaded."""
        return OF_LOADED_DRIVER.search(self.failure) is not None


def refuse_unseen(torch: str, environment: Mapping[str, str], faults: Mapping[str, str]) -> str:
    """A note on the accelerators of this host that a torch of that version does not see; empty if there are
    none. `faults` has, by vendor, why the runtime of a torch that was built for it fails.

    Raises UnseenDevices if a driver lists devices, or if it is loaded and its tool or runtime fails. If a
    variable hides all devices of a vendor, that is the user's decision, and nothing is examined. Without any
    tool and any device file this takes no time."""
    notes = []
    for vendor in VENDORS:
        if not _hides_all(vendor.hidden_by, environment):
            listing, traces = _list(vendor), find_traces(vendor, ROOT)
            access, file = _try_files(traces)
            notes.append(_judge(vendor, torch, listing, traces, (access, file), faults.get(vendor.name, "")))
    found = [note for note in notes if note]
    return f"{'; '.join(found)}; the processor is measured" if found else ""


def _judge(
    vendor: Vendor,
    torch: str,
    listing: Listing | None,
    traces: Traces,
    opened: tuple[Access, str],
    fault: str,
) -> str:
    """The note on one vendor's devices. Raises UnseenDevices."""
    access, file = opened
    loaded = f"the {vendor.name} driver is loaded"
    given_none = f"{loaded}, but none of its devices was given to this process"
    if listing is not None and listing.unanswered:
        raise UnseenDevices(f"torch {torch} sees no device, and {listing.tool} {listing.failure}", REPAIR)
    if access is Access.DENIED:
        return f"{given_none} ({file}); {GIVEN_NONE}"
    if access is Access.FORBIDDEN and (listing is not None or fault):
        raise UnseenDevices(f"torch {torch} sees no device, and {file}", PERMIT)
    if listing is not None and listing.devices:
        counted = f"{listing.devices} device{'s' * (listing.devices > 1)}"
        seen = f"{listing.tool} lists {counted}, torch {torch} sees none"
        raise UnseenDevices(f"{seen}: {fault}" if fault else seen, REPAIR if fault else INSTALL)
    if listing is not None and listing.failure and (traces.has_files or listing.reached):
        raise UnseenDevices(
            f"the {vendor.name} driver is loaded, but {listing.tool} {listing.failure}", REPAIR
        )
    if access is Access.FAILS and (listing is not None or fault):
        raise UnseenDevices(f"{loaded}, but {file}", REPAIR)
    if access is Access.OPENS and fault:
        raise UnseenDevices(f"{loaded}, but torch {torch} fails: {fault}", REPAIR)
    return _note(vendor, listing, traces, given_none)


def _note(vendor: Vendor, listing: Listing | None, traces: Traces, given_none: str) -> str:
    """What is said of devices that cannot be used, or of a tool that finds none; empty if nothing hints at an
    accelerator."""
    failed = f"{listing.tool} {listing.failure}" if listing is not None and listing.failure else ""
    if traces.has_files and (traces.on_bus or not vendor.is_graphics):
        first = next(iter(traces.files))[0]
        tool = " or ".join(vendor.tools)
        what = f"{listing.tool} and torch find" if listing else f"no {tool} is installed, and torch finds"
        return f"{first} exists, but {what} no device of {vendor.name}"
    if traces.driver and (failed or traces.on_bus or not vendor.is_graphics):
        return f"{given_none}{f' ({failed})' if failed else ''}; {GIVEN_NONE}"
    if traces.on_bus and not traces.driver:
        more = f" and {len(traces.on_bus) - 1} more" if len(traces.on_bus) > 1 else ""
        where = f"on the PCI bus ({traces.on_bus[0]}{more})"
        told = f"a device of {vendor.name} is {where}, but its driver is not loaded"
        return f"{told} ({failed})" if failed else told
    return f"{failed}, and no driver of {vendor.name} is loaded" if failed else ""


def _list(vendor: Vendor) -> Listing | None:
    """The answer of the first of the vendor's tools that lists devices, else of the first that fails, else of
    any; None if none is installed."""
    answers = [_ask_tool(tool) for tool in vendor.tools if shutil.which(tool)]
    rest = [each for each in answers if each.failure] or answers
    return next(iter([each for each in answers if each.devices] or rest), None)


def _ask_tool(tool: str) -> Listing:
    """The answer of one tool. An exit code of 0 is not trusted: some tools print an error and exit with 0."""
    how = TOOLS[tool]
    try:
        told = ask((tool, *how.words), TOOL_SECONDS)
    except ToolFailed as error:
        return Listing(tool, failure=str(error), unanswered=True)
    devices = len(set(re.findall(how.device, told.text)))
    if told.code == 0 and devices:
        return Listing(tool, devices)
    if NO_DEVICE.search(told.text) or (told.code == 0 and not FAILURE.search(told.text)):
        return Listing(tool)
    return Listing(tool, failure=f"fails ({told.how}: {_reason(told.text)})")


def _reason(answer: str) -> str:
    """The first sentence of the line that says why, at most LONGEST_REASON characters of it."""
    lines = [line.strip() for line in answer.splitlines() if line.strip()] or ["no reason given"]
    line = next(filter(FAILURE.search, lines), lines[0])
    return "".join(c for c in line if c.isprintable()).partition(". ")[0][:LONGEST_REASON].rstrip(".")


def _try_files(traces: Traces) -> tuple[Access, str]:
    """Whether this process can use the devices, and for a failure the file with its reason."""
    if not traces.has_files:
        return Access.ABSENT, ""
    paths = [str(path) for kind in traces.files for path in kind]
    try:
        answer = ask((sys.executable, "-I", "-S", "-c", OPEN, *paths), TOOL_SECONDS)
    except ToolFailed as error:
        return Access.FAILS, f"opening {paths[0]} {error}"
    errors = dict(zip(paths, map(int, filter(str.isdigit, answer.output.split()))))
    shut = {path: number for path, number in errors.items() if number}
    kinds = [[errors.get(str(path), 0) for path in kind] for kind in traces.files]
    if all(0 in kind for kind in kinds):
        return Access.OPENS, ""
    file, number = next((path, number) for kind in traces.files for path, number in _of(kind, shut))
    told = f"{file}: {os.strerror(number)}"
    if number in (errno.ENODEV, errno.ENXIO):  # a file that was left behind by a device
        return Access.ABSENT, ""
    return {errno.EPERM: Access.DENIED, errno.EACCES: Access.FORBIDDEN}.get(number, Access.FAILS), told


def _of(kind: Sequence[Path], shut: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The files of one kind with their errors, if none of them opens."""
    found = [(str(path), shut[str(path)]) for path in kind if str(path) in shut]
    return iter(found if len(found) == len(kind) else ())


def _hides_all(names: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a variable hides all devices. A driver reads the list up to the first entry that names no
    device, so an empty value, -1 and NoDevFiles hide all."""
    values = [variables.raw(environment, name) for name in names]
    first = [value.split(",")[0].strip() for value in values if value is not None]
    return any(not re.match(r"\d|GPU-|MIG-", word) for word in first)


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
