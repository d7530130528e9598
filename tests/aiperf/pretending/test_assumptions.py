"""A file of assumptions says all of them, and what is wrong with it is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.config import load_preset, with_overrides
from aiperf.errors import ConfigError
from aiperf.pretending.assumptions import assumed, assumption_names, assumptions_toml
from aiperf.pretending.rank_report import pretended_manifest
from aiperf.rules.eligibility import unrankable

LAPTOP, RATE = assumptions_toml(assumed("laptop")), "5000000000.0"


def test_what_is_packaged_can_be_read_and_written(tmp_path: Path) -> None:
    assert assumption_names() == ["h100", "laptop"]
    for name in assumption_names():
        path = tmp_path / f"{name}.toml"
        path.write_text(assumptions_toml(assumed(name)), encoding="utf-8")
        assert assumed(str(path)) == assumed(name)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", "\nbeds = 3", r"unknown key data\.beds; known: image_bytes, node_cache_bytes"),
        ("ops_per_second", "#", "speed lacks ops_per_second"),
        (RATE, "-5e9", "speed.ops_per_second is -5"),
        (RATE, "0", "speed.ops_per_second is 0; it must be above 0"),
        (RATE, "nan", "speed.ops_per_second is nan; it must be a number"),
        (RATE, "inf", "speed.ops_per_second is inf"),
        (RATE, '"fast"', "speed.ops_per_second is 'fast'"),
        (RATE, "1e-300", "speed.ops_per_second is 1e-300; it must be 1e-12 or"),
        (RATE, "1e300", r"is 1e\+300; it must be at most 1e\+24"),
        ("overlap = 0.0", "overlap = 1.1", "it is a fraction and must be at most 1"),
        ("block = 0.02", "block = 1000", "spread.block is 1000.0; as a spread it must be at most 10"),
        ("floor = 0.03", "floor = 5", "errors.images.floor is 5.0; it is a fraction"),
        ("oversubscription = 1.0", "oversubscription = 0.5", "oversubscription is 0.5; it must be 1 "),
        ("slowdown = 0.0", "slowdown = 1", "heat.slowdown is 1.0; it is a fraction and must be below 1"),
        ('name = "laptops"', 'name = " "', "name is empty; describe the machine model"),
        ('device = "modelled laptop"', 'device = ""', "device is empty"),
        ("8589934592", "0", "memory_bytes is 0; it must be above 0"),
        ("fp32", "fp8", "format is 'fp8'; it must be one of fp32, tf32"),
        (LAPTOP, "[speed]\n" + LAPTOP, "twice|overwrite|already"),
        (LAPTOP, "x = " + "[" * 50_000, "nested|depth|recursion"),
        (LAPTOP, "speed = 3", "speed is 3"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(LAPTOP.replace(old, new) if old else LAPTOP + new, encoding="utf-8")
    with pytest.raises(ConfigError, match=told) as caught:
        assumed(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no machine model 'h200'; use h100, laptop, or a file"):
        assumed("h200")
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        assumed(str(tmp_path / "nowhere.toml"))


def test_a_ranked_run_can_be_pretended_without_its_images() -> None:
    config = with_overrides(load_preset("ranked"), {"training.format": "bf16"})
    assert unrankable(config, pretended_manifest(config)) == []
