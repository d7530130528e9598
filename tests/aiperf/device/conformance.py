"""What every kind of device must do. A kind's own test class gives the fixtures and is a subclass."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from aiperf.config import FORMATS
from aiperf.device import KINDS, Device, bind, count_devices
from aiperf.errors import WorldError


class DeviceConformance:
    """Needs the fixtures `device`, bound, and `num_devices`."""

    kind: str
    backend: str
    sensors: str

    def test_it_is_found_by_its_kind(self, device: Device, num_devices: int) -> None:
        assert type(device) is KINDS[self.kind]
        assert count_devices(self.kind) == num_devices
        assert device.torch.type == device.kind == self.kind

    def test_it_has_a_name_and_a_memory(self, device: Device) -> None:
        assert device.name == device.name.strip() != ""
        assert device.memory_bytes > 1 << 30

    def test_every_local_rank_binds_its_own(self, device: Device, num_devices: int) -> None:
        bound = [bind(self.kind, index, num_devices) for index in range(num_devices)]
        assert [each.index for each in bound] == list(range(num_devices))
        assert len({each.identity for each in bound}) == num_devices
        assert device in bound

    def test_one_that_is_not_there_is_refused(self, device: Device, num_devices: int) -> None:
        with pytest.raises(WorldError, match=f"{self.kind} device {num_devices} requested"):
            bind(self.kind, num_devices)

    def test_it_can_be_waited_for_and_cleaned(self, device: Device) -> None:
        device.synchronise()
        device.clean()

    def test_it_is_joined_and_watched_by_its_own_libraries(self, device: Device) -> None:
        assert (device.backend, device.sensors) == (self.backend, self.sensors)
        assert not device.sensors or find_spec(f"aiperf.telemetry.{device.sensors}")

    def test_its_software_is_told(self, device: Device) -> None:
        found = device.software()
        assert found["torch"] == torch.__version__
        assert all(isinstance(name, str) and isinstance(text, str) for name, text in found.items())
        assert ("driver" in found) == bool(device.driver)

    def test_formats_it_has_can_be_declared(self, device: Device) -> None:
        assert "fp32" in device.formats
        assert set(device.formats) <= set(FORMATS)
        for format in device.formats:
            device.declare(format)
            assert torch.get_float32_matmul_precision() == ("high" if format == "tf32" else "highest")

    def test_formats_it_has_not_are_refused(self, device: Device) -> None:
        for format in set(FORMATS) - set(device.formats):
            with pytest.raises(WorldError, match=f"training.format is {format}, which"):
                device.declare(format)

    def test_sixteen_bits_are_made_by_autocast(self, device: Device) -> None:
        names = {"bf16": torch.bfloat16, "fp16": torch.float16}
        for format in device.formats:
            with device.autocast(format):
                assert torch.is_autocast_enabled(self.kind) == (format in names)
                if format in names:
                    assert torch.get_autocast_dtype(self.kind) is names[format]
        assert not torch.is_autocast_enabled(self.kind)
