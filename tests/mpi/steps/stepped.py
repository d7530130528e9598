"""What three steps of a group of two real ranks make of a network, beside those of one process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from tests.mpi.jobs import OPEN_MPI, environ

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
