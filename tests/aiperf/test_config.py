"""Configurations: what is refused, and in which words."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path

import pytest

from aiperf import config
from aiperf.config import (
    from_toml,
    load_preset,
    parse_setting,
    preset_names,
    preset_text,
    to_toml,
    with_overrides,
)
from aiperf.errors import ConfigError
from tests.tables import ComesTo


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_written_back_as_it_was_read(name: str) -> None:
    config = load_preset(name)
    assert config.preset == name
    assert from_toml(to_toml(config), "again") == config


def test_a_preset_can_be_copied_and_edited(tmp_path: Path) -> None:
    copy = tmp_path / "mine.toml"
    copy.write_text(preset_text("digits").replace("minutes = 2.0", "minutes = 3"), encoding="utf-8")
    assert load_preset(str(copy)).limits.minutes == 3.0


def refused(key: str, value: object) -> None:
    with_overrides(load_preset("digits"), {key: value})


def test_what_cannot_be_is_refused_by_name(comes_to_what_was_read: ComesTo) -> None:
    """And a setting that is typed is read as TOML or as text, and needs a value."""
    comes_to_what_was_read("refused_settings.txt", {**vars(config), **globals(), "nan": nan, "inf": inf})


def test_a_file_that_is_no_toml_is_refused_with_its_name(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("preset = ", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"broken\.toml: "):
        load_preset(str(broken))
    broken.write_bytes(b"preset = '\xff'")
    with pytest.raises(ConfigError, match=r"broken\.toml: byte 10 is not valid UTF-8"):
        load_preset(str(broken))


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 5000], ids=["nested", "digits"])
def test_a_hostile_file_is_refused_like_any_other(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^here: "):
        from_toml(text, "here")
    assert parse_setting(text.replace(" ", ""))[1] == text[4:]
