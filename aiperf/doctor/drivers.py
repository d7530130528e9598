"""Checks of the output of the drivers' tools: nvidia-smi, rocm-smi, npu-smi, xpu-smi."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aiperf.doctor.check import Check, failed, ok, warning
from aiperf.doctor.seen import Examination, HostSeen


def drivers(seen: Examination) -> Check:
    """Checks that the drivers answer, have the same version everywhere, and report no fault of a device."""
    hosts = seen.host_reports
    answers = [(each.host, tool, answer) for each in hosts for tool, answer in each.tools.items()]
    for host, tool, answer in answers:
        if answer.startswith("failed: "):
            return failed(
                "drivers", f"{tool} on {host} {answer}", "have the driver checked, or exclude the node"
            )
        lines = answer.splitlines()
        if tool == "nvidia-smi" and lines and not any(map(_fields, lines)):
            told = f"{tool} on {host} returned unexpected output: {lines[0]!r:.60}"
            return failed("drivers", told, "have the driver checked, or exclude the node")
    if not answers:
        return ok("drivers", "no accelerator tool is installed")
    for host, name, _, uncorrected, pending, _ in _nvidia(hosts):
        if uncorrected.isdigit() and int(uncorrected):
            told = f"{name} on {host} has {uncorrected} uncorrected memory errors since the driver was loaded"
            return failed("drivers", told, "reset that device, or exclude its node")
        if pending == "Yes":
            told = f"{name} on {host} has memory pages pending retirement"
            return warning("drivers", told, "reset that device before the next run")
    versions = sorted({driver for _, _, driver, *_ in _nvidia(hosts)})
    if len(versions) > 1:
        return warning(
            "drivers", f"differ between nodes: {', '.join(versions)}", "use nodes with the same driver"
        )
    used = sorted({tool for _, tool, _ in answers})
    return ok("drivers", f"{', '.join(used)} answer{'s' * (len(used) == 1)}{_colon(versions)}")


def slices(seen: Examination) -> Check:
    """Checks how the visible devices are named: by number, by UUID, or as partitions of a device (MIG)."""
    hosts = seen.host_reports
    for each in hosts:
        for variable, value in each.visible.items():
            if "MIG-" in value:
                told = f"{variable} on {each.host} selects device partitions (MIG)"
                return warning("visible", told, "fine for a test; peak and ranking need whole devices")
    cut = [host for host, *_, mode in _nvidia(hosts) if mode == "Enabled"]
    if cut:
        told = f"MIG is enabled on {cut[0]}"
        return warning("visible", told, "fine for a test; peak and ranking need whole devices")
    named = {variable: value for each in hosts for variable, value in each.visible.items()}
    uuid = "; by UUID" if any("GPU-" in value for value in named.values()) else ""
    told = ", ".join(f"{variable}={value}" for variable, value in named.items())
    return ok("visible", f"{told}{uuid}" if told else "no variable hides devices")


def _nvidia(hosts: Sequence[HostSeen]) -> Iterator[tuple[str, ...]]:
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


def _colon(versions: Sequence[str]) -> str:
    return f": driver {versions[0]}" if versions else ""
