"""What computes fused steps on a device, and why none does."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from aiperf.engines.fused import Fused
from aiperf.engines.fused.triton_launch import FEWEST_TILES, PROGRAMS, tiling
from aiperf.engines.registry import FusedGraphed
from tests.aiperf.engines.recording import recording


class Accelerator:
    """Stands for a device that is not here, which can capture."""

    why_not_captured = ""

    def __init__(self, kind: str, formats: tuple[str, ...] = ("bf16", "fp32")) -> None:
        self.kind, self.formats, self.name = kind, formats, f"some {kind}"


@pytest.mark.parametrize(
    ("device", "version", "reason"),
    [
        (Accelerator("cuda"), "3.2.0", ""),
        (Accelerator("cuda"), "3.10.1+rocm7", ""),
        (Accelerator("cuda"), "3.1.0", "triton is 3.1.0; the kernels need 3.2 or newer"),
        (Accelerator("cuda"), "", "the package triton is not installed here"),
        (
            Accelerator("cuda", ("fp16", "fp32")),
            "3.9.0",
            "some cuda is older than compute capability 8.0, for which the kernels are compiled",
        ),
        (Accelerator("npu"), "3.9.0", "there are no fused steps for npu devices"),
        (recording(), "", ""),
    ],
    ids=["oldest", "for AMD", "too old", "none", "an old device", "another device", "a CPU"],
)
def test_where_fused_steps_can_be_made(
    device: Accelerator, version: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = ModuleType("triton")
    triton.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", triton if version else None)  # type: ignore[arg-type]
    assert Fused.why_not(device) == reason  # type: ignore[arg-type]
    assert FusedGraphed.why_not(device) == reason  # type: ignore[arg-type]


@pytest.mark.parametrize("channels", [1, 3, 24, 64, 96, 131, 160, 2048, 2051])
@pytest.mark.parametrize("rows", [1, 98, 3211264, 2**31])
def test_all_of_the_images_is_divided_among_programs(rows: int, channels: int) -> None:
    tiles = tiling(rows, channels, PROGRAMS, FEWEST_TILES)
    height, width = tiles.tile
    assert tiles.channels == channels
    assert tiles.chunk % height == 0
    assert (tiles.chunks - 1) * tiles.chunk < rows <= tiles.chunks * tiles.chunk
    assert height * width == 2048
    assert tiles.programs <= PROGRAMS or tiles.chunks == 1
    assert -(-channels // width) * width < 2 * channels
