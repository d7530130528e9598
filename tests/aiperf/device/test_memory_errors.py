"""Each library has its own words for a lack of memory; none of them has an exception class for it."""

from __future__ import annotations

import pytest
import torch

from aiperf.device.device import is_out_of_memory, memory_errors
from tests.tables import ComesTo


def is_known(error: Exception) -> bool:
    known = is_out_of_memory(error)
    with pytest.raises(torch.OutOfMemoryError if known else type(error)), memory_errors():
        raise error
    return known


def test_a_lack_of_memory_is_known_by_its_words(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("memory_errors.txt", {**globals(), "distributed": torch.distributed})
