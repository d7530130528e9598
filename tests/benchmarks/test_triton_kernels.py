"""What `make test-kernels` refuses and what it compiles; the compilers themselves are left to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.engines.fused.triton_backend import InTriton
from aiperf.engines.fused.triton_launch import WIDEST_ROW

pytestmark = pytest.mark.triton


def test_what_a_kernel_may_not_do() -> None:
    from benchmarks.triton_kernels import Footprint, Launch

    tile = (("CHANNELS", 128), ("ROWS", 16), ("UNIT", 16))
    launch = Launch("gate", (("images", "*bf16"), ("out", "*bf16")), ("images", "out"), tile, warps=4)
    least = Footprint(registers=128, spilled=0, shared=8 * 1024, wide=4)
    assert list(least.faults(launch, 32)) == []
    assert list(replace(least, wide=2).faults(launch, 64)) == []
    assert list(replace(least, wide=2).faults(replace(launch, aligned=("out",)), 32)) == []
    worse = Footprint(registers=129, spilled=1, shared=8 * 1024 + 1, wide=3)
    assert list(worse.faults(launch, 32)) == [
        "spills",
        "more than 128 registers",
        "more than 8192 bytes of shared memory",
        "narrow accesses",
    ]
    by_element = replace(launch, constants=(("CHANNELS", 2), ("ROWS", 1024), ("UNIT", 2)))
    assert list(replace(worse, registers=200).faults(by_element, 32))[1:] == [
        "more than 8192 bytes of shared memory"
    ]
    row = replace(launch, constants=(("CHANNELS", WIDEST_ROW), ("ROWS", 1), ("UNIT", 16)))
    sums = replace(launch, constants=(("CHANNELS", 8), ("PARTS", 256)))
    assert (row.most_shared, sums.most_shared) == (32 * 1024, 8 * 1024)


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
