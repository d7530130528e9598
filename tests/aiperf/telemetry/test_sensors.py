"""Vendors' libraries, psutil and files of Linux, read as they are documented; here against stand-ins."""

from __future__ import annotations

import ctypes
import json
import shutil
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from aiperf.telemetry import amd, ascend, host, node, nvidia, sensor
from aiperf.telemetry.__main__ import SENSORS, _line
from aiperf.telemetry.host import open_host
from aiperf.telemetry.sensor import Sensor, each, plausible
from tests.aiperf.telemetry.fakes import pynvml as fake
from tests.tables import ComesTo

SERIAL = "0x2F5C3A4B1D6E7F80"
METRICS = {
    "average_gfx_activity": 93,
    "current_socket_power": 745,
    "average_socket_power": "N/A",
    "temperature_hotspot": 71,
    "current_gfxclk": 2088,
    "current_uclk": 1300,
    "throttle_status": "N/A",
    "indep_throttle_status": 0,
}


class AmdSmi(ModuleType):
    """amdsmi of ROCm 6.4: rocm.docs.amd.com/projects/amdsmi, "Python API reference"."""

    AmdSmiLibraryException = type("AmdSmiLibraryException", (Exception,), {})
    AmdSmiMemoryType = SimpleNamespace(VRAM=0)

    def __init__(self, metrics: dict[str, Any], energy: dict[str, Any] | None) -> None:
        super().__init__("amdsmi")
        self.metrics, self.energy = metrics, energy

    def amdsmi_init(self, flag: Any = None) -> None:
        pass

    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["broken", "other", "handle"]

    def amdsmi_get_gpu_asic_info(self, processor_handle: str) -> dict[str, Any]:
        if processor_handle == "broken":
            raise self.AmdSmiLibraryException("AMDSMI_STATUS_IO")
        return {"market_name": "MI300X", "asic_serial": SERIAL if processor_handle == "handle" else "0x1"}

    def amdsmi_get_gpu_metrics_info(self, processor_handle: str) -> dict[str, Any]:
        assert processor_handle == "handle"
        if not self.metrics:
            raise self.AmdSmiLibraryException("AMDSMI_STATUS_NOT_SUPPORTED")
        return self.metrics

    def amdsmi_get_gpu_memory_usage(self, processor_handle: str, mem_type: int) -> int:
        return 64 << 30

    def amdsmi_get_energy_count(self, processor_handle: str) -> dict[str, Any]:
        if self.energy is None:
            raise self.AmdSmiLibraryException("not supported")
        return self.energy


def read_amd(
    monkeypatch: pytest.MonkeyPatch, identity: str, metrics: dict[str, Any] = METRICS, **changed: Any
) -> dict[str, Any]:
    energy = changed.pop("energy", {"energy_accumulator": 10**9, "counter_resolution": 15.3, "timestamp": 1})
    monkeypatch.setitem(sys.modules, "amdsmi", AmdSmi({**metrics, **changed}, energy))
    return plausible(amd.open_device(identity)())


AS_TORCH_PRINTS = "32663563-3361-3462-3164-366537663830"
"""The sixteen digits of the serial number as text, in hexadecimal digits."""


