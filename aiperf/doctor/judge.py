"""Checks of an examination: each is a function of it. Their order is that in which faults should be fixed. A
check looks at reports only, and asks nothing itself."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

from aiperf.doctor import folders, software
from aiperf.doctor.check import Check, Grade, failed, not_checked, ok, warning
from aiperf.doctor.host_report import TOOLS
from aiperf.doctor.reports import Examination, HostReport
from aiperf.host.variables import number
from aiperf.wire.clocks import CLOCK_SECONDS
from aiperf.wording import counted

CLOCK_NEAR_SECONDS = 0.1
"""Difference in seconds above which the clocks are reported as a warning."""
UNLIKE = 1.5
"""Factor by which an all-reduce must be slower than the median of the groups to be reported."""
BUSY = 1.5
"""Processes that run or wait, per core of a host, above which the host counts as overloaded."""
NOTHING = "nothing could be examined"
"""What is shown for a check that would have passed without any evidence."""
NOT_NEEDED = "no worker trains"
"""What is shown for checks of training where workers only pretend to train."""
BLIND_REMEDY = "see the failed checks; fix them, or use a longer --wait-seconds, then check again"
"""The cause of a missing report is in another check, or in the time limit."""


def judge(examination: Examination) -> list[Check]:
    """All checks with their results. One that would pass without any evidence is reported as not checked."""
    found = []
    for check, evidence in CHECKS.items():
        result = check(examination)
        if examination.pretends and check in OF_TRAINING:
            found.append(not_checked(result.name, NOT_NEEDED))
            continue
        blind = result.outcome is Grade.OK and not evidence(examination)
        found.append(not_checked(result.name, NOTHING, BLIND_REMEDY) if blind else result)
    return found


def _ranks(examination: Examination) -> Check:
    """Checks the number of ranks of the launcher against the visible devices."""
    if examination.silent:
        text = f"no answer from {', '.join(examination.silent[:4])} within {examination.wait_seconds:.0f} s"
        usual = "check those nodes; a hanging driver or file system is the usual cause"
        return failed("ranks", text, _busy_remedy(examination.host_reports) or usual)
    if examination.layout_fault:
        return failed(
            "ranks", examination.layout_fault, "start one rank per device, plus one on the first node"
        )
    workers = Counter(each.host for each in examination.device_reports)
    for each in examination.device_reports:
        if each.kind not in ("", "cpu") and each.visible_devices > workers[each.host]:
            return failed(
                "ranks",
                f"{each.host} has {each.visible_devices} visible devices for {workers[each.host]} training "
                f"ranks",
                "start one rank per device, plus one for the master, or make fewer devices visible",
            )
    num_hosts = len(workers)
    if not examination.hosts:
        return ok("ranks", f"one process, {counted(len(examination.device_reports), 'device')}, no launcher")
    trained = f"{counted(len(examination.device_reports), 'rank')} on {counted(num_hosts, 'host')}"
    return ok("ranks", f"{trained}, and the master on {examination.hosts[0]}")


def _cores(examination: Examination) -> Check:
    """Checks that the launcher has not bound each rank to one core, as many do unless they are asked
    otherwise."""
    bound = [each for each in examination.host_reports if each.cores_of_rank == 1 < each.cores]
    if bound and examination.hosts:
        text = f"{bound[0].host} binds each rank to one of its {bound[0].cores} cores"
        return warning("cores", text, "give ranks more cores (srun --cpus-per-task; mpiexec --bind-to none)")
    cores = sorted({each.cores for each in examination.host_reports})
    return ok("cores", f"{', '.join(map(str, cores))} per node")


def _load(examination: Examination) -> Check:
    """Checks that no other programs use the hosts: they would slow down the run, and this examination."""
    known = [each for each in examination.host_reports if each.load is not None]
    if len(known) < len(examination.host_reports):
        return not_checked("load", "the system does not report it")
    if remedy := _busy_remedy(known):
        return warning("load", _load_text(max(known, key=_load_per_core)), remedy)
    return ok("load", _load_text(max(known, key=_load_per_core)) if known else "")


def _busy_remedy(hosts: Sequence[HostReport]) -> str:
    """What to do about the most overloaded of these hosts; empty if none is overloaded. An overloaded host is
    a usual cause of answers that are late or missing, so many checks ask for it first."""
    busiest = max(hosts, key=_load_per_core, default=None)
    if busiest is None or _load_per_core(busiest) < BUSY:
        return ""
    return (
        f"{busiest.host} is overloaded, not broken: stop other programs there (top lists them), or use "
        "another node; a longer --wait-seconds gives it more time to answer"
    )


def _load_per_core(host: HostReport) -> float:
    """Processes that run or wait, per core; 0 if the system does not say."""
    return (host.load or 0.0) / host.cores


def _load_text(host: HostReport) -> str:
    """The load of a host as the check shows it."""
    return f"load average {host.load or 0.0:.1f} on {counted(host.cores, 'core')} of {host.host}"


def _devices(examination: Examination) -> Check:
    """Checks that every rank has its own device, which computes correctly, and that all are alike."""
    faults = [each for each in examination.device_reports if each.fault]
    if faults:
        first = min(faults, key=attrgetter("late"))  # a rank that waited names its own device, not the cause
        text = f"rank {first.rank} on {first.host}: {first.fault}"
        more = f"; and {len(faults) - 1} more" if len(faults) > 1 else ""
        busy = _busy_remedy(examination.host_reports) if first.late else ""
        remedy = busy or first.remedy or "check that device; exclude its node until it is repaired"
        return failed("devices", text + more, remedy)
    same = Counter((each.host, each.identity) for each in examination.device_reports if each.identity)
    for (host, _), count in same.items():
        if count > 1:
            remedy = "make all devices of a host visible to each of its ranks"
            return failed("devices", f"{count} ranks on {host} have the same device", remedy)
    kinds = Counter(each.name for each in examination.device_reports)
    if len(kinds) > 1:
        return warning(
            "devices", _counted(kinds), "use nodes of the same type: a group waits for its slowest rank"
        )
    slowed = [each for each in examination.device_reports if each.slowed_by]
    if slowed:
        text = f"{_counted(kinds)}; {slowed[0].host}: {slowed[0].slowed_by}"
        return warning("devices", text, "unset that variable: the program sets it to 1 for each rank")
    noted = [each for each in examination.device_reports if each.note]
    if noted:
        text = f"{_counted(kinds)}; {noted[0].host}: {noted[0].note}"
        return warning("devices", text, "none needed to measure processors: --device cpu omits this check")
    return ok("devices", f"{_counted(kinds)}; each multiplies correctly")


def _fused(examination: Examination) -> Check:
    """Checks for the kernels of fused steps. Without them a run with `training.step` fused cannot start,
    while any other run uses other engines, which is a warning."""
    reports = examination.device_reports
    without = [each for each in reports if each.not_fused]
    if without:
        first = without[0]
        text = f"{first.host}: {first.not_fused}"
        missing = "a C compiler" if first.kind == "cpu" else "the Triton that belongs to its torch"
        remedy = f"install {missing} on that host"
        if examination.config.training.step in ("fused", "fused-graphed"):
            return failed("fused steps", text, f"{remedy}, or use --step auto")
        return warning("fused steps", text, f"{remedy}; without it, no step is fused there")
    on_cpu = any(each.kind == "cpu" for each in reports)
    return ok("fused steps", "their kernels are compiled" if on_cpu else "nothing is missing for them")


def _backend(examination: Examination) -> Check:
    """Checks that the ranks of each group can add tensors, and that no group is much slower than the others.
    Groups of processors are not compared with each other."""
    joined = [each for each in examination.device_reports if each.backend]
    if not joined and examination.devices_per_group > 1:
        return not_checked("backend", "the ranks of no group could meet", BLIND_REMEDY)
    if not joined:
        return ok("backend", "not needed: a group is one device")
    if any(each.fault for each in joined):
        return failed("backend", "an all-reduce failed, see devices", "fix that device or its network first")
    name = joined[0].backend
    rates = [each.reduce_bytes_per_second for each in joined]
    middle = statistics.median(rates)
    slowest = min(joined, key=lambda each: each.reduce_bytes_per_second)
    text = f"{name}, all-reduce of 16 MiB at {middle / 1e9:.2g} GB/s in the median"
    if slowest.kind != "cpu" and slowest.reduce_bytes_per_second * UNLIKE < middle:
        text += f", {slowest.reduce_bytes_per_second / 1e9:.2g} GB/s on {slowest.host}"
        return warning("backend", text, f"check the links between the devices of {slowest.host}")
    return ok("backend", text)


def _clocks(examination: Examination) -> Check:
    """Checks the hosts' times of day, which must agree for `clocks`, a rule of a run."""
    unread = sorted(set(examination.hosts[1:]) - {*examination.hosts[:1], *examination.clocks})
    if not examination.clocks and not unread:
        return ok("clocks", "one host")
    if not examination.clocks:
        return not_checked("clocks", f"no answer from {', '.join(unread[:4])}", BLIND_REMEDY)
    host, clock = max(examination.clocks.items(), key=lambda item: item[1].least_seconds)
    if clock.least_seconds <= CLOCK_SECONDS and not all(each.known for each in examination.clocks.values()):
        host, clock = max(examination.clocks.items(), key=lambda item: item[1].uncertainty_seconds)
        text = f"the clock of {host} is known only to {clock.uncertainty_seconds:.1f} s"
        return warning(
            "clocks", text, f"its answers were late: check again when {host} and the network are idle"
        )
    text = f"the largest difference is {abs(clock.offset_seconds):.3f} s, of {host}"
    remedy = f"synchronise the clock of {host}, for example with chrony"
    if clock.least_seconds > CLOCK_SECONDS:
        return failed("clocks", text, remedy)
    if clock.least_seconds > CLOCK_NEAR_SECONDS:
        return warning("clocks", text, remedy)
    if unread:
        return not_checked("clocks", f"{text}; no answer from {', '.join(unread[:4])}", BLIND_REMEDY)
    return ok("clocks", text)


