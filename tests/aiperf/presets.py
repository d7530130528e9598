"""Presets as a run's journal holds them: with the format that "auto" came to."""

from __future__ import annotations

from aiperf.config import Config, load_preset, with_overrides


def resolved_preset(name: str) -> Config:
    return with_overrides(load_preset(name), {"training.format": "bf16"})
