"""The configuration of images."""

from __future__ import annotations

from aiperf.errors import ConfigError
from aiperf.tasks.data import DataConfig
from nas.frozen import frozen


@frozen
class ImageData(DataConfig):
    """Images in folders or files of known forms, or generated ones."""

    names = ("digits", "idx", "cifar10", "imagefolder", "packed", "synthetic")
    without_files = ("digits", "synthetic")
    generated = ("synthetic",)

    def refuse_no_folder(self) -> None:
        if not self.path and self.name not in self.without_files:
            raise ConfigError("data.path is not set; give the folder of the images with --data")
