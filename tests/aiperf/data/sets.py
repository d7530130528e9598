"""Small sets on disk in every form that is read, of images that can be told apart."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from aiperf.config import DataConfig
from aiperf.data import load
from aiperf.errors import DataError
from aiperf.tasks.images.data import ImageData

CPU = torch.device("cpu")


def pictures(num_examples: int, size: int, channels: int, seed: int = 0) -> NDArray[np.uint8]:
    shape = (num_examples, size, size, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def labels_of(num_examples: int, classes: int) -> NDArray[np.uint8]:
    return (np.arange(num_examples) % classes).astype(np.uint8)


def digits_table() -> NDArray[np.float64]:
    """The digits as scikit-learn's own file has them: the ink of 64 pixels, and the label."""
    library = find_spec("sklearn")
    assert library is not None
    return np.loadtxt(Path(str(library.origin)).parent / "datasets/data/digits.csv.gz", delimiter=",")


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def write_idx(folder: Path, compressed: bool = True) -> DataConfig:
    """40 + 20 grey images of 12 x 12 in 4 classes."""
    folder.mkdir(exist_ok=True)
    for name, num_examples, seed in (("train", 40, 1), ("t10k", 20, 2)):
        content = {
            "images-idx3": pictures(num_examples, 12, 1, seed)[..., 0],
            "labels-idx1": labels_of(num_examples, 4),
        }
        for what, array in content.items():
            written = idx_bytes(array)
            file = folder / f"{name}-{what}-ubyte{'.gz' if compressed else ''}"
            file.write_bytes(gzip.compress(written) if compressed else written)
    return ImageData("idx", 1, 12, 4, path=str(folder), validation_examples=8)


def write_cifar10(folder: Path, form: str, images_a_file: int) -> DataConfig:
    """The six files of either form: "bin" or "png"."""
    folder.mkdir(exist_ok=True)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for seed, name in enumerate(names):
        images = pictures(images_a_file, 32, 3, seed)
        if form == "png":
            Image.fromarray(images.reshape(images_a_file, -1, 3)).save(folder / f"{name}.png")
        else:
            planes = images.transpose(0, 3, 1, 2).reshape(images_a_file, -1)
            records = np.hstack([labels_of(images_a_file, 10)[:, None], planes])
            (folder / f"{name}.bin").write_bytes(records.tobytes())
    if form == "png":
        for part, files in (("train", 5), ("test", 1)):
            labels = labels_of(images_a_file, 10).tolist() * files
            (folder / f"{part}_lables.json").write_text(json.dumps(labels))
    return ImageData("cifar10", 3, 32, 10, path=str(folder), validation_examples=10)


def write_undivided(root: Path) -> None:
    """The training part of `write_folders`, without a folder around it."""
    write_folders(root)
    for folder in (root / "train").iterdir():
        folder.rename(root / folder.name)
    for part in ("train", "val"):
        shutil.rmtree(root / part)


def write_folders(root: Path, test_part: str = "val") -> DataConfig:
    """Three classes, 12 + 5 images each, of several sizes and kinds, shown at 16 x 16."""
    for part, a_class in (("train", 12), (test_part, 5)):
        for label in range(3):
            folder = root / part / f"class{label}"
            folder.mkdir(parents=True)
            for number in range(a_class):
                seed = 1000 * label + number + (500 if part != "train" else 0)
                coarse = Image.fromarray(pictures(1, 6, 3, seed)[0])
                picture = coarse.resize((24 + number, 36 - number), Image.Resampling.BICUBIC)
                if number == 3:
                    picture.convert("L").save(folder / f"{number}.JPEG", quality=95)
                elif number == 4:
                    picture.convert("RGBA").save(folder / f"{number}.png")
                else:
                    picture.save(folder / f"{number}.jpg", quality=95)
    return ImageData("imagefolder", 3, 16, 3, path=str(root), validation_examples=6, loader_processes=1)


def refusal(config: DataConfig) -> str:
    """The line in which this set is refused."""
    line = refused_by(load, config, CPU, 1)
    assert line, "nothing was refused"
    return line


def refused_by(call: Callable[..., object], *words: object) -> str:
    """The line in which a call is refused, or nothing."""
    # Not by pytest.raises, which keeps the traceback, and by it decoding processes that nobody waits for.
    try:
        call(*words)
    except DataError as error:
        return str(error)
    return ""
