"""The configuration of a text."""

from __future__ import annotations

import os
from itertools import islice

from aiperf.errors import ConfigError
from aiperf.tasks.data import IMAGE_SUFFIXES, DataConfig, at_least
from nas.frozen import frozen
from nas.head import BYTES

LOOKED_AT = 1000
"""Files whose names tell what a folder holds: a data set of images may have millions."""


@frozen
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

    def refuse_unfit(self) -> None:
        super().refuse_unfit()
        if _has_images_only(self.path):
            raise ConfigError(
                f"{self.path}: holds images, not text; omit --preset to train on images, or give a text file "
                "or a folder of text files with --data"
            )


def _has_images_only(folder: str) -> bool:
    """Whether the first files of a folder, in its folders too, are images by their names."""
    files = (name.lower() for _, _, names in os.walk(folder) for name in names if not name.startswith("."))
    first = list(islice(files, LOOKED_AT))
    return bool(first) and all(name.endswith(IMAGE_SUFFIXES) for name in first)
