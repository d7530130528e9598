"""Published networks as graphs: each is what torchvision 0.29 builds, without auxiliary classifiers.

Their files lie beside this one; `python -m tests.nas.published.networks` writes them again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nas.graph import INPUT, Graph, Node
from nas.layers import (
    AdaptiveAveragePool,
    Add,
    AveragePool,
    BatchNorm,
    Concat,
    Conv2d,
    Dense,
    DepthwiseConv2d,
    Dropout,
    Flatten,
    GlobalPool,
    Layer,
    MaxPool,
    ReLU,
    ReLU6,
    Shape,
)
from nas.record import graph_to_json

FILES = Path(__file__).parent
PHOTO = (3, 224, 224)
RELU = ReLU()


@dataclass
class Draft:
    """Nodes one after the other; each reads the one before unless told otherwise."""

    nodes: list[Node] = field(default_factory=list)
    last: str = INPUT

    def put(self, name: str, layer: Layer, *inputs: str) -> str:
        self.nodes.append(Node(name, layer, inputs or (self.last,)))
        self.last = name
        return name

    def biased(self, name: str, convolution: Conv2d, entry: str = "") -> str:
        """A convolution and a ReLU."""
        self.put(f"{name}.conv", convolution, *filter(None, [entry]))
        return self.put(f"{name}.relu", ReLU())

    def normed(self, name: str, convolution: Layer, entry: str = "", end: Layer | None = RELU) -> str:
        """A convolution, a batch norm and what follows it."""
        self.put(f"{name}.conv", convolution, *filter(None, [entry]))
        self.put(f"{name}.bn", BatchNorm())
        return self.put(f"{name}.{type(end).__name__.lower()}", end) if end else self.last

    def dense(self, name: str, before: tuple[Layer, ...] = (), after: tuple[Layer, ...] = ()) -> None:
        """A hidden layer of AlexNet and VGG."""
        for layer in (*before, Dense(4096), ReLU(), *after):
            self.put(f"{name}.{type(layer).__name__.lower()}", layer)

    def classifier(self, dropout: float = 0.0) -> None:
        self.put("pool", GlobalPool())
        if dropout:
            self.put("dropout", Dropout(dropout))

    def graph(self, input: Shape = PHOTO) -> Graph:
        self.put("classifier", Dense(1000))
        return Graph(input, tuple(self.nodes))


def alexnet() -> Graph:
    """Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997."""
    draft = Draft()
    draft.biased("conv1", Conv2d(64, 11, 4, padding=2, bias=True))
    draft.put("conv1.pool", MaxPool(3, 2, padding=0))
    draft.biased("conv2", Conv2d(192, 5, bias=True))
    draft.put("conv2.pool", MaxPool(3, 2, padding=0))
    for number, channels in enumerate((384, 256, 256), start=3):
        draft.biased(f"conv{number}", Conv2d(channels, bias=True))
    draft.put("conv5.pool", MaxPool(3, 2, padding=0))
    draft.put("pool", AdaptiveAveragePool(6))
    draft.put("flatten", Flatten())
    for number in (6, 7):
        draft.dense(f"layer{number}", before=(Dropout(0.5),))
    return draft.graph()


def vgg16() -> Graph:
    """Simonyan and Zisserman, ICLR 2015, configuration D."""
    draft = Draft()
    for stage, (channels, depth) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], start=1):
        for number in range(1, depth + 1):
            draft.biased(f"conv{stage}_{number}", Conv2d(channels, bias=True))
        draft.put(f"pool{stage}", MaxPool(2, 2))
    draft.put("pool", AdaptiveAveragePool(7))
    draft.put("flatten", Flatten())
    for number in (6, 7):
        draft.dense(f"layer{number}", after=(Dropout(0.5),))
    return draft.graph()


def squeezenet() -> Graph:
    """SqueezeNet 1.1: Iandola et al., arXiv:1602.07360; github.com/forresti/SqueezeNet. No dense layer."""
    draft = Draft()
    draft.biased("conv1", Conv2d(64, 3, 2, padding=0, bias=True))
    widths = {2: (16, 64), 3: (16, 64), 4: (32, 128), 5: (32, 128), 6: (48, 192), 7: (48, 192)}
    for number, (squeeze, expand) in {**widths, 8: (64, 256), 9: (64, 256)}.items():
        if number in (2, 4, 6):
            draft.put(f"pool{number - 1}", MaxPool(3, 2, padding=0, ceil_mode=True))
        name = f"fire{number}"
        squeezed = draft.biased(f"{name}.squeeze", Conv2d(squeeze, 1, bias=True))
        parts = [
            draft.biased(f"{name}.expand{kernel}", Conv2d(expand, kernel, bias=True), squeezed)
            for kernel in (1, 3)
        ]
        draft.put(name, Concat(), *parts)
    draft.put("dropout", Dropout(0.5))
    draft.biased("classifier", Conv2d(1000, 1, bias=True))
    draft.put("pool", GlobalPool())
    return Graph(PHOTO, tuple(draft.nodes))


def googlenet() -> Graph:
    """Szegedy et al., CVPR 2015, with batch norm. (torchvision's 5 x 5 branches have kernels of 3.)"""
    draft = Draft()
    draft.normed("conv1", Conv2d(64, 7, 2))
    draft.put("pool1", MaxPool(3, 2, padding=0, ceil_mode=True))
    draft.normed("conv2", Conv2d(64, 1))
    draft.normed("conv3", Conv2d(192))
    blocks = {
        "3a": (64, 96, 128, 16, 32, 32),
        "3b": (128, 128, 192, 32, 96, 64),
        "4a": (192, 96, 208, 16, 48, 64),
        "4b": (160, 112, 224, 24, 64, 64),
        "4c": (128, 128, 256, 24, 64, 64),
        "4d": (112, 144, 288, 32, 64, 64),
        "4e": (256, 160, 320, 32, 128, 128),
        "5a": (256, 160, 320, 32, 128, 128),
        "5b": (384, 192, 384, 48, 128, 128),
    }
    for name, (one, reduce3, three, reduce5, five, pooled) in blocks.items():
        if name.endswith("a"):
            draft.put(f"{name}.pool", MaxPool(2 if name == "5a" else 3, 2, padding=0, ceil_mode=True))
        entry, parts = draft.last, []
        parts.append(draft.normed(f"{name}.branch1", Conv2d(one, 1)))
        for branch, (reduce, channels) in enumerate([(reduce3, three), (reduce5, five)], start=2):
            draft.normed(f"{name}.branch{branch}.reduce", Conv2d(reduce, 1), entry)
            parts.append(draft.normed(f"{name}.branch{branch}", Conv2d(channels)))
        draft.put(f"{name}.branch4.pool", MaxPool(3, 1, ceil_mode=True), entry)
        parts.append(draft.normed(f"{name}.branch4", Conv2d(pooled, 1)))
        draft.put(name, Concat(), *parts)
    draft.classifier(0.2)
    return draft.graph()


Branch = list[tuple[int, int | tuple[int, int]]]
"""Channels and kernels of convolutions one after the other."""


def inception_v3() -> Graph:
    """Szegedy et al., CVPR 2016: unpadded and rectangular kernels, on images of 299²."""
    draft = Draft()

    def row(name: str, entry: str, branch: Branch) -> str:
        for number, (channels, kernel) in enumerate(branch, start=1):
            entry = draft.normed(f"{name}.{number}", Conv2d(channels, kernel), entry)
        return entry

    def mixed(name: str, pooled: int, *branches: Branch) -> None:
        entry = draft.last
        parts = [row(f"{name}.branch{number}", entry, branch) for number, branch in enumerate(branches, 1)]
        pool = draft.put(f"{name}.pool", AveragePool(3, 1), entry)
        draft.put(name, Concat(), *parts, draft.normed(f"{name}.pooled", Conv2d(pooled, 1), pool))

    def halved(name: str, *branches: Branch) -> None:
        """The last convolution of each branch has a stride of 2 and no padding."""
        entry, parts = draft.last, []
        for number, branch in enumerate(branches, start=1):
            above = row(f"{name}.branch{number}", entry, branch[:-1])
            last = Conv2d(branch[-1][0], 3, 2, padding=0)
            parts.append(draft.normed(f"{name}.branch{number}.last", last, above))
        draft.put(name, Concat(), *parts, draft.put(f"{name}.pool", MaxPool(3, 2, padding=0), entry))

    def expanded(name: str) -> None:
        entry = draft.last
        parts = [row(f"{name}.branch1", entry, [(320, 1)])]
        for number, branch in enumerate([[(384, 1)], [(448, 1), (384, 3)]], start=2):
            end = row(f"{name}.branch{number}", entry, branch)
            wide = draft.normed(f"{name}.branch{number}.wide", Conv2d(384, (1, 3)), end)
            parts += [wide, draft.normed(f"{name}.branch{number}.high", Conv2d(384, (3, 1)), end)]
        pool = draft.put(f"{name}.pool", AveragePool(3, 1), entry)
        draft.put(name, Concat(), *parts, draft.normed(f"{name}.pooled", Conv2d(192, 1), pool))

    draft.normed("conv1", Conv2d(32, 3, 2, padding=0))
    draft.normed("conv2", Conv2d(32, padding=0))
    draft.normed("conv3", Conv2d(64))
    draft.put("pool3", MaxPool(3, 2, padding=0))
    draft.normed("conv4", Conv2d(80, 1))
    draft.normed("conv5", Conv2d(192, padding=0))
    draft.put("pool5", MaxPool(3, 2, padding=0))
    for name, pooled in {"5b": 32, "5c": 64, "5d": 64}.items():
        mixed(name, pooled, [(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)])
    halved("6a", [(384, 3)], [(64, 1), (96, 3), (96, 3)])
    for name, c in {"6b": 128, "6c": 160, "6d": 160, "6e": 192}.items():
        twice: Branch = [(c, 1), (c, (7, 1)), (c, (1, 7)), (c, (7, 1)), (192, (1, 7))]
        mixed(name, 192, [(192, 1)], [(c, 1), (c, (1, 7)), (192, (7, 1))], twice)
    halved("7a", [(192, 1), (320, 3)], [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)])
    expanded("7b")
    expanded("7c")
    draft.classifier(0.5)
    return draft.graph((3, 299, 299))


