"""A group of two real ranks makes the steps that one process makes with the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mpi.steps.stepped import COMPRESSED, TOLERANCE, difference, parameters

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]


@pytest.mark.parametrize("settings", [(), ("compression=fp16",)])
def test_two_ranks_are_one_process_with_the_double_batch(tmp_path: Path, settings: tuple[str, ...]) -> None:
    alone, *group = parameters("ddp", tmp_path, "batch_norm=synchronised", *settings)
    assert difference(*group) == 0, "the ranks of a group have the same network"
    if settings:
        assert TOLERANCE < difference(alone, group[0]) < COMPRESSED
    else:
        assert difference(alone, group[0]) < TOLERANCE


def test_local_statistics_are_not_those_of_the_whole_batch(tmp_path: Path) -> None:
    """Each half is normalised by itself; the ranks agree all the same."""
    alone, *group = parameters("ddp", tmp_path)
    assert difference(*group) == 0
    assert difference(alone, group[0]) > 100 * TOLERANCE
