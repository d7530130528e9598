"""Every kind of device does what the interface says: the CPU for real, the others on fakes of their modules.

On a machine with an accelerator `pytest -m gpu` asks the same of the real one.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from aiperf.device import KINDS, Device, bind, cpu, cuda, first_kind, npu, xpu
from aiperf.device.device import BATCHES, TRAINING, is_out_of_memory, memory_errors
from aiperf.errors import WorldError
from aiperf.training.surroundings import read_settings
from tests.aiperf.device import vendors
from tests.aiperf.device.conformance import DeviceConformance
from tests.tables import ComesTo


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Whatever a test sets in torch is as before."""
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    tf32, tries = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(precision)
    torch.set_num_threads(threads)
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = tf32, tries


class TestCpu(DeviceConformance):
    kind, backend, sensors = "cpu", "gloo", ""

    @pytest.fixture
    def num_devices(self) -> int:
        return 1

    @pytest.fixture
    def device(self) -> Device:
        return bind("cpu", 0)

    def test_its_cores_are_shared_by_the_ranks_of_a_host(
        self, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
    ) -> None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        monkeypatch.setattr(cpu.os, "cpu_count", lambda: 8)

        def threads(own: set[int], quota: float, ranks: int) -> int:
            monkeypatch.setattr(cpu.os, "sched_getaffinity", lambda process: own)
            monkeypatch.setattr(cpu.cgroup, "cores", lambda: quota)
            bind("cpu", 0, ranks)
            return torch.get_num_threads()

        comes_to_what_was_read("cpu_threads.txt", {"threads": threads, "ALL": set(range(8)), "inf": inf})

    def test_only_where_it_was_not_asked_for_unused_accelerators_are_noted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("aiperf.device.first_kind", lambda: "cpu")
        monkeypatch.setattr("aiperf.device.refuse_unseen", lambda torch, environment, faults: "no driver")
        assert (bind("auto", 0).note, bind("cpu", 0).note) == ("no driver", "")

    def test_a_container_has_less_memory_than_its_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = bind("cpu", 0).memory_bytes
        monkeypatch.setattr(cpu.cgroup, "memory_bytes", lambda: 2.0**30)
        assert bind("cpu", 0).memory_bytes == 1 << 30 < whole


class OnFake(DeviceConformance):
    """The vendor's module is a fake that remembers."""

    module: vendors.FakeModule
    install: ClassVar[staticmethod[[pytest.MonkeyPatch], vendors.FakeModule]]

    @pytest.fixture
    def num_devices(self) -> int:
        return 2

    @pytest.fixture
    def device(self, monkeypatch: pytest.MonkeyPatch) -> Device:
        self.module = type(self).install(monkeypatch)
        return bind(self.kind, 1)

    def test_its_own_module_is_told(self, device: Device) -> None:
        device.synchronise()
        device.clean()
        assert self.module.calls == [("set_device", 1), ("synchronize", 1), ("empty_cache", None)]

    def test_there_is_one_stream_for_each_purpose(self, device: Device) -> None:
        """Freed memory is reused only on its own stream."""
        first, again, other = (device.aside(each) for each in (BATCHES, BATCHES, TRAINING))
        assert first is again
        outside, (stream, _) = self.module.submitted_to, self.module.streams
        with first.begin():
            assert self.module.submitted_to is stream
        recorded = list[object]()
        on_device: Any = SimpleNamespace(record_stream=recorded.append, is_cpu=False)
        first.join(torch.zeros(()), on_device)
        assert (outside.waited_for, recorded, stream.device) == ([stream], [outside], 1)
        other.finish()
        assert [each.ended for each in self.module.streams] == [False, True]

    def test_a_thread_that_enters_has_the_device(self, device: Device) -> None:
        """A new one has device 0."""
        self.module.current = 0
        device.enter_thread()
        assert self.module.current == 1

    def test_it_is_preferred_to_the_cpu(self, device: Device) -> None:
        assert first_kind() == self.kind

    def test_a_runtime_says_why_it_shows_no_device(self, device: Device) -> None:
        """Without support for such devices, without a driver, or if none was given, it has no fault."""
        for error, fault in (
            (RuntimeError("CUDA error 802: system not yet initialized.\nSee …"), True),
            (OSError("libascend_hal.so: cannot open shared object file"), True),
            (AssertionError("Torch not compiled with CUDA enabled"), False),
            (RuntimeError("Found no NVIDIA driver on your system. Please check"), False),
            (RuntimeError("No HIP GPUs are available"), False),
            (None, False),
        ):
            self.module.fault = error
            found = KINDS[self.kind].fault()  # type: ignore[attr-defined]
            assert found == (str(error).partition(".\n")[0] if fault else "")


