"""What an exported file makes of a raw example is what the run's network was given."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from aiperf.data import Data, load
from aiperf.data.file_list import scan
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.tasks.images.data import ImageData
from aiperf.tasks.language.data import TextData
from aiperf.training.found_network import preparation_of
from nas.layers import Dense, GlobalPool
from nas.portable.preparation import ImagePreparation, TextPreparation
from nas.portable.torch_file import torch_file
from tests.aiperf.data.packed.pack import packed
from tests.aiperf.data.sets import CPU, digits_table, pictures, write_folders, write_idx
from tests.house.tree import ROOT
from tests.nas.graphs import chain

DIGITS = ImageData("digits", 1, 32, 10, training_examples=200, validation_examples=400)


def shown(data: Data) -> torch.Tensor:
    return torch.cat([images for images, _ in data.test.sweep(16)])


def prepare_of(data: Data, folder: Path) -> Callable[[Any], torch.Tensor]:
    """The function of a file that is exported with these data."""
    assert data.preparation is not None
    path = folder / "exported.py"
    path.write_text(torch_file(chain(GlobalPool(), Dense(2), input=(1, 4, 4)), {}, data.preparation))
    found: Callable[[Any], torch.Tensor] = runpy.run_path(str(path))["prepare"]
    return found


@pytest.mark.parametrize("size", [12, 28, 8])
def test_images_of_arrays(tmp_path: Path, size: int) -> None:
    """As they are, enlarged, and reduced."""
    data = load(replace(write_idx(tmp_path), size=size), CPU, 1)
    raw = torch.from_numpy(pictures(20, 12, 1, 2))
    torch.testing.assert_close(prepare_of(data, tmp_path)(raw), shown(data), rtol=1e-5, atol=1e-5)
    assert data.preparation is not None
    told = {name.removeprefix("prepare."): text for name, text in data.preparation.texts.items()}
    by_words = [by_metadata(Image.fromarray(each), told) for each in raw[..., 0].numpy()]
    # Pillow's weights are whole numbers, so a pixel may be rounded to the next byte.
    assert np.abs(np.stack(by_words) - shown(data).numpy()).max() < 1.5 / min(json.loads(told["deviation"]))


def test_digits(tmp_path: Path) -> None:
    """From scikit-learn's own file: ink of 17 levels, as bytes. Training has mean 0 and deviation 1."""
    data, table = load(DIGITS, CPU, 1), digits_table()
    split = json.loads((ROOT / "aiperf/presets/digits_split.json").read_text())
    chosen = table[split["indices"]["test"]]
    ink = chosen[:, :-1].reshape(-1, 8, 8, 1)
    raw = torch.from_numpy(np.round(ink * (255 / 16)).astype(np.uint8))
    torch.testing.assert_close(prepare_of(data, tmp_path)(raw), shown(data), rtol=1e-5, atol=1e-5)
    assert torch.cat([labels for _, labels in data.test.sweep(16)]).tolist() == chosen[:, -1].tolist()
    ((images, _),) = data.train.sweep(200)
    assert images.mean().item() == pytest.approx(0, abs=1e-5)
    assert images.std(correction=0).item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("size", "side", "channels"), [(16, 0, 3), (24, 0, 1), (14, 16, 3), (16, 32, 3)])
def test_images_of_files(tmp_path: Path, size: int, side: int, channels: int) -> None:
    """JPEG and PNG files, grey and with transparency, of several shapes; as files and packed."""
    config = replace(write_folders(tmp_path / "set"), size=size, channels=channels)
    listing = scan(Path(config.path) / "val")
    if side:
        folder = packed(Path(config.path), tmp_path / "packed", side)
        config = replace(config, name="packed", path=str(folder))
    data = load(config, CPU, 1)
    prepare, paths = prepare_of(data, tmp_path), [listing.path(index) for index in range(len(listing.names))]
    found = torch.cat([prepare(path) for path in paths])
    assert isinstance(data.preparation, ImagePreparation)
    # Torch's filter for bytes, which scales packed images, rounds some pixels to the next byte.
    noise = 1.01 / min(data.preparation.deviation) if side else 1e-5
    torch.testing.assert_close(found, shown(data), rtol=0, atol=noise)
    told = {name.removeprefix("prepare."): text for name, text in data.preparation.texts.items()}
    by_words = [by_metadata(Image.open(path).convert({1: "L", 3: "RGB"}[channels]), told) for path in paths]
    np.testing.assert_allclose(np.stack(by_words), shown(data), rtol=0, atol=noise)


def by_metadata(image: Image.Image, told: dict[str, str]) -> NDArray[np.float32]:
    """What somebody makes of an image who knows no more than the metadata of an ONNX file."""
    assert told["pixels"] == "bytes from 0 to 255"
    assert told["interpolation"].startswith("bilinear with antialiasing (Pillow's BILINEAR)")
    numbers = {name: json.loads(text) for name, text in told.items() if re.match(r"[\[\d]", text)}
    size, crop, side = numbers["size"], numbers.get("crop", 1.0), numbers.get("packed", 0)
    if side:
        image = image.resize((side, side), Image.Resampling.BILINEAR, centred(image, 1.0))
        edge = round(side * crop)
        image = image.crop([int(each) for each in centred(image, edge / side)])
        crop = 1.0
    image = image.resize((size, size), Image.Resampling.BILINEAR, centred(image, crop))
    pixels = np.asarray(image, np.float32).reshape(size, size, -1).transpose(2, 0, 1)
    mean, deviation = (np.array(numbers[name], np.float32)[:, None, None] for name in ("mean", "deviation"))
    found: NDArray[np.float32] = (pixels - mean) / deviation
    return found


def centred(image: Image.Image, share: float) -> tuple[float, float, float, float]:
    width, height = image.size
    side = min(width, height) * share
    left, upper = (width - side) / 2, (height - side) / 2
    return left, upper, left + side, upper + side


def test_bytes_of_text(tmp_path: Path) -> None:
    text = "Größe und Maß. ".encode() * 40
    (tmp_path / "it").write_bytes(text)
    data = load(TextData("text", 1, 8, 256, path=str(tmp_path / "it")), CPU, 1)
    prepare, first = prepare_of(data, tmp_path), len(text) * 95 // 100
    (window, *_), _ = next(data.test.sweep(1))
    assert torch.equal(prepare(text[first : first + 8]), window[None])
    with pytest.raises(ValueError, match="9 bytes; the network reads 1 to 8"):
        prepare(bytes(9))


def test_of_a_journal_that_does_not_record_it_the_data_are_read() -> None:
    found = {
        name: preparation_of(replay(read_journal(ROOT / "tests/recorded" / name / "journal.jsonl")))
        for name in ("alone", "language", "groups")
    }
    assert found["alone"] == load(DIGITS, CPU, 1).preparation
    assert found["groups"] is None  # generated
    assert found["language"] == TextPreparation(256)


def test_generated_examples_have_none() -> None:
    config = ImageData("synthetic", 1, 8, 2, training_examples=8, validation_examples=4, test_examples=4)
    assert load(config, CPU, 1).preparation is None