def mobilenet_v2() -> Graph:
    """Sandler et al., CVPR 2018."""
    draft, width = Draft(), 32
    draft.normed("stem", Conv2d(32, 3, 2), end=ReLU6())
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2)]
    for stage, (factor, channels, depth, first) in enumerate([*stages, (6, 320, 1, 1)], start=1):
        for number in range(1, depth + 1):
            name, entry, stride = f"stage{stage}.{number}", draft.last, first if number == 1 else 1
            if factor > 1:
                draft.normed(f"{name}.expand", Conv2d(factor * width, 1), end=ReLU6())
            draft.normed(f"{name}.depthwise", DepthwiseConv2d(3, stride), end=ReLU6())
            projected = draft.normed(f"{name}.project", Conv2d(channels, 1), end=None)
            if stride == 1 and width == channels:
                draft.put(f"{name}.add", Add(), entry, projected)
            width = channels
    draft.normed("head", Conv2d(1280, 1), end=ReLU6())
    draft.classifier(0.2)
    return draft.graph()


def densenet121() -> Graph:
    """Huang et al., CVPR 2017."""
    draft, width = Draft(), 64
    draft.normed("stem", Conv2d(64, 7, 2))
    draft.put("stem.pool", MaxPool(3, 2))
    for stage, depth in enumerate((6, 12, 24, 16), start=1):
        for number in range(1, depth + 1):
            name, entry = f"block{stage}.{number}", draft.last
            draft.put(f"{name}.bn", BatchNorm())
            draft.put(f"{name}.relu", ReLU())
            draft.normed(f"{name}.1", Conv2d(128, 1))
            draft.put(name, Concat(), entry, draft.put(f"{name}.2.conv", Conv2d(32)))
        width += 32 * depth
        draft.put(f"end{stage}.bn", BatchNorm())
        draft.put(f"end{stage}.relu", ReLU())
        if stage < 4:
            width //= 2
            draft.put(f"end{stage}.conv", Conv2d(width, 1))
            draft.put(f"end{stage}.pool", AveragePool(2, 2))
    draft.classifier()
    return draft.graph()


