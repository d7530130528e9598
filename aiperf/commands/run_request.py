"""The options of a run as the user gave them, and the configuration that follows from them, from the batch
job and from the images."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from aiperf.config import BoundsConfig, Config, load_preset, parse_setting, with_overrides
from aiperf.errors import ConfigError
from launch.current_job import job_name, job_seconds_left
from launch.job import MARGIN_SECONDS

DEFAULT, OWN = "digits", "own"
"""Presets: the default one, and the one for the user's own images."""
OF_IMAGES = ("data.channels", "data.classes", "data.size")
COUNTS = ("data.training_examples", "data.validation_examples")


@dataclass(frozen=True)
class RunRequest:
    """Options of a run as the user gave them. The configuration is made from them in the master's process
    only."""

    preset: str
    minutes: float | None
    hours: float | None
    settings: tuple[str, ...]
    overrides: Mapping[str, Any]
    """Values of options for a key of the configuration, by dotted key."""

    def config(self) -> Config:
        """The configuration of the run. Raises ConfigError."""
        length = _minutes_of_the_job() if self.minutes is None and self.hours is None else None
        of_the_job = {} if length is None else {"limits.minutes": length}
        given = self.given()
        of_the_images = _inferred(given) if self.preset == OWN else {}
        preset = load_preset(self.preset)
        return _with_bounds_of_seed(preset, with_overrides(preset, of_the_images | of_the_job | given), given)

    def given(self) -> dict[str, Any]:
        """The settings that were given in addition to the preset, by dotted key. Raises ConfigError."""
        if self.minutes is not None and self.hours is not None:
            raise ConfigError("--minutes and --hours are both given; give only one")
        length = self.minutes if self.hours is None else 60 * self.hours
        limit = {} if length is None else {"limits.minutes": length}
        return {**self.overrides, **limit, **dict(map(parse_setting, self.settings))}

    def words(self) -> list[str]:
        """The same options as arguments of a command."""
        lengths = {"--minutes": self.minutes, "--hours": self.hours}
        settings = [
            *(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in self.overrides.items()),
            *self.settings,
        ]
        return [
            *("--preset", self.preset),
            *(word for name, value in lengths.items() if value is not None for word in (name, str(value))),
            *(word for setting in settings for word in ("--set", setting)),
        ]


def _inferred(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that follow from the images, which are also printed. Raises ConfigError and DataError."""
    folder = given.get("data.path")
    if not folder:
        raise ConfigError(f"preset {OWN} is for your own images; give their folder with --data")
    from aiperf.ranks.process import infer_data  # the messages of ranks, which most commands do without

    counts = {key: value for key, value in given.items() if key in COUNTS and type(value) is int}
    found = infer_data(str(folder), counts)
    click.echo(f"aiperf-hpc: found in {folder}: {_told({**found, **given}, found.keys() - given)}", err=True)
    return found


def _told(settings: Mapping[str, Any], inferred: Collection[str]) -> str:
    """The settings, and which of them were inferred, in a line: "3 classes of colour images, 40 px; …"."""
    colours = "grey" if settings["data.channels"] == 1 else "colour"
    images = f"{settings['data.classes']} classes of {colours} images, {settings['data.size']} px"
    others = [key for key in settings if key in inferred and key not in OF_IMAGES]
    return "; ".join([images, ", ".join(f"{key.rpartition('.')[2]} {settings[key]}" for key in others)])


def _with_bounds_of_seed(preset: Config, config: Config, given: Mapping[str, Any]) -> Config:
    """Into bounds that a preset states as multiples of its own seed another seed may not grow: it has the
    default ones, unless bounds were given too. The run says so when it begins."""
    own = config.seed_architecture == preset.seed_architecture or not preset.search.bounds.growth_rounds
    if own or any(key.startswith("search.bounds.") for key in given):
        return config
    return replace(config, search=replace(config.search, bounds=BoundsConfig()))


def _minutes_of_the_job() -> float | None:
    """Default length of a run inside a batch job in minutes: the time left, minus what initialisation and the
    test take; None outside a job."""
    left = job_seconds_left(os.environ, time.time())
    if left is None:
        return None
    if left < 0:
        raise ConfigError(
            f"the limit of {job_name(os.environ)} passed {-left:.0f} s ago by the clock of this host; "
            f"correct the clock, or give the length with --minutes"
        )
    if left <= MARGIN_SECONDS:
        raise ConfigError(
            f"the job ends in {left:.0f} s; the run needs {MARGIN_SECONDS:.0f} s in addition to its span"
        )
    return (left - MARGIN_SECONDS) / 60
