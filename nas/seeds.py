"""The starting architectures, by name or from a file; those of images are written here. Those of text are in
`text_seeds.py`. Each is a function from a shape and a number of classes to a Graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from nas.bounded import read_text
from nas.graph import Graph
from nas.layers import Add, BatchNorm, Conv2d, Dense, GlobalPool, Layer, MaxPool, ReLU, Shape
from nas.record import graph_from_json
from nas.text_seeds import TEXT_SEEDS, Sketch


class SeedError(ValueError):
    """A starting architecture that is not there, cannot be read, or is for other examples."""


def resnet50(input: Shape = (3, 224, 224), classes: int = 1000) -> Graph:
    """ResNet-50 v1.5: the stride stands in the 3×3 convolution of a bottleneck (He et al., CVPR 2016; v1.5 as
    in NVIDIA's DeepLearningExamples and MLPerf). The images are (channels, height, width). With 1,000 classes
    it has 25,557,032 parameters."""
    return _imagenet(input, classes, (3, 4, 6, 3), _Draft.bottleneck, stride_in_first=False)


def resnet50_v1(input: Shape = (3, 224, 224), classes: int = 1000) -> Graph:
    """ResNet-50 as published: the stride stands in the first 1×1 convolution of a bottleneck."""
    return _imagenet(input, classes, (3, 4, 6, 3), _Draft.bottleneck, stride_in_first=True)


def resnet18(input: Shape = (3, 224, 224), classes: int = 1000) -> Graph:
    """ResNet-18 (He et al., CVPR 2016)."""
    return _imagenet(input, classes, (2, 2, 2, 2), _Draft.basic)


def residual(input: Shape = (1, 32, 32), classes: int = 10, widths: tuple[int, ...] = (4, 8, 16)) -> Graph:
    """A ResNet with one basic block per stage, for images of 28² to 32²; every stage but the first halves the
    side. Raises ShapeError for images that are too small for its strides."""
    draft = _Draft()
    draft.conv_bn_relu("stem", widths[0])
    for stage, width in enumerate(widths, start=1):
        draft.basic(f"stage{stage}.block1", width, stride=1 if stage == 1 else 2)
    return draft.classifier(input, classes)


SEEDS: Mapping[str, Callable[..., Graph]] = {
    "resnet50": resnet50,
    "resnet50-v1": resnet50_v1,
    "resnet18": resnet18,
    "residual-4-8-16": residual,
    "residual-8-16-32": partial(residual, widths=(8, 16, 32)),
}
"""Seeds of images by the name that `seed_architecture` has for them."""


def resolve_seed(
    name_or_path: str,
    input: Shape | None = None,
    classes: int | None = None,
    seeds: Mapping[str, Callable[..., Graph]] = MappingProxyType({}),
) -> Graph:
    """The seed of that name for `input` and `classes`, or the graph in that JSON file.

    What is None is as the seed or the file has it. The classes of a text are its symbols. `seeds` are those
    of a task; a name of both means the task's, as the rule *seed* takes it. Raises SeedError for an unknown
    name, a file that holds no graph, and a graph for other examples or classes than those given; ShapeError
    for sizes that cannot be.
    """
    if name_or_path in seeds and input is not None and classes is not None:
        return seeds[name_or_path](input, classes)
    known = {**SEEDS, **TEXT_SEEDS, **seeds}
    if name_or_path in known:
        ours = name_or_path not in seeds
        if ours and input is not None and (len(input) == 1) != (name_or_path in TEXT_SEEDS):
            own = "text" if name_or_path in TEXT_SEEDS else "images"
            raise SeedError(f"{name_or_path} is for {own}, not for {_examples(input)}")
        given = {"input": input, "classes": classes}
        return known[name_or_path](**{key: value for key, value in given.items() if value is not None})
    graph = _read(name_or_path, known)
    if input not in (None, graph.input):
        other = input if len(input) == len(graph.input) else f"for {_examples(input)}"
        raise SeedError(f"{name_or_path} is for {_examples(graph.input)}, not {other}")
    if classes not in (None, graph.classes):
        raise SeedError(f"{name_or_path} is for {graph.classes} {graph.head.answers}, not {classes}")
    return graph


def _examples(input: Shape) -> str:
    """Examples of a shape as an error names them."""
    return f"text of {input[0]} positions" if len(input) == 1 else f"images of {input}"


def _read(path: str, names: Collection[str]) -> Graph:
    """The graph in a file. A misspelt name of a seed is not a file, so that close names are suggested."""
    if "\0" in path:
        raise SeedError(
            f"{path!r} holds a null character, so it is not a file; give the JSON file of a graph, or a seed"
        )
    try:
        return graph_from_json(read_text(Path(path)))
    except FileNotFoundError:
        from difflib import get_close_matches

        close = get_close_matches(path, names, n=1)
        meant = f" did you mean {close[0]!r}?" if close else ""
        raise SeedError(f"{path!r} is neither a seed nor a file;{meant} seeds: {', '.join(names)}") from None
    except OSError as error:
        raise SeedError(f"{path}: {error.strerror}; give the JSON file of a graph, or a seed") from None
    except ValueError as error:
        raise SeedError(f"{path}: {error}") from None


@dataclass
class _Draft(Sketch):
    """A network of images in the making, with the width of each tensor."""

    widths: dict[str, int] = field(default_factory=dict)

    def put(self, name: str, layer: Layer, *inputs: str) -> str:
        """Adds a node, and notes its width: a convolution's own, or that of the node before."""
        self.widths[name] = layer.channels if isinstance(layer, Conv2d) else self.widths.get(self.last, 0)
        return super().put(name, layer, *inputs)

    def conv_bn(self, name: str, channels: int, kernel: int = 3, stride: int = 1, of: str = "") -> str:
        """A convolution without bias, which the batch norm would subtract again, and the norm. `of` is what
        it reads, if that is not the last node."""
        self.put(f"{name}.conv", Conv2d(channels, kernel, stride), *([of] if of else []))
        return self.put(f"{name}.bn", BatchNorm())

    def conv_bn_relu(self, name: str, channels: int, kernel: int = 3, stride: int = 1) -> str:
        """The same with a ReLU."""
        self.conv_bn(name, channels, kernel, stride)
        return self.put(f"{name}.relu", ReLU())

    def join(self, name: str, entry: str, channels: int, stride: int) -> None:
        """Adds the shortcut to the branch that ends here: the entry itself, or its projection."""
        branch = self.last
        shortcut = entry
        if stride > 1 or self.widths[entry] != channels:
            shortcut = self.conv_bn(f"{name}.shortcut", channels, 1, stride, of=entry)
        self.put(f"{name}.add", Add(), branch, shortcut)
        self.put(f"{name}.relu", ReLU())

    def basic(self, name: str, width: int, stride: int) -> None:
        """The block of two 3×3 convolutions of ResNet-18 and ResNet-34; the first has the stride."""
        entry = self.last
        self.conv_bn_relu(f"{name}.1", width, 3, stride)
        self.conv_bn(f"{name}.2", width, 3)
        self.join(name, entry, width, stride)

    def bottleneck(self, name: str, width: int, stride: int, stride_in_first: bool = False) -> None:
        """The block of ResNet-50: 1×1, 3×3, and 1×1 to four times the width. `stride_in_first` is v1,
        otherwise v1.5."""
        entry = self.last
        self.conv_bn_relu(f"{name}.1", width, 1, stride if stride_in_first else 1)
        self.conv_bn_relu(f"{name}.2", width, 3, 1 if stride_in_first else stride)
        self.conv_bn(f"{name}.3", 4 * width, 1)
        self.join(name, entry, 4 * width, stride)

    def classifier(self, input: Shape, classes: int) -> Graph:
        """The graph of these nodes, with the means of all channels and one dense layer as its end. Raises
        ShapeError if the images are too small."""
        self.put("pool", GlobalPool())
        self.put("classifier", Dense(classes))
        return Graph(input, tuple(self.nodes))


def _imagenet(
    input: Shape, classes: int, depths: tuple[int, ...], block: Callable[..., None], **options: bool
) -> Graph:
    """A ResNet for 224²: a stem of stride 2 and a pool, then four stages, each twice as wide as the one
    before."""
    draft = _Draft()
    draft.conv_bn_relu("stem", 64, 7, 2)
    draft.put("stem.pool", MaxPool(3, 2))
    for stage, depth in enumerate(depths, start=1):
        for number in range(1, depth + 1):
            stride = 2 if stage > 1 and number == 1 else 1
            block(draft, f"stage{stage}.block{number}", 64 * 2 ** (stage - 1), stride, **options)
    return draft.classifier(input, classes)
