"""What `make test-kernels` refuses and what it compiles; the compilers themselves are left to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.engines.fused.triton_launch import WIDEST_ROW

pytestmark = pytest.mark.triton


def test_what_a_kernel_may_not_do() -> None:
    from benchmarks.triton_kernels import Footprint, Launch

    tile = (("CHANNELS", 128), ("ROWS", 16), ("UNIT", 16))
    launch = Launch("gate", (("images", "*bf16"), ("out", "*bf16")), tile, warps=4)
    least = Footprint(registers=128, spilled=0, shared=8 * 1024, wide=4)
    assert list(least.faults(launch, 32)) == []
    assert list(replace(least, wide=2).faults(launch, 64)) == []
    worse = Footprint(registers=129, spilled=1, shared=8 * 1024 + 1, wide=3)
    assert list(worse.faults(launch, 32)) == [
        "spills",
        "more than 128 registers",
        "more than 8192 bytes of shared memory",
        "narrow accesses",
    ]
    row = replace(launch, constants=(("CHANNELS", WIDEST_ROW), ("ROWS", 1), ("UNIT", 16)))
    sums = replace(launch, constants=(("CHANNELS", 8), ("PARTS", 256)))
    assert (row.most_shared, sums.most_shared) == (32 * 1024, 8 * 1024)
