"""A group of two real ranks makes the steps that one process makes with the whole batch."""

from __future__ import annotations

import pytest

from tests.mpi.steps.stepped import COMPRESSED, TOLERANCE, Ranks, difference, parameters

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]

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
