"""The task as a value."""

from __future__ import annotations

from aiperf.tasks.data import DataConfig
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.task import Amount, ControlNetwork, Examples, Task
from aiperf.wording import percent
from nas.graph import Graph
from nas.layers import Shape
from nas.morphisms import MIX
from nas.seeds import residual
from nas.tuning import SPACE
from spectra.data import FACTS, SpectraData
from spectra.head import Sound
from spectra.signals import SOUNDS

BINS, SIZES = 48, (32, 64)
"""Frequencies and frames of the spectrograms of the control."""


def network(
    input: Shape = (1, BINS, 32), classes: int = len(SOUNDS), widths: tuple[int, ...] = (4, 8, 16)
) -> Graph:
    """A residual network as for images, which is asked what sounds."""
    of_images = residual(input, classes, widths)
    return Graph(of_images.input, of_images.nodes, head=Sound())


def _examples(data: DataConfig) -> Examples:
    assert isinstance(data, SpectraData)
    return Examples((1, data.bins, data.size), data.classes, Sound())


def _generated(graph: Graph, parts: tuple[int, int, int]) -> DataConfig:
    channels, bins, frames = graph.input
    return SpectraData("spectra", channels, frames, graph.classes, "", *parts, bins=bins)


def _training() -> object:
    from spectra.training import TRAINING

    return TRAINING


SPECTRA = Task(
    name="spectra",
    example="spectrogram",
    amount=Amount("spectrograms", lambda size: 1),
    data_class=SpectraData,
    head=Sound,
    examples=_examples,
    reads=lambda data: (
        "logarithms of power, less their mean over all training examples, over their deviation"
    ),
    generated=_generated,
    optimizer="sgd",
    data=FACTS,
    tally=lambda examples, size, error: Classified(examples, round((1 - error) * examples)),
    error_text=percent,
    error_law="images",
    chance=lambda classes: 1 - 1 / classes,
    seeds={"spectra-small": network},
    morphisms=MIX,
    space=lambda configured: SPACE,
    untuned_version=1,
    tuned_version=1,
    products="convolutions and dense layers",
    in_aiperf1=False,
    control=ControlNetwork(
        name="a residual network of 16 to 64 channels",
        short="residual-16-32-64",
        sizes=SIZES,
        size_text="{} frames",
        examples_text="spectrograms of {} frames",
        examples="spectrograms",
        graph=lambda size: network((1, BINS, size), widths=(16, 32, 64)),
        batch_size=256,
        climb=tuple((size, 8) for size in SIZES),
    ),
    training=_training,
)
