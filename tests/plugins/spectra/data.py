"""The configuration of spectrograms, with a key of its own."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.errors import ConfigError
from aiperf.tasks.data import DataConfig, at_least
from spectra.signals import SOUNDS


@dataclass(frozen=True)
class SpectraData(DataConfig):
    """Generated spectrograms: `size` frames of `bins` frequencies."""

    names = ("spectra",)
    without_files = generated = ("spectra",)

    bins: int = 48
    """Frequencies of a spectrogram, from the lowest."""

    def check(self) -> None:
        for name, value in (("channels", 1), ("classes", len(SOUNDS)), ("augmentation", "none")):
            if (found := getattr(self, name)) != value:
                raise ConfigError(f"data.{name} is {found!r}; spectrograms have {value!r}")
        at_least("data.size", self.size, 8)
        at_least("data.bins", self.bins, 8)
        for name in ("training_examples", "test_examples"):
            at_least(f"data.{name}", getattr(self, name), 1)
