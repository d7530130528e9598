"""A group of two real ranks makes the steps that one process makes with the whole batch."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.mpi.jobs import OPEN_MPI, environ

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]

# fp32: the sum over two halves of a batch differs from that over the whole in its last bits, and three
# steps with momentum carry them on. A missing average would be off by 1e-2.
TOLERANCE = 2e-6
COMPRESSED = 1e-3
"""Tolerance with gradients that are sent in 16 bits."""


Ranks = list[dict[str, np.ndarray]]
"""Parameters of each rank: first the one alone with the double batch, then the two of the group."""


def parameters(backend: str, directory: Path, *settings: str) -> dict[str, Ranks]:
    """What the same ranks make with each of these settings of training."""
    program = (OPEN_MPI.python, "-m", "tests.mpi.steps.three_steps", backend, str(directory), *settings)
    subprocess.run(OPEN_MPI.command(3, *program), env=environ(), check=True, timeout=600)
    return {
        each: [dict(np.load(directory / f"{number}-{rank}.npz")) for rank in range(3)]
        for number, each in enumerate(settings)
    }


def difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


WHOLE = "batch_norm=synchronised"
SENT_IN_16_BITS = f"{WHOLE} compression=fp16"
EACH_ITS_HALF = "batch_norm=local"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ranks]:
    return parameters("ddp", tmp_path_factory.mktemp("steps"), WHOLE, SENT_IN_16_BITS, EACH_ITS_HALF)


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [
        (WHOLE, 0.0, TOLERANCE),
        (SENT_IN_16_BITS, TOLERANCE, COMPRESSED),
        (EACH_ITS_HALF, 100 * TOLERANCE, 1.0),
    ],
)
def test_two_ranks_are_one_process_with_the_double_batch(
    made: dict[str, Ranks], settings: str, least: float, most: float
) -> None:
    """But for what is rounded on its way, and where each half is normalised by itself."""
    alone, *group = made[settings]
    assert difference(*group) == 0, "the ranks of a group have the same network"
    assert least <= difference(alone, group[0]) < most