def resnext50() -> Graph:
    """ResNeXt-50 32x4d: Xie et al., CVPR 2017."""
    draft = Draft()
    draft.normed("stem", Conv2d(64, 7, 2))
    draft.put("stem.pool", MaxPool(3, 2))
    for stage, depth in enumerate((3, 4, 6, 3), start=1):
        width = 64 * 2**stage
        for number in range(1, depth + 1):
            name, entry = f"stage{stage}.{number}", draft.last
            stride = 2 if stage > 1 and number == 1 else 1
            draft.normed(f"{name}.1", Conv2d(width, 1))
            draft.normed(f"{name}.2", Conv2d(width, 3, stride, groups=32))
            branch = draft.normed(f"{name}.3", Conv2d(2 * width, 1), end=None)
            if number == 1:
                entry = draft.normed(f"{name}.shortcut", Conv2d(2 * width, 1, stride), entry, end=None)
            draft.put(f"{name}.add", Add(), branch, entry)
            draft.put(f"{name}.relu", ReLU())
    draft.classifier()
    return draft.graph()


NETWORKS: Mapping[str, Callable[[], Graph]] = {
    "alexnet": alexnet,
    "densenet121": densenet121,
    "googlenet": googlenet,
    "inception_v3": inception_v3,
    "mobilenet_v2": mobilenet_v2,
    "resnext50_32x4d": resnext50,
    "squeezenet1_1": squeezenet,
    "vgg16": vgg16,
}


def text(graph: Graph) -> str:
    """JSON with one node a line."""
    record = graph_to_json(graph)
    nodes = ",\n".join(json.dumps(node) for node in record["nodes"])
    return f'{{"input": {json.dumps(record["input"])}, "nodes": [\n{nodes}\n]}}\n'


if __name__ == "__main__":
    for name, build in NETWORKS.items():
        (FILES / f"{name}.json").write_text(text(build()), encoding="utf-8")