class TestCuda(OnFake):
    kind, backend, sensors = "cuda", "nccl", "nvidia"

    install = staticmethod(vendors.install_cuda)

    def test_it_has_an_address_where_torch_says_so(
        self, device: Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert device.pci_address == "0000:c2:00.0"
        assert device.traits["architecture"] == "9"
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace())
        assert device.pci_address == ""

    def test_work_is_captured_on_the_stream_of_training(
        self, device: Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On which DDP is made; and in this thread alone, because another one prepares the next trial."""
        seen = list[object]()

        @contextmanager
        def graph(graph: object, pool: object, stream: object, capture_error_mode: str) -> Iterator[None]:
            seen.extend((stream, capture_error_mode))
            yield

        monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
        monkeypatch.setattr(torch.cuda, "graph", graph)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        capture = device.capture()
        capture.warm_up(lambda: seen.append(self.module.submitted_to))
        capture.record(lambda: seen.append("recorded"))
        stream = device.aside(TRAINING).stream  # type: ignore[attr-defined]
        assert seen == [stream, stream, "thread_local", "recorded"]
        assert (stream.device, stream.waited_for) == (1, [self.module.submitted_to])

    def test_tf32_is_set_for_convolutions_too(self, device: Device) -> None:
        device.declare("tf32")
        assert torch.backends.cudnn.allow_tf32
        device.declare("bf16")
        assert not torch.backends.cudnn.allow_tf32

    def test_what_came_before_ampere_has_neither_bf16_nor_tf32(
        self, device: Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (7, 0))
        assert device.formats == ("fp16", "fp32")

    def test_the_driver_is_read_where_it_says_so(
        self, device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        path, module = tmp_path / "version", "NVIDIA UNIX Open Kernel Module for x86_64  580.65.06"
        path.write_text(f"NVRM version: {module}  Release Build  (root@host)\nGCC version:  gcc version 12\n")
        monkeypatch.setattr(cuda, "NVIDIA_DRIVER", path)
        assert device.driver == device.software()["driver"] == "580.65.06"


def miopen_keeps_channels_last(variable: str) -> bool:
    return os.environ.get(variable) == "1"


class TestRocm(OnFake):
    kind, backend, sensors = "cuda", "nccl", "amd"

    @pytest.fixture(autouse=True)
    def of_no_site(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in cuda.SUGGEST_NHWC:  # set first, so that it is as before after the test
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)

    install = staticmethod(vendors.install_rocm)

    def test_images_keep_their_format_in_miopen(
        self, device: Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Torch asks as ATen/native/ConvUtils.h does, by c10::utils::check_env: not set is no."""
        assert [miopen_keeps_channels_last(name) for name in cuda.SUGGEST_NHWC] == [True, True]
        assert device.slowed_by == ""
        monkeypatch.setenv(cuda.SUGGEST_NHWC[1], "0")  # of the site
        assert not miopen_keeps_channels_last(cuda.SUGGEST_NHWC[1])
        assert bind("cuda", 1).slowed_by.startswith("PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM is not 1, so ")
        assert read_settings(os.environ)["PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM"] == "0"

    def test_its_version_is_told_in_place_of_cuda(self, device: Device) -> None:
        assert device.software()["cuda"] == "6.4.43482"


class TestNpu(OnFake):
    kind, backend, sensors = "npu", "hccl", "ascend"

    install = staticmethod(vendors.install_npu)

    def test_fp32_is_not_hf32(self, device: Device) -> None:
        assert torch.npu.conv.allow_hf32
        device.declare("fp32")
        assert not torch.npu.conv.allow_hf32

    def test_images_are_contiguous(self, device: Device) -> None:
        images = torch.zeros(2, 4, 4, 3).permute(0, 3, 1, 2)
        assert device.arranged(images).is_contiguous()
        assert bind("cpu", 0).arranged(images) is images  # which are read with channels last

    def test_it_is_known_by_its_number_on_the_host(
        self, device: Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert device.identity == "npu-1"
        assert device.name == "Ascend910B3?", "its driver gives it a letter that nobody sees"
        for text, number in (("4,6", 6), ("4-7", 5), ("0,2-3", 2), ("6, 4", 4), ("auto", 1), ("", 1)):
            monkeypatch.setenv(npu.VISIBLE, text)
            assert device.identity == f"npu-{number}"


class TestXpu(OnFake):
    kind, backend, sensors = "xpu", "xccl", "intel"

    install = staticmethod(vendors.install_xpu)

    @pytest.mark.usefixtures("device")
    def test_an_old_torch_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(xpu, "OLDEST_TORCH", (99, 0))
        with pytest.raises(WorldError, match=r"Intel.s devices need PyTorch 99\.0 or newer; this is "):
            bind("xpu", 0)

    def test_its_driver_is_among_its_properties(
        self, device: Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert device.driver == "1.3.30872"
        monkeypatch.setattr(xpu.Xpu, "identity", "")
        assert not device.sensors, "without a UUID, as before torch 2.9, nothing finds it"


@pytest.mark.gpu
class TestRealCuda(DeviceConformance):
    kind, backend = "cuda", "nccl"

    @pytest.fixture
    def num_devices(self) -> int:
        return torch.cuda.device_count()

    @pytest.fixture
    def device(self) -> Device:
        return bind("cuda", 0)

    @property
    def sensors(self) -> str:  # type: ignore[override]
        return "amd" if torch.version.hip else "nvidia"


@pytest.mark.parametrize(("fake", "real"), [(vendors.FakeCuda, torch.cuda), (vendors.FakeXpu, torch.xpu)])
def test_the_fakes_have_the_signatures_of_the_real_modules(fake: type, real: object) -> None:
    if fake is vendors.FakeXpu and xpu.is_too_old():
        pytest.skip(f"torch.xpu of {torch.__version__} is refused")
    offered = [
        word
        for kind in fake.__mro__[:-1]
        for word, value in vars(kind).items()
        if callable(value) and not word.startswith("_")
    ]
    assert len(offered) > 5
    for word in offered:
        own = list(inspect.signature(getattr(fake, word)).parameters)[1:]
        assert own == list(inspect.signature(getattr(real, word)).parameters), word


def is_known(error: Exception) -> bool:
    known = is_out_of_memory(error)
    with pytest.raises(torch.OutOfMemoryError if known else type(error)), memory_errors():
        raise error
    return known


def test_a_lack_of_memory_is_known_by_its_words(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("memory_errors.txt", {**globals(), "distributed": torch.distributed})
