"""`run --dry-run`: what it supposes of images that nobody has read yet."""

from __future__ import annotations

import pytest

from aiperf.config import load_preset, with_overrides
from aiperf.errors import ConfigError
from aiperf.ranks import Ranks, Wanted
from aiperf.rehearsal import rehearsal_text

RANKS = Ranks(Wanted("cpu"))


def test_the_digits_have_their_pinned_list_whatever_is_held_back() -> None:
    config = with_overrides(load_preset("digits"), {"data.training_images": 0, "data.validation_images": 300})
    assert "digits, 200 training, 300 validation images" in rehearsal_text(config, RANKS, 1000.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data.name": "synthetic", "data.training_images": 0}, "none of the 0 that synthetic is supposed"),
        (
            {"data.name": "idx", "data.training_images": 0, "data.validation_images": 60_000},
            "none of the 60,000 that idx is supposed to have; give data.training_images",
        ),
    ],
)
def test_a_set_of_which_nothing_is_left_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        rehearsal_text(with_overrides(load_preset("digits"), changes), RANKS, 1000.0)
    assert words in str(refusal.value)
