"""A group of two real ranks makes the steps that one process makes with the whole batch."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.mpi.jobs import OPEN_MPI, environ

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(200)]

# fp32: the sum over two halves of a batch differs from that over the whole in its last bits, and three
# steps with momentum carry them on. A missing average would be off by 1e-2.
TOLERANCE = 2e-6


def parameters(backend: str, directory: Path, *settings: str) -> list[dict[str, np.ndarray]]:
    """Of each rank: the one alone, then the two of the group."""
    program = (OPEN_MPI.python, "-m", "tests.mpi.three_steps", backend, str(directory), *settings)
    subprocess.run(OPEN_MPI.command(3, *program), env=environ(), check=True, timeout=150)
    return [dict(np.load(directory / f"{rank}.npz")) for rank in range(3)]


def difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def backends() -> list[str]:
    try:
        import horovod  # noqa: F401
    except ImportError:
        return ["ddp"]
    return ["ddp", "horovod"]


def test_two_ranks_are_one_process_with_the_double_batch(tmp_path: Path) -> None:
    found = {}
    for backend in backends():
        alone, *group = parameters(backend, tmp_path, "batch_norm=synchronised")
        assert difference(*group) == 0, "the ranks of a group have the same network"
        assert difference(alone, group[0]) < TOLERANCE
        found[backend] = group[0]
    if "horovod" in found:
        assert difference(found["ddp"], found["horovod"]) < TOLERANCE


def test_local_statistics_are_the_mean_of_the_ranks_own(tmp_path: Path) -> None:
    for backend in backends():
        alone, *group = parameters(backend, tmp_path)
        assert difference(*group) == 0
        assert (
            difference(alone, group[0]) > 100 * TOLERANCE
        )  # as it should: each half is normalised by itself


def test_compressed_gradients_are_nearly_the_same(tmp_path: Path) -> None:
    for backend in backends():
        alone, *group = parameters(backend, tmp_path, "batch_norm=synchronised", "compression=fp16")
        assert difference(*group) == 0
        assert TOLERANCE < difference(alone, group[0]) < 1e-3