def test_an_amd_device_is_found_by_its_serial_number_and_what_it_has_not_is_unknown(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """An older one tells reasons by bits. The range of a value follows from the end of its name. Of any
    sensor: where nothing can be read the last fault is raised."""
    names = {"amd": partial(read_amd, monkeypatch), "plausible": plausible, "each": each}
    comes_to_what_was_read("sensors.txt", {**globals(), **names})


MI300 = METRICS | {"indep_throttle_status": "N/A", "prochot_residency_acc": 0, "ppt_residency_acc": 41}
MI300 |= {"socket_thm_residency_acc": 7, "vr_thm_residency_acc": "N/A", "hbm_thm_residency_acc": 0}


def test_what_held_an_amd_device_back_is_what_its_accumulators_rose_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MI300 and later have accumulators, and no status."""
    smi = AmdSmi(dict(MI300), None)
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    read = amd.open_device(AS_TORCH_PRINTS)
    held = [plausible(read()).get("throttled") for _ in range(2)]
    smi.metrics |= {"ppt_residency_acc": 42, "hbm_thm_residency_acc": 3}
    held += [plausible(read()).get("throttled") for _ in range(2)]
    assert held == [None, [], ["power cap", "temperature of memory"], []], "nobody knows at first"


class Dcmi:
    """libdcmi.so: hiascend.com, "DCMI API reference"; a number other than 0 is an error."""

    def dcmi_init(self) -> int:
        return 0

    def dcmi_get_card_id_device_id_from_logicid(self, board: Any, device: Any, logic: Any) -> int:
        if logic.value != 5:
            return -8005
        board._obj.value, device._obj.value = 2, 1
        return 0

    def dcmi_get_device_power_info(self, board: int, device: int, power: Any) -> int:
        assert (board, device) == (2, 1)
        power._obj.value = 2875  # tenths of a watt
        return 0

    def dcmi_get_device_temperature(self, board: int, device: int, temperature: Any) -> int:
        temperature._obj.value = 58
        return 0

    def dcmi_get_device_utilization_rate(self, board: int, device: int, kind: int, rate: Any) -> int:
        assert kind == 2
        rate._obj.value = 96
        return 0

    def dcmi_get_device_hbm_info(self, board: int, device: int, info: Any) -> int:
        info._obj.memory_size, info._obj.memory_usage = 65536, 32768
        return 0

    def dcmi_get_device_aicore_info(self, board: int, device: int, info: Any) -> int:
        return -8255  # not supported

    def dcmi_get_device_pcie_info_v2(self, board: int, device: int, info: Any) -> int:
        """As in dcmi_interface_api.h of CANN's driver: gitcode.com/cann/driver."""
        assert (board, device) == (2, 1)
        place = info._obj
        place.domain, place.bdf_busid, place.bdf_deviceid, place.bdf_funcid = 0x10, 0xC1, 2, 1
        return 0


class OldDcmi(Dcmi):
    """Without what came later; its device answers no question but that for its power."""

    dcmi_get_device_hbm_info = dcmi_get_device_aicore_info = None
    dcmi_get_device_temperature = dcmi_get_device_utilization_rate = lambda *_: -8012
    dcmi_get_device_pcie_info_v2 = property()  # type: ignore[assignment]  # as ctypes: an AttributeError


class SilentDcmi(OldDcmi):
    dcmi_get_device_power_info = dcmi_get_device_pcie_info_v2 = OldDcmi.dcmi_get_device_temperature


def test_an_ascend_device_is_found_by_its_number_and_what_it_has_not_hides_nothing_else(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    def dcmi(library: type[Dcmi], identity: str = "npu-5") -> dict[str, Any]:
        monkeypatch.setattr(ascend.ctypes, "CDLL", lambda name: library())
        return plausible(ascend.open_device(identity)())

    def place(library: type[Dcmi], identity: str = "npu-5") -> str:
        monkeypatch.setattr(ascend.ctypes, "CDLL", lambda name: library())
        return ascend.pci_address(identity)

    known = {**globals(), "dcmi": dcmi, "place": place, "sizeof": ctypes.sizeof}
    comes_to_what_was_read("dcmi.txt", known)


def test_the_library_is_looked_for_where_drivers_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def load(name: str) -> Dcmi:
        asked.append(name)
        if name != "/usr/local/dcmi/libdcmi.so":
            raise OSError(f"{name}: cannot open shared object file: No such file or directory")
        return Dcmi()

    monkeypatch.setattr(ascend.ctypes, "CDLL", load)
    assert plausible(ascend.open_device("npu-5")())["power_watts"] == 287.5
    assert asked == ["libdcmi.so", "/usr/local/dcmi/libdcmi.so"]
    monkeypatch.setattr(ascend, "LIBRARIES", ("libdcmi.so", "/nowhere/libdcmi.so"))
    with pytest.raises(OSError, match=r"^libdcmi.so: cannot open"):
        ascend.open_device("npu-5")
    assert ascend.pci_address("npu-5") == ""


# NVIDIA


class Nvml(ModuleType):
    """One device, of which some calls fail; the fake is compared with the real module by a test."""

    def __init__(self, **failing: Exception) -> None:
        super().__init__("pynvml")
        vars(self).update({name: value for name, value in vars(fake).items() if not name.startswith("_")})
        for name, error in failing.items():
            setattr(self, name, partial(self._fail, error))

    @staticmethod
    def _fail(error: Exception, *words: object) -> object:
        raise error


def test_a_value_that_nvml_cannot_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an old library without a function, or a sensor that is broken by itself."""
    broken = fake.NVMLError("Unknown Error")
    nvml = Nvml(nvmlDeviceGetTotalEnergyConsumption=broken, nvmlDeviceGetUtilizationRates=broken)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    found = plausible(nvidia.open_device(fake.UUID)())
    assert found["power_watts"] == fake.WATTS
    assert "throttled" in found
    assert not {"energy_joules", "utilisation"} & found.keys()


def test_a_slice_of_a_device_is_found_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA tells the UUID of a slice, and torch hands it on without NVML's prefix."""
    nvml = Nvml()

    def by_uuid(uuid: str) -> str:
        if uuid != fake.UUID.replace("GPU-", "MIG-"):
            raise fake.NVMLError_NotFound("Not Found")
        return uuid

    vars(nvml)["nvmlDeviceGetHandleByUUID"] = by_uuid
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert "memory_bytes" in nvidia.open_device(fake.UUID.removeprefix("GPU-"))()


def test_reasons_are_the_bits_of_the_real_module() -> None:
    import pynvml as real  # of nvidia-ml-py

    bits = {
        "application clocks": real.nvmlClocksThrottleReasonApplicationsClocksSetting,
        "power cap": real.nvmlClocksThrottleReasonSwPowerCap,
        "hardware slowdown": real.nvmlClocksThrottleReasonHwSlowdown,
        "sync boost": real.nvmlClocksThrottleReasonSyncBoost,
        "temperature": real.nvmlClocksThrottleReasonSwThermalSlowdown,
        "temperature, hardware": real.nvmlClocksThrottleReasonHwThermalSlowdown,
        "power brake": real.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
        "display clocks": real.nvmlClocksThrottleReasonDisplayClockSetting,
    }
    assert {bit: name for name, bit in bits.items()} == nvidia.REASONS


# The host


def hidden() -> Any:
    raise PermissionError(13, "Permission denied", "/proc/net/dev")


def test_what_a_container_hides_of_its_host_hides_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    read = open_host()
    monkeypatch.setattr(host.psutil, "net_io_counters", hidden)
    monkeypatch.setattr(host.psutil, "disk_io_counters", lambda: None)
    monkeypatch.setattr(host, "monotonic", lambda: time.monotonic() + 1)
    found = plausible(read())
    assert {"utilisation", "memory_bytes"} <= found.keys()
    assert not [name for name in found if name.endswith("_per_second")]


# Any of them


def test_a_sensor_that_failed_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensor, "REOPEN_SECONDS", 0.3)
    opened = list[int]()

    def open_it() -> Any:
        opened.append(len(opened))
        if opened[-1] == 0:
            raise OSError("the driver is being loaded")
        readings = iter([{"power_watts": 1.0}])
        return lambda: next(readings) if opened[-1] == 1 else {"power_watts": 2.0}

    watched, told = sensor.Sensor("device", open_it), list[tuple[object, str]]()
    until = time.monotonic() + 30
    while (2.0, "") not in told:
        assert time.monotonic() < until, told
        watched.ask()
        reading, fault = watched.answer(time.monotonic() + 5)
        told.append((reading.get("power_watts"), fault))
        time.sleep(0.05)
    assert list(dict.fromkeys(told)) == [
        (None, "OSError: the driver is being loaded"),
        (1.0, ""),
        (None, "StopIteration: "),
        (2.0, ""),
    ]
    assert opened == [0, 1, 2]


# The power of a node, by files in a folder instead of /sys


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
