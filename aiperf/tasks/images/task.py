"""Image classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiperf.errors import ConfigError
from aiperf.tasks.data import DataConfig
from aiperf.tasks.images.data import ImageData
from aiperf.tasks.images.facts import IMAGE_FACTS
from aiperf.tasks.images.known_sets import DIGITS, IMAGENET_1K, PACKED, packed_side
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.task import Amount, ControlNetwork, Examples, Manifest, RankedLimits, Task
from aiperf.wording import percent
from nas.graph import Graph
from nas.head import Classes
from nas.morphisms import MIX
from nas.seeds import SEEDS, resnet50
from nas.tuning import SPACE

CONTROL_SIZES = (32, 64, 112, 160, 224)
"""Sides in pixels; 224 is that of MLPerf's ResNet-50, and the others are what a processor can do."""
CLIMB = tuple((size, 8) for size in CONTROL_SIZES)
"""Side of the images, and images per step. A step cannot be interrupted, so the sides grow."""
CONTROL_CLASSES = 1000
"""Number of classes of the control: those of ImageNet, whatever a run learns, because rates of the control
are compared between runs."""
IMAGENET: Mapping[str, Any] = {
    "classes": IMAGENET_1K.classes,
    "channels": 3,
    "size": 224,
    "synthetic": False,
    "official_training_examples": IMAGENET_1K.official_training_examples,
    "test_examples": IMAGENET_1K.test_examples,
    "test_examples_per_class": list(IMAGENET_1K.test_examples_per_class),
}
PACKED_SIDE = 256
"""The least side of packed images in pixels: from smaller ones a crop of 224 would be enlarged, and they are
less work to read."""
OF_IMAGENET = ("imagefolder", "packed")
"""Data sets whose images are normalised by ImageNet's mean and deviation: see aiperf/data/normalise.py."""
VALIDATION_IMAGES = 50_000
"""How many of the official training images validate: with more, validation would be credited in place of
training."""
MOST_ERROR = 0.30
"""Top-1. For comparison: ResNet-50 v1.5 has 0.239 after torchvision's reference training."""


def _reads(data: DataConfig) -> str:
    """The normalisation, in words: it is not part of an exported architecture."""
    shape = f"{data.name}, {data.channels} × {data.size} × {data.size}"
    if data.name in OF_IMAGENET:
        return f"{shape}, (x − mean) / standard deviation per channel, x from 0 to 1, both of ImageNet"
    levels = (
        ", whose levels from 0 to 16, times 255/16, are rounded to bytes" if data.name == DIGITS.name else ""
    )
    return f"{shape}{levels}, (x − mean) / standard deviation per channel, both over all training images"


def _generated(graph: Graph, parts: tuple[int, int, int]) -> DataConfig:
    """Generated images for an architecture. Raises ConfigError for one that reads rectangles."""
    channels, height, width = graph.input
    if height != width:
        raise ConfigError(f"generated images are square, and this seed reads {graph.input[1:]}")
    return ImageData("synthetic", channels, width, graph.classes, "", *parts)


def _unlike_imagenet(manifest: Manifest) -> list[str]:
    """What keeps a manifest from being ImageNet-1k at 224², used whole. The numbers of images are compared
    last, because they mean nothing of another set."""
    wrong = [
        f"{name} is {manifest.get(name)!r}, not {value!r}"
        for name, value in IMAGENET.items()
        if manifest.get(name) != value
    ]
    if manifest.get("name") == PACKED and packed_side(manifest) < PACKED_SIDE:
        wrong.append(f"the images are packed at {packed_side(manifest)}², not {PACKED_SIDE}² or more")
    used = manifest.get("training_examples", 0) + manifest.get("validation_examples", 0)
    if not wrong and used != IMAGENET["official_training_examples"]:
        wrong = [f"training and validation use {used} of the official training images, not all"]
    if not wrong and manifest.get("validation_examples") != VALIDATION_IMAGES:
        wrong = [f"validation_examples is {manifest.get('validation_examples')!r}, not {VALIDATION_IMAGES}"]
    return wrong


def _training() -> object:
    from aiperf.tasks.images.training import TRAINING  # and with it torch

    return TRAINING


IMAGES = Task(
    name="images",
    example="image",
    amount=Amount("images", lambda size: 1),
    data_class=ImageData,
    head=Classes,
    examples=lambda data: Examples((data.channels, data.size, data.size), data.classes, Classes()),
    reads=_reads,
    generated=_generated,
    optimizer="sgd",
    data=IMAGE_FACTS,
    tally=lambda examples, size, error: Classified(examples, round((1 - error) * examples)),
    error_text=percent,
    error_law="images",
    chance=lambda classes: 1 - 1 / classes,
    seeds=SEEDS,
    morphisms=MIX,
    space=lambda configured: SPACE,
    untuned_version=1,
    tuned_version=1,
    products="convolutions and dense layers",
    in_aiperf1=True,
    control=ControlNetwork(
        name="ResNet-50 v1.5",
        short="ResNet-50",
        sizes=CONTROL_SIZES,
        size_text="{}²",
        examples_text="{}² images",
        examples="images",
        graph=lambda size: resnet50((3, size, size), CONTROL_CLASSES),
        batch_size=256,
        climb=CLIMB,
    ),
    training=_training,
    ranked=RankedLimits(
        seed="resnet50",
        most_error=MOST_ERROR,
        control_size=CONTROL_SIZES[-1],
        data="ImageNet-1k, whole, 224²",
        data_faults=_unlike_imagenet,
    ),
)
