"""What `make test-kernels` refuses and what it compiles; the compilers themselves are left to it."""

from __future__ import annotations

import pytest

from aiperf.engines.fused.triton_backend import InTriton
from aiperf.engines.fused.triton_launch import WIDEST_ROW
from tests.tables import ComesTo

pytestmark = pytest.mark.triton


def test_what_a_kernel_may_not_do(comes_to_what_was_read: ComesTo) -> None:
    """Within its bounds at first; then beyond one of them, or another kernel has other ones."""
    from benchmarks.triton_kernels import Footprint, Launch

    least = {"registers": 128, "spilled": 0, "shared": 8 * 1024, "wide": 4}

    def launched(aligned: str = "images out", **tile: int) -> Launch:
        constants = tuple((tile or {"CHANNELS": 128, "ROWS": 16, "UNIT": 16}).items())
        pointers = (("images", "*bf16"), ("out", "*bf16"))
        return Launch("gate", pointers, tuple(aligned.split()), constants, warps=4)

    def faults(lanes: int = 32, launch: Launch | None = None, **found: int) -> list[str]:
        return [*Footprint(**{**least, **found}).faults(launch or launched(), lanes)]

    names = {"faults": faults, "launched": launched, "WIDEST_ROW": WIDEST_ROW}
    comes_to_what_was_read("triton_faults.txt", names)


def test_what_is_compiled() -> None:
    """Every number format, every power of two by which rows can be aligned, and statistics whose second half
    is not aligned."""
    from benchmarks.triton_kernels import TYPES, launches, networks

    formats, units, unaligned = set(), set(), set()
    for name, graph, format, _ in networks():
        formats.add(format)
        if name in ("digits with gates", "6 and 9 channels"):
            for launch in launches(graph, format):
                units.add(dict(launch.constants).get("UNIT"))
                pointers = {argument for argument, kind in launch.signature if kind in TYPES.values()}
                unaligned |= {(launch.kernel, each) for each in pointers - set(launch.aligned)}
    assert formats == set(InTriton.formats)
    assert units == {None, 1, 2, 4, 8, 16}
    assert unaligned == {("normalise", "spread")}
