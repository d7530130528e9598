"""Configurations: what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_written_back_as_it_was_read(name: str) -> None:
    config = load_preset(name)
    assert config.preset == name
    assert from_toml(to_toml(config), "again") == config


def test_a_preset_can_be_copied_and_edited(tmp_path: Path) -> None:
    copy = tmp_path / "mine.toml"
    copy.write_text(preset_text("digits").replace("minutes = 2.0", "minutes = 3"), encoding="utf-8")
    assert load_preset(str(copy)).limits.minutes == 3.0


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("training.batchsize", 3, "no key 'training.batchsize'; did you mean 'training.batch_size'? keys: "),
        ("training.batch_size", "x", "training.batch_size is 'x'; it must be"),
        ("training.batch_size", 1, "training.batch_size is 1; it must be at least 2"),
        ("search.prepared", 2, "search.prepared is 2; it must be 0 or 1"),
        ("training.epochs", [], "training.epochs: give one whole number"),
        ("training.learning_rate", 0.0, "training.learning_rate is 0.0; it must be above 0"),
        ("training.warmup", 1.0, "training.warmup is 1.0"),
        ("training.format", "fp8", "training.format is 'fp8'; it must be one of auto, fp32, tf32, bf16, "),
        ("data.name", "mnist", "data.name is 'mnist'; it must be one of digits, idx"),
        ("data.augmentation", "spin", "data.augmentation is 'spin'; it must be one of none, shift"),
        ("data.path", "pictures", "data.path is 'pictures', but data.name is 'digits', which reads no files"),
        ("search.name", "grid", "search.name is 'grid'; it must be one of evolution, final, foresight"),
        ("search.bounds.min_operations", 0.0, "search.bounds: min_operations must be above 0"),
        ("limits.minutes", 0.0, "limits: set minutes, max_trials or target_error"),
        ("limits.minutes", -1.0, "limits must not be negative"),
        ("limits.minutes", float("nan"), "limits.minutes is nan; it must be a number up to 2147483647"),
        ("limits.target_error", 5.0, "limits.target_error is 5.0; give a fraction"),
        ("training.weight_decay", float("inf"), "training.weight_decay is inf; it must be a number"),
        ("training.epochs", [1, 1 << 40], "training.epochs is 1.09951e+12; it must be a number"),
        ("data.size", 1 << 64, "data.size is 1.84467e+19; it must be a number up to 2147483647"),
        ("random_seed", -1, "random_seed is -1; it must be at least 0"),
        ("seed_architecture", "\udcff.json", "seed_architecture is '\\udcff.json', which is not valid UTF-8"),
        ("preset", "a\x00b", "preset is 'a\\x00b'; it names the run directory"),
    ],
)
def test_what_cannot_be_is_refused_by_name(key: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        with_overrides(load_preset("digits"), {key: value})
    assert words in str(refusal.value)


def test_an_unknown_preset_names_those_there_are() -> None:
    names = "digits, own, ranked, ranked-text, synthetic, synthetic-text, text"
    with pytest.raises(ConfigError, match=f"no preset 'cifar'; presets: {names}"):
        load_preset("cifar")


def test_a_file_that_is_no_toml_or_lacks_a_key_is_refused_with_its_name(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("preset = ", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"broken\.toml: "):
        load_preset(str(broken))
    with pytest.raises(ConfigError, match="give a readable TOML file"):
        load_preset(str(tmp_path / "absent.toml"))
    broken.write_bytes(b"preset = '\xff'")
    with pytest.raises(ConfigError, match=r"broken\.toml: byte 10 is not valid UTF-8"):
        load_preset(str(broken))
    with pytest.raises(ConfigError, match="batch_size"):
        from_toml(preset_text("digits").replace("batch_size", "#batch_size"), "here")


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 5000], ids=["nested", "digits"])
def test_a_hostile_file_is_refused_like_any_other(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^here: "):
        from_toml(text, "here")
    assert parse_setting(text.replace(" ", ""))[1] == text[4:]


@pytest.mark.parametrize(
    ("text", "value"),
    [("a.b=3", 3), ("a.b=0.5", 0.5), ("a.b=[1, 2]", [1, 2]), ("a.b=true", True), ("a.b=bf16", "bf16")],
)
def test_a_setting_is_read_as_toml_or_as_text_and_needs_a_value(text: str, value: object) -> None:
    assert parse_setting(text) == ("a.b", value)
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        parse_setting(text.partition("=")[0])
