"""Convolutions stay within their memory, on every instruction set that this processor can pretend to have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d
from torch.utils._python_dispatch import TorchDispatchMode

from nas.layers import Conv2d
from nas.modules import module_of
from tests.house.tree import ROOT

# What oneDNN and ATEN may use at the most; either may be lowered, never raised. "": all there is.
INSTRUCTION_SETS = {"native": ("", ""), "AVX2": ("AVX2", "avx2"), "AVX": ("AVX", "default")}
INSTRUCTION_SETS["SSE4.1"] = ("SSE41", "default")
# Of a block as torch takes one for 16 numbers.
WRITES_PAST = """
import ctypes
c = ctypes.CDLL(None)
c.aligned_alloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
block = c.aligned_alloc(64, 64)
ctypes.memset(block + {offset}, 1, 1)
c.free(block)
"""

needs_guard = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="the guard is compiled by cc, for Linux"
)


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The allocator that lets no write past the end of a block go unseen."""
    library = tmp_path_factory.mktemp("guard") / "guard.so"
    source = Path(__file__).with_name("guard.c")
    options = ["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *options, "-o", str(library), str(source)], check=True)
    return library


def guarded(guard: Path, instructions: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A Python program under the guard."""
    onednn, aten = INSTRUCTION_SETS[instructions]
    lowered = {"ONEDNN_MAX_CPU_ISA": onednn, "ATEN_CPU_CAPABILITY": aten}
    environment = {**os.environ, "LD_PRELOAD": str(guard), "PYTHONPATH": str(ROOT)}
    environment |= {name: value for name, value in lowered.items() if value}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3000)


def computed(guard: Path, instructions: str, what: str, number: int = 0) -> tuple[int, str]:
    """The exit status of tests/nas/guarded.py, and the last case that it began."""
    ended = guarded(guard, instructions, Path(__file__).with_name("guarded.py"), what, number)
    last = ended.stdout.strip().splitlines()[-1:]
    return ended.returncode, f"{last}\n{ended.stderr[-2000:]}"


@needs_guard
@pytest.mark.parametrize("offset", [64, -1], ids=["behind", "before"])
def test_the_guard_sees_one_byte(guard: Path, offset: int) -> None:
    assert guarded(guard, "native", "-c", WRITES_PAST.format(offset=0)).returncode == 0
    assert guarded(guard, "native", "-c", WRITES_PAST.format(offset=offset)).returncode < 0


@needs_guard
@pytest.mark.timeout(600)
def test_nothing_writes_outside_its_memory(guard: Path) -> None:
    """And every gradient is that of fp64. Other processors' instructions: test_of_many_too."""
    status, told = computed(guard, "native", "few")
    assert status == 0, told


@needs_guard
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("instructions", "what", "number"),
    [
        *((each, "convolutions", 2000) for each in INSTRUCTION_SETS),
        *((each, "strided pixels", 0) for each in ("native", "AVX2")),
    ],
)
def test_of_many_too(guard: Path, instructions: str, what: str, number: int) -> None:
    status, told = computed(guard, instructions, what, number)
    assert status == 0, told


def of(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


class Strides(TorchDispatchMode):
    """Those of all convolutions and their gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        place = {torch.ops.aten.convolution.default: 3, torch.ops.aten.convolution_backward.default: 4}
        self.seen |= {tuple(args[place[func]])} if func in place else set()
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("channels", [1, 4, 15])
def test_a_convolution_without_its_stride_is_the_same(channels: int, stride: int) -> None:
    """oneDNN's faulty gradient of strided pixels is never asked for."""
    for height, width in ((8, 8), (7, 5), (1, 1), (6, 9)):
        images = of(3, channels, height, width).requires_grad_()
        module = _is_the_same(Conv2d(6, 1, stride), images)
        with Strides() as asked:
            module(images).sum().backward()
        assert asked.seen == {(1, 1)}


@pytest.mark.parametrize(
    "layer", [Conv2d(6, 7, 4, padding=6), Conv2d(6, 2, 3, padding=1), Conv2d(6, (1, 3), (2, 5), padding=0)]
)
def test_a_stride_wider_than_the_image_may_have_two_windows(layer: Conv2d) -> None:
    for height, width in ((1, 3), (2, 3), (4, 4)):
        _is_the_same(layer, of(3, 4, height, width))


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (3, 4), (7, 2), (7, 3)])
def test_no_stride_is_wider_than_the_image(kernel: int, stride: int) -> None:
    """On AVX-512 in bf16, oneDNN reads memory there that it never wrote."""
    for height, width in ((1, 1), (4, 1), (1, 8), (2, 3)):
        module = _is_the_same(Conv2d(6, kernel, stride), of(3, 4, height, width))
        assert module.stride == (min(stride, height), min(stride, width))


def _is_the_same(layer: Conv2d, images: Tensor) -> nn.Module:
    """The module of the layer, which computes what the layer says, and has its one weight."""
    module = module_of(layer, tuple(images.shape[1:])).double()
    copies = (images.detach().clone(memory_format=torch.channels_last) for _ in range(2))
    first, second = (copy.requires_grad_() for copy in copies)
    weight = module.weight.detach().clone().requires_grad_()  # type: ignore[operator]
    found, right = module(first), conv2d(second, weight, None, layer.stride, layer.paddings)
    towards = torch.randn_like(right)
    found.backward(towards)
    right.backward(towards)
    torch.testing.assert_close(found, right, rtol=0, atol=1e-12)
    torch.testing.assert_close(first.grad, second.grad, rtol=0, atol=1e-12)
    torch.testing.assert_close(module.weight.grad, weight.grad, rtol=0, atol=1e-12)
    assert list(module.state_dict()) == ["weight"]
    return module
