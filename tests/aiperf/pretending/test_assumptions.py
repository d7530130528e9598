"""A file of assumptions says all of them, and what is wrong with it is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.config import load_preset, with_overrides
from aiperf.errors import ConfigError
from aiperf.pretending.assumptions import assumed, assumption_names, assumptions_toml
from aiperf.pretending.rank_report import pretended_manifest
from aiperf.rules.eligibility import unrankable
from tests.tables import ComesTo

LAPTOP, RATE = assumptions_toml(assumed("laptop")), "5000000000.0"


def test_what_is_packaged_can_be_read_and_written(tmp_path: Path) -> None:
    assert assumption_names() == ["h100", "laptop"]
    for name in assumption_names():
        path = tmp_path / f"{name}.toml"
        path.write_text(assumptions_toml(assumed(name)), encoding="utf-8")
        assert assumed(str(path)) == assumed(name)


def with_change(old: str, new: str) -> None:
    Path("mine.toml").write_text(LAPTOP.replace(old, new) if old else LAPTOP + new, encoding="utf-8")
    assumed("mine.toml")


def test_what_is_wrong_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    monkeypatch.chdir(tmp_path)
    comes_to_what_was_read("refused_assumptions.txt", globals())
    for wrong in ("[speed]\n" + LAPTOP, "x = " + "[" * 50_000):  # told by the parser of each Python
        with pytest.raises(ConfigError, match=r"^mine\.toml: .*$"):
            with_change(LAPTOP, wrong)


def test_a_ranked_run_can_be_pretended_without_its_images() -> None:
    config = with_overrides(load_preset("ranked"), {"training.format": "bf16"})
    assert unrankable(config, pretended_manifest(config)) == []
