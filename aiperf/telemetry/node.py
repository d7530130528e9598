"""Sensors of a node's power, through files of Linux that everybody may read: hwmon, and RAPL.

Most sensors of hwmon measure a part of a node, such as a rail or a device, and their files do not say which.
Only one is a meter of the whole node by its definition: that of ACPI 4.0, section 10.4 (the driver
acpi_power_meter, whose name is `power_meter`). RAPL measures the packages of the processors, which are a
part, too: they are recorded by that name, and are never the energy of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

from aiperf.telemetry.sensor import Reading

HWMON, POWERCAP = Path("/sys/class/hwmon"), Path("/sys/class/powercap")
NODE_METER = "power_meter"
"""Name of the driver (Linux, Documentation/hwmon/acpi_power_meter.rst)."""
POWER, ENERGY, BATTERY = "power1_average", "energy1_input", "power1_is_battery"
"""Files of hwmon (Linux, Documentation/hwmon/sysfs-interface.rst): microwatts, microjoules, 1 if it is a
battery."""
PACKAGES = "intel-rapl:[0-9]*"
"""Zones of RAPL, those of AMD as well (Linux, Documentation/power/powercap/powercap.rst). One within another
has a second number, one of the whole platform the name psys."""
MICRO = 1e-6


def has_sensors() -> bool:
    """Whether this node has a sensor that this process may read: since Linux 5.10, RAPL only by root."""
    return bool(_meters() or _packages())


def open_node() -> Callable[[], Reading]:
    """A function that reads the node once. Raises LookupError if it has no sensor, or several meters."""
    meters, packages = _meters(), _packages()
    if len(meters) > 1:  # each may measure all of the node, or a part (the folder `measures`)
        raise LookupError(f"{len(meters)} ACPI power meters; which of them measures the node is not known")
    if not meters and not packages:
        raise LookupError("no sensor of the node's power")
    return _Node(meters[0] if meters else None, packages).read


class _Node:
    """A node, with the counters of its last reading."""

    def __init__(self, meter: Path | None, packages: Mapping[Path, int]) -> None:
        self._meter, self._packages = meter, packages
        self._before: tuple[float, Mapping[Path, int]] | None = None

    def read(self) -> Reading:
        """The power of the node in watts, and that of its processors since the last reading. Raises what
        `read_number` raises."""
        found: dict[str, float] = {}
        if self._meter is not None:
            found["power_watts"] = read_number(self._meter / POWER) * MICRO
            if (self._meter / ENERGY).exists():
                found["energy_joules"] = read_number(self._meter / ENERGY) * MICRO
        now = monotonic(), {zone: read_number(zone / "energy_uj") for zone in self._packages}
        if self._packages and self._before is not None and now[0] > self._before[0]:
            # A counter that has reached the end of its range starts again at 0.
            risen = sum(
                (now[1][zone] - self._before[1][zone]) % (self._packages[zone] + 1) for zone in self._packages
            )
            found["processors_power_watts"] = risen * MICRO / (now[0] - self._before[0])
        self._before = now
        return found


def _meters() -> list[Path]:
    """Folders of the ACPI power meters that measure no battery."""
    return [
        folder
        for folder in sorted(HWMON.glob("hwmon*"))
        if read_word(folder / "name") == NODE_METER
        and read_word(folder / BATTERY) != "1"
        and read_word(folder / POWER)
    ]


def _packages() -> dict[Path, int]:
    """Zones of the processors' packages, each with the end of its counter's range in microjoules."""
    return {
        zone: read_number(zone / "max_energy_range_uj")
        for zone in sorted(POWERCAP.glob(PACKAGES))
        if zone.name.count(":") == 1
        and read_word(zone / "name").startswith("package")
        and read_word(zone / "energy_uj").isdecimal()
        and read_word(zone / "max_energy_range_uj").isdecimal()
    }


def read_number(path: Path) -> int:
    """The whole number in a file. Raises OSError if it cannot be read, and ValueError if it holds none."""
    return int(path.read_text(encoding="ascii", errors="replace"))


def read_word(path: Path) -> str:
    """The text of a file; empty if it cannot be read, as without the permission."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
