"""What computes fused steps on a device, and why none does."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from aiperf.engines.fused import Fused
from aiperf.engines.fused.triton_launch import FEWEST_TILES, PROGRAMS, tiling
from aiperf.engines.registry import FusedGraphed
from tests.aiperf.engines.recording import recording
from tests.tables import ComesTo


class Accelerator:
    """Stands for a device that is not here, which can capture."""

    why_not_captured = ""

    def __init__(self, kind: str, formats: tuple[str, ...] = ("bf16", "fp32")) -> None:
        self.kind, self.formats, self.name = kind, formats, f"some {kind}"


def test_where_fused_steps_can_be_made(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    def why_not(device: Any, version: str) -> str:
        """By this version of Triton, or without it."""
        triton: Any = ModuleType("triton")
        triton.__version__ = version
        monkeypatch.setitem(sys.modules, "triton", triton if version else None)
        assert FusedGraphed.why_not(device) == Fused.why_not(device)
        return Fused.why_not(device)

    names = {"why_not": why_not, "Accelerator": Accelerator, "recording": recording}
    comes_to_what_was_read("fused_devices.txt", names)


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
