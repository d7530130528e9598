"""A profile on a terminal, against a text that a person has read; and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.exports.profile import profile_json, profile_text
from analysis.readings.profile.profile import Profile
from tests.analysis.readings.profile.recorded import RECORDED

FOUND = Profile.of(RECORDED)


def test_the_text_is_as_it_was_read() -> None:
    expected = Path(__file__).with_name("profile.txt").read_text(encoding="utf-8")
    assert profile_text([FOUND, FOUND], "seed made-up") + "\n" == expected


def test_json_has_every_row_and_no_number_that_is_none() -> None:
    found = json.loads(json.dumps(profile_json([FOUND], "seed made-up"), allow_nan=False))
    (size,) = found["sizes"]
    assert sum(part["seconds"] for part in size["phases"]) == pytest.approx(size["step_seconds"], rel=1e-12)
    assert [node["name"] for node in size["nodes"]][:4] == ["conv", "add", "pool", "classifier"]
    assert size["profiled_over_plain"] == 1.2
    assert size["memory"][-1] == {"name": "peak", "measured": 2000, "modelled": 1920, "predicted": 1720}
