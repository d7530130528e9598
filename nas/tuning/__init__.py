"""Which hyper-parameters come next: `ask` for those of a trial, `tell` what became of them."""

from __future__ import annotations

from collections.abc import Mapping

from nas.search_names import TUNERS as NAMES
from nas.tuning.space import SPACE, Dimension, Point, Space, text_space
from nas.tuning.tpe import NniTuner, OptunaTuner
from nas.tuning.tuner import Tuner, Untuned, installed

__all__ = [
    "SPACE",
    "TUNERS",
    "Dimension",
    "Point",
    "Space",
    "Tuner",
    "Untuned",
    "installed",
    "text_space",
]

TUNERS: Mapping[str, type[Tuner]] = dict(zip(NAMES, (Untuned, NniTuner, OptunaTuner), strict=True))
"""Tuners, by the name in a configuration."""
