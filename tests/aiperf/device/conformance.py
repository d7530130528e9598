"""What every kind of device must do. A kind's own test class gives the fixtures and is a subclass."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from aiperf.config import FORMATS
from aiperf.device import KINDS, Device, bind, count_devices
from aiperf.errors import WorldError
from aiperf.wire.reports import TRAITS


class DeviceConformance:
    """Needs the fixtures `device`, bound, and `num_devices`."""

    kind: str
    backend: str
    sensors: str

    def test_it_is_found_by_its_kind(self, device: Device, num_devices: int) -> None:
        assert type(device) is KINDS[self.kind]
        assert count_devices(self.kind) == num_devices
        assert device.torch.type == device.kind == self.kind
        assert device.name == device.name.strip() != ""
        assert device.memory_bytes > 1 << 30
        assert (device.backend, device.sensors) == (self.backend, self.sensors)
        assert not device.sensors or find_spec(f"aiperf.telemetry.{device.sensors}")

    def test_every_local_rank_binds_its_own(self, device: Device, num_devices: int) -> None:
        bound = [bind(self.kind, index, num_devices) for index in range(num_devices)]
        assert [each.index for each in bound] == list(range(num_devices))
        assert len({each.identity for each in bound}) == num_devices
        assert device in bound
        with pytest.raises(WorldError, match=f"{self.kind} device {num_devices} requested"):
            bind(self.kind, num_devices)

    def test_it_can_be_waited_for_and_its_software_is_told(self, device: Device) -> None:
        device.synchronise()
        device.clean()
        found = device.software()
        assert found["torch"] == torch.__version__
        assert all(isinstance(name, str) and isinstance(text, str) for name, text in found.items())
        assert ("driver" in found) == bool(device.driver)

    def test_equal_bits_are_asked_for_and_what_they_depend_on_is_told(self, device: Device) -> None:
        threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
        benchmark = torch.backends.cudnn.benchmark = True
        tuned = self.kind == "cuda" and torch.cuda.tunable.is_enabled()
        with device.reproducible():
            assert torch.are_deterministic_algorithms_enabled()
            assert torch.get_num_threads() == (1 if self.kind == "cpu" else threads)
            assert torch.backends.cudnn.benchmark == (self.kind != "cuda")
            assert self.kind != "cuda" or not torch.cuda.tunable.is_enabled()
        assert (torch.get_num_threads(), torch.get_deterministic_debug_mode()) == (threads, mode)
        assert torch.backends.cudnn.benchmark == benchmark
        assert self.kind != "cuda" or torch.cuda.tunable.is_enabled() == tuned
        assert {"torch build"} <= device.traits.keys() <= {*TRAITS}
        assert all(isinstance(text, str) and text for text in device.traits.values())

    def test_formats_are_declared_or_refused_and_sixteen_bits_are_made_by_autocast(
        self, device: Device
    ) -> None:
        names = {"bf16": torch.bfloat16, "fp16": torch.float16}
        assert "fp32" in device.formats
        assert set(device.formats) <= set(FORMATS)
        for format in device.formats:
            device.declare(format)
            assert torch.get_float32_matmul_precision() == ("high" if format == "tf32" else "highest")
            with device.autocast(format):
                assert torch.is_autocast_enabled(self.kind) == (format in names)
                assert format not in names or torch.get_autocast_dtype(self.kind) is names[format]
        assert not torch.is_autocast_enabled(self.kind)
        for format in set(FORMATS) - set(device.formats):
            with pytest.raises(WorldError, match=f"training.format is {format}, which"):
                device.declare(format)