def _counted(kinds: Counter[str]) -> str:
    """Kinds of devices with their numbers, in the order in which they were first seen."""
    return ", ".join(f"{count} × {name}" for name, count in kinds.items())


_hosts, _answers = attrgetter("host_reports"), attrgetter("device_reports")


def _bound(examination: Examination) -> Sequence[object]:
    """Devices that could be bound; of others only the fault is known."""
    return [each for each in examination.device_reports if each.kind]


def _torches(examination: Examination) -> Sequence[object]:
    """Devices whose process could import torch."""
    return [each for each in examination.device_reports if each.torch]


def _master(examination: Examination) -> Sequence[object]:
    """Evidence for checks of what the master saw itself, which always exists."""
    return [examination]


def _drivers(examination: Examination) -> Check:
    """Checks that the drivers' tools (nvidia-smi, rocm-smi, npu-smi, xpu-smi) answer, that the
    drivers have the same version everywhere, and that they report no fault of a device."""
    hosts = examination.host_reports
    answers = [(each.host, tool, answer) for each in hosts for tool, answer in each.tools.items()]
    # Whether a CPU may be measured although a driver fails is decided where it is bound, as in a run.
    processors = examination.device_reports and all(each.kind == "cpu" for each in examination.device_reports)
    for host, tool, answer in answers:
        if answer.startswith("failed: ") and processors:
            remedy = "none needed: the processors are measured"
            return warning("drivers", f"{tool} on {host} {answer}", remedy)
        if answer.startswith("failed: "):
            busy = _busy_remedy([each for each in hosts if each.host == host])
            remedy = busy or "let an administrator check the driver, or exclude the node"
            return failed("drivers", f"{tool} on {host} {answer}", remedy)
        lines = answer.splitlines()
        if tool == "nvidia-smi" and lines and not any(map(_fields, lines)):
            text = f"{tool} on {host} returned unexpected output: {lines[0]!r:.60}"
            return failed("drivers", text, "let an administrator check the driver, or exclude the node")
    measured = {each.host for each in examination.device_reports if each.kind not in ("", "cpu")}
    without = sorted(measured - {host for host, *_ in answers})
    if not answers and not without:
        return ok("drivers", "no accelerator tool is installed")
    for host, name, _, uncorrected, pending, _ in _nvidia(hosts):
        if number(uncorrected):
            text = f"{name} on {host} has {uncorrected} uncorrected memory errors since the driver was loaded"
            return failed("drivers", text, "reset that device, or exclude its node")
        if pending == "Yes":
            text = f"{name} on {host} has memory pages pending retirement"
            return warning("drivers", text, "reset that device before the next run")
    versions = sorted({driver for _, _, driver, *_ in _nvidia(hosts)})
    if len(versions) > 1:
        return warning(
            "drivers", f"differ between nodes: {', '.join(versions)}", "use nodes with the same driver"
        )
    if without:
        text = f"no accelerator tool is in PATH on {folders.some(without)}"
        return not_checked("drivers", text, f"add one of {', '.join(TOOLS)} to PATH there")
    used = sorted({tool for _, tool, _ in answers})
    driver = f": driver {versions[0]}" if versions else ""
    return ok("drivers", f"{', '.join(used)} answer{'s' * (len(used) == 1)}{driver}")


