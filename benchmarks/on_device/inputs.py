"""Trials that read their images: from JPEG files and from packed shards, beside images that are generated on
the device."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from aiperf.device import bind
from aiperf.engines.engine import Engine
from aiperf.engines.graphed import Graphed
from benchmarks.on_device.engines import usable
from benchmarks.on_device.meter import Meter
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, Row, figures, row
from benchmarks.on_device.trials import Trials, generated
from nas.seeds import residual, resnet50

IMAGES, SMALL_IMAGES = 768, 24
"""Images of each class in training: few enough for the file cache to hold them all."""
CLASSES = 2
WIDE, HIGH = 500, 375
"""Pixels of a typical image of ImageNet."""
QUALITY = 90
GRAIN = 3
"""Side of the random cells of a picture: fine enough for files of about 110 KB, as ImageNet's are."""
SIDE, SMALL_SIDE = 224, 16
BATCH, SMALL_BATCH = 128, 8
SECONDS, SMALL_SECONDS = 8.0, 0.3
LEAST_RATE = 0.95
"""Rate relative to that with generated images below which a loader is called slow."""


def measure(setting: Setting) -> Iterator[Figures]:
    """A loader that a trial waits for is slow."""
    device = bind(setting.kind, 0)
    folder = setting.folder / "images"
    engine = Graphed.name if Graphed.name in usable(device, setting) else Engine.name
    side, batch_size = setting.sized(SIDE, SMALL_SIDE), setting.sized(BATCH, SMALL_BATCH)
    graph = residual((3, side, side), CLASSES) if setting.is_small else resnet50((3, side, side), CLASSES)
    sets = _sets(folder, setting.sized(IMAGES, SMALL_IMAGES), max(side, setting.sized(256, 32)))
    meter, rates = Meter(device), dict[str, float]()
    for name, changes in sets.items():
        config = generated(side, CLASSES, batch_size, device.formats[0], **changes)
        trials = Trials.of(config, device, engine)
        running = trials.begin(trials.prepared(graph))
        trials.rate(running, setting.sized(SECONDS, SMALL_SECONDS) / 2)  # the files are read once
        with meter.during(name):
            rates[name] = trials.rate(running, setting.sized(SECONDS, SMALL_SECONDS))
        running.close()
        yield _found(setting, rates, meter, engine)
    shutil.rmtree(folder)


def _found(setting: Setting, rates: Mapping[str, float], meter: Meter, engine: str) -> Figures:
    """The figures of the sets that were read so far."""
    first = next(iter(rates))
    rows: list[Row] = [
        row(name, rate, "images/s", rates[first], first, use=meter.use(name)) for name, rate in rates.items()
    ]
    slow = [
        f"{name}: the device waits for the loader, and reaches {rate / rates[first]:.2f} of its rate"
        for name, rate in rates.items()
        if rate < LEAST_RATE * rates[first] and not setting.is_small
    ]
    batch_size = setting.sized(BATCH, SMALL_BATCH)
    notes = [f"Trials by {engine} steps of {batch_size} images; files of {WIDE} x {HIGH} pixels, cached."]
    smaller = f"a small network at {SMALL_SIDE}²" if setting.is_small else ""
    return figures(rows, slow=slow, notes=notes, smaller=smaller)


def _sets(folder: Path, images: int, packed_side: int) -> dict[str, dict[str, Any]]:
    """Changes of the configuration by name of the set; the files are written first."""
    shutil.rmtree(folder, ignore_errors=True)
    source, packed = folder / "jpeg", folder / "packed"
    _write(source, images)
    command = [sys.executable, "-m", "aiperf", "data", "pack", str(source), str(packed)]
    subprocess.run([*command, "--size", str(packed_side)], check=True)
    read = {
        "data.training_examples": 0,
        "data.test_examples": 0,
        "data.validation_examples": CLASSES * 4,
        "data.augmentation": "resized-crop-flip",
    }
    return {
        "generated": {},
        "packed": {**read, "data.name": "packed", "data.path": str(packed)},
        "JPEG files": {**read, "data.name": "imagefolder", "data.path": str(source)},
    }


def _write(source: Path, images: int) -> None:
    """An image folder whose pictures are random cells with soft edges."""
    random = np.random.default_rng(0)
    for part, number in (("train", images), ("val", 8)):
        for label in range(CLASSES):
            own = source / part / f"class-{label}"
            own.mkdir(parents=True)
            for index in range(number):
                cells = random.integers(0, 256, (HIGH // GRAIN, WIDE // GRAIN, 3), dtype=np.uint8)
                picture = Image.fromarray(cells).resize((WIDE, HIGH), Image.Resampling.BICUBIC)
                picture.save(own / f"{index}.jpg", quality=QUALITY)
