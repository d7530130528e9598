"""The configuration of a text."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.errors import ConfigError
from aiperf.tasks.data import DataConfig, at_least
from nas.head import BYTES


@dataclass(frozen=True)
class TextData(DataConfig):
    """Windows of a text, or generated ones. Without a path, the text that comes with this program is read."""

    names = ("text", "synthetic-text")
    without_files = generated = ("synthetic-text",)
    least_validation = 0

    def check(self) -> None:
        for name, value in (("channels", 1), ("classes", BYTES), ("augmentation", "none")):
            if (found := getattr(self, name)) != value:
                raise ConfigError(
                    f"data.{name} is {found!r}, but data.name is {self.name!r}: it is {value!r}"
                )
        at_least("data.size", self.size, 2)