def _slices(examination: Examination) -> Check:
    """Checks how the visible devices are named: by number, by UUID, or as partitions of a device (MIG)."""
    hosts = examination.host_reports
    named = {variable: value for each in hosts for variable, value in each.visible.items()}
    partitions = [
        *(
            f"{variable} on {each.host} selects device partitions (MIG)"
            for each in hosts
            for variable, value in each.visible.items()
            if "MIG-" in value
        ),
        *(f"MIG is enabled on {host}" for host, *_, mode in _nvidia(hosts) if mode == "Enabled"),
    ]
    if partitions:
        remedy = "none needed for a test; peak and ranking need whole devices"
        return warning("visible", partitions[0], remedy)
    uuid = "; by UUID" if any("GPU-" in value for value in named.values()) else ""
    text = ", ".join(f"{variable}={value}" for variable, value in named.items())
    return ok("visible", f"{text}{uuid}" if text else "no variable hides devices")


def _nvidia(hosts: Sequence[HostReport]) -> Iterator[tuple[str, ...]]:
    """Host, name, driver, uncorrected errors, pending pages and MIG mode of each device; older drivers and
    devices report "[N/A]"."""
    for each in hosts:
        for line in each.tools.get("nvidia-smi", "").splitlines():
            if fields := _fields(line):
                yield (each.host, *fields)


def _fields(line: str) -> list[str]:
    """The five requested fields in a line; empty if the line is something else."""
    fields = [field.strip() for field in line.split(",")]
    return fields if len(fields) == 5 and line.isprintable() else []


CHECKS: Mapping[Callable[[Examination], Check], Callable[[Examination], Sequence[object]]] = {
    software.python: _hosts,
    software.names: _hosts,
    software.torch: _torches,
    software.mpi: _master,
    _ranks: _answers,
    _cores: _hosts,
    _load: _hosts,
    _devices: _bound,
    _drivers: _hosts,
    _slices: _hosts,
    software.onednn: _hosts,
    _fused: _bound,
    _backend: _bound,
    _clocks: _master,
    folders.limits: _hosts,
    folders.directory: _hosts,
    folders.space: _master,
    folders.temporary: _hosts,
    folders.home: _hosts,
    folders.data: _hosts,
}
"""All checks, each with a function that returns the evidence on which it rests."""
OF_TRAINING = frozenset({software.torch, _devices, software.onednn, _fused, _backend, folders.data})
"""Checks that matter only to workers that train."""
