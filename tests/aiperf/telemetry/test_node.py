"""The power of a node, by the files that Linux documents; here in a folder instead of /sys."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from aiperf.telemetry import node
from aiperf.telemetry.__main__ import SENSORS, _line
from aiperf.telemetry.sensor import Sensor, plausible
from tests.tables import ComesTo

ACPI = {"name": "power_meter", "power1_average": "512000000", "power1_is_battery": "0"}
RAPL = {"name": "package-0", "energy_uj": "90000000", "max_energy_range_uj": "99999999"}
METER, PACKAGE = "hwmon/hwmon3", "powercap/intel-rapl:0"
PARTS = {
    "hwmon/hwmon0": {"name": "amdgpu", "power1_average": "300000000"},  # a device
    "hwmon/hwmon1": {"name": "ina238", "power1_input": "9000000"},  # a rail of a board
    "hwmon/hwmon2": {**ACPI, "power1_is_battery": "1"},
    "powercap/intel-rapl:0:0": {**RAPL, "name": "core"},
    "powercap/intel-rapl:1": {**RAPL, "name": "psys"},
    "powercap/intel-rapl-mmio:0": RAPL,  # the same package a second time
}


def test_only_a_meter_of_the_whole_node_is_the_power_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """The files are those of Linux, Documentation/hwmon/sysfs-interface.rst and acpi_power_meter.rst, and of
    Documentation/ABI/testing/sysfs-class-powercap."""
    monkeypatch.setattr(node, "HWMON", tmp_path / "hwmon")
    monkeypatch.setattr(node, "POWERCAP", tmp_path / "powercap")

    def power(tree: Mapping[str, Mapping[str, str]]) -> Mapping[str, float]:
        """In two seconds the first package has used 8 J, and the counter of the third has started again."""
        for top in ("hwmon", "powercap"):
            shutil.rmtree(tmp_path / top, ignore_errors=True)
        for folder, files in tree.items():
            (tmp_path / folder).mkdir(parents=True)
            for name, text in files.items():
                (tmp_path / folder / name).write_text(f"{text}\n")
        clock = iter([10.0, 12.0])
        monkeypatch.setattr(node, "monotonic", lambda: next(clock))
        read = node.open_node()
        assert node.has_sensors()
        assert "processors_power_watts" not in read(), "a counter has no power before it has risen"
        for zone, energy in (("intel-rapl:0", 98000000), ("intel-rapl:2", 30000000)):
            if (path := tmp_path / "powercap" / zone / "energy_uj").exists():
                path.write_text(str(energy))
        found = read()
        assert plausible(found) == found
        return found

    comes_to_what_was_read("nodes.txt", {**globals(), "power": power})


@pytest.mark.parametrize("name", SENSORS)
def test_each_sensor_of_this_host_reads_it_or_says_that_it_is_not_there(name: str) -> None:
    """On whatever host this runs; a counter has no power before its second reading."""
    is_there, open_it = SENSORS[name]
    if not is_there():
        with pytest.raises(LookupError):
            open_it()
        return
    read = open_it()
    read()
    assert plausible(read())


def test_a_line_has_the_node_s_power_if_it_has_a_meter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what a meter that fails says of it, which costs nothing else."""
    monkeypatch.setattr(node, "HWMON", tmp_path)
    (folder := tmp_path / "hwmon0").mkdir()
    for name in ("name", "power1_average"):
        (folder / name).write_text(f"{ACPI[name]}\n")
    host, meter = Sensor("host", lambda: lambda: {"utilisation": 0.5}), Sensor("node", node.open_node)
    line = json.loads(_line([host, meter], []))
    assert (line["host"]["utilisation"], line["node"]["power_watts"]) == (0.5, 512.0)
    assert abs(line["node"]["wall_seconds"] - line["wall_seconds"]) < 5
    (folder / "power1_average").write_text("none\n")
    line = json.loads(_line([host, meter], []))
    assert (line["host"]["utilisation"], line["node"].get("power_watts")) == (0.5, None)
    assert line["node"]["unknown"].startswith("ValueError")
