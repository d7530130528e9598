"""Accelerators that a host has and torch does not see. Otherwise a run would measure the CPU unnoticed.

Refused is a host whose driver lists devices, or is loaded and fails: somebody meant to use them, and they can
be had. It is only noted that a driver was never loaded, or that a job or a container was given none of the
devices of its host, because its user may know no remedy, and a CPU is then the only device to measure."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from aiperf import variables
from aiperf.errors import UnseenDevices
from aiperf.hardware.drivers import TOOLS, VENDORS, Traces, Vendor, find_traces
from aiperf.programs import ToolFailed, ask

ROOT = Path("/")
TOOL_SECONDS = 10.0
"""Time limit in seconds for a driver's tool. A driver that must wake up its devices takes some seconds; a
broken one hangs forever."""
LONGEST_REASON = 160
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


class Access(Enum):
    """What becomes of opening a vendor's device files."""

    ABSENT = "there are none"
    OPENS = "one of each kind opens"
    DENIED = "the control group of the job or the container forbids them: none was given to it"
    FORBIDDEN = "their permissions forbid them"
    FAILS = "the driver fails, or does not answer"


@dataclass(frozen=True)
class Listing:
    """The answer of a vendor's tool."""

    tool: str
    devices: int = 0
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
