"""The loader, timed by itself, and what a run would wait for."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch

from aiperf.config import DataConfig, load_preset
from aiperf.data import Batch, Split, load
from aiperf.device import bind
from aiperf.measuring import bench
from aiperf.measuring.bench import PASSES, LoaderRate, bench_text, measure_loaders
from aiperf.tasks.images.data import ImageData
from aiperf.tasks.language.data import TextData
from nas.seeds import residual
from tests.aiperf.data.packed.pack import call, packed
from tests.aiperf.data.sets import write_folders
from tests.tables import ComesTo

DIGITS = load_preset("digits")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sets")
    write_folders(root / "folders")
    return packed(root / "folders", root / "packed", 64).parent


LOADER = LoaderRate(500.0, 500.0, {"reading": 9000.0, "augmenting": 510.0, "normalising": 4000.0})
DECODING = LoaderRate(
    900.0, 900.0, {"decoding": 1000.0, "normalising": 800.0}, {"decoding": 4, "normalising": 1}
)
PACKED = LoaderRate(900.0, 900.0, {"reading": 9000.0, "augmenting": 1000.0}, {"reading": 2, "augmenting": 2})


def test_what_is_too_slow_is_named_and_missing_cores_are_counted(comes_to_what_was_read: ComesTo) -> None:
    """Cores by the part that takes the most core time, whatever its rate with all its cores."""
    comes_to_what_was_read("bottlenecks.txt", {**vars(bench), **globals()})


class OnDisk(Split):
    """Steps that take ten times as long when they are read for the first time."""

    def __init__(self, passes: list[str], name: str, cold_seconds: float = 0.02) -> None:
        self.num_examples, self.passes, self.name, self.cold_seconds = 100, passes, name, cold_seconds
        self.read: set[int] = set()

    def stream(self, batch_size: int, seed: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        self.passes.append(self.name)
        for step in count():
            time.sleep(0.002 if step in self.read else self.cold_seconds)
            self.read.add(step)
            yield torch.zeros(batch_size, 1, 1, 1), torch.zeros(batch_size)

    def sweep(self, batch_size: int, rank: int = 0, ranks: int = 1) -> Iterator[Batch]:
        raise AssertionError("only the stream is timed")


def test_no_loader_is_measured_cold_beside_one_that_is_not() -> None:
    passes = list[str]()
    cold, warm = OnDisk(passes, "cold"), OnDisk(passes, "warm", cold_seconds=0.002)
    found = measure_loaders([cold, warm], bind("cpu", 0), 10, 2.0)
    assert passes == ["cold", "warm"] * (1 + PASSES), "in turns"
    # Cold is ten times as slow; what else runs on the machine is never three times as bad for one of the two.
    assert 1 / 3 < found[0].examples_per_second / found[1].examples_per_second < 3
    assert found[0].first_pass < found[0].examples_per_second / 3
    assert found[1].first_pass > found[1].examples_per_second / 3


images = partial(ImageData, channels=3, size=16, classes=3, validation_examples=6, loader_processes=1)
text = partial(TextData, channels=1, size=16, classes=256)


def test_a_stream_is_timed_with_its_parts(folder: Path, comes_to_what_was_read: ComesTo) -> None:
    def stages(data: DataConfig) -> list[str]:
        device = bind("cpu", 0)
        (found,) = measure_loaders([load(data, device.torch, 1).train], device, 10, 0.5)
        assert all(rate > 0 for rate in (found.examples_per_second, found.first_pass, *found.stages.values()))
        return list(found.stages)

    comes_to_what_was_read("streams.txt", {**globals(), "stages": stages, "folder": folder})


ROWS = ["images", "loader", "  first pass", "  reading alone", "  augmenting alone", "  normalising alone"]
ROWS += ["the device needs", "bottleneck", "cores of the host", "beside it", "loader", "  first pass"]


@pytest.mark.slow
def test_the_command_says_what_is_slower(folder: Path, tmp_path: Path) -> None:
    """Which it is, is known beforehand: ResNet-50 on a processor needs less than any loader gives."""
    write_folders(tmp_path / "set")
    (tmp_path / "set/train/class0/0.jpg").unlink()
    examples = ("--data", folder / "packed", "--set", "data.size=32", "--set", "training.format=fp32")
    done = call(
        "data", "bench", *examples, "--seed", "resnet50", "--beside", tmp_path / "set", "--seconds", 1
    )
    assert done.returncode == 0, done.stderr
    assert [line.split(" .")[0] for line in done.stdout.splitlines()] == ROWS
    assert done.stdout.count(" from the file cache, median of 3 passes") == 2
    assert re.search(r"passes; (the first|this) loader is \d+\.\d times as fast", done.stdout)
    assert "none: the loader is " in done.stdout
    assert "; these are other images\n" in done.stdout


def test_packed_images_are_those_of_their_folder(folder: Path) -> None:
    data = images("packed", path=str(folder / "packed"))
    packed = replace(DIGITS, data=data, training=replace(DIGITS.training, format="fp32"))
    folders = replace(packed, data=replace(data, name="imagefolder", path=str(folder / "folders")))
    seed = residual((3, 16, 16), 3, (4,))
    told = bench_text([packed, folders], seed, bind("cpu", 0), {"fp32": 1e9}, 1, 0.5)
    assert [line.split(" .")[0] for line in told.splitlines()] == ROWS
    assert "other images" not in told
