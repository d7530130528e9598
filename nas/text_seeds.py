"""The starting architectures of text. Symbols are bytes, and counted as classes. The shape of a text is
(positions,). The tables of `TEXT_SEEDS` are joined to those of images in `seeds.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nas.graph import INPUT, Graph, Node
from nas.head import NextSymbol
from nas.layers import (
    GELU,
    Add,
    Attention,
    Embedding,
    Layer,
    LayerNorm,
    Linear,
    Positions,
    Product,
    RMSNorm,
    Shape,
    SiLU,
)


def gpt2_small_bytes(input: Shape = (1024,), classes: int = 256) -> Graph:
    """GPT-2 small (Radford et al., 2019) over bytes, without dropout, output and embedding apart."""
    return _gpt(input, classes, blocks=12, heads=12, width=768)


def gpt_4x128(input: Shape = (64,), classes: int = 256) -> Graph:
    """The size that nanoGPT trains on a processor: 4 blocks, 4 heads, width 128. The defaults are windows of
    64 bytes."""
    return _gpt(input, classes, blocks=4, heads=4, width=128)


def llama_4x128(input: Shape = (256,), classes: int = 256) -> Graph:
    """A small network built as Llama (Touvron et al., arXiv:2302.13971; arXiv:2307.09288): RMSNorm, rotary
    positions, two heads for each group of keys, a gated MLP of 8/3 the width, rounded up to 32."""
    return llama(input, classes, blocks=4, heads=4, groups=2, width=128, hidden=352)


def llama_1x64(input: Shape = (256,), classes: int = 256) -> Graph:
    """The smallest seed: one block, 2 heads of 32, width 64, each head with its own keys."""
    return llama(input, classes, blocks=1, heads=2, groups=2, width=64, hidden=192)


def llama_2x64(input: Shape = (256,), classes: int = 256) -> Graph:
    """`llama_1x64` with 2 blocks: the seed of a search of two minutes on a CPU."""
    return llama(input, classes, blocks=2, heads=2, groups=2, width=64, hidden=192)


def llama_12x768(input: Shape = (1024,), classes: int = 256) -> Graph:
    """As many blocks, heads and channels as GPT-2 small, and MLPs of as many weights: 3 · 2,048 channels are
    gated where 2 · 3,072 are not. Layer norm and learned positions have no place in `TEXT_MIX`."""
    return llama(input, classes, blocks=12, heads=12, groups=12, width=768, hidden=2048)


TEXT_SEEDS: Mapping[str, Callable[..., Graph]] = {
    "llama-1x64": llama_1x64,
    "llama-2x64": llama_2x64,
    "llama-4x128": llama_4x128,
    "llama-12x768": llama_12x768,
    "gpt-4x128": gpt_4x128,
    "gpt2-small-bytes": gpt2_small_bytes,
}
"""Seeds of text by the name that `seed_architecture` has for them."""


@dataclass
class Sketch:
    """Nodes written down one after the other; each reads the one before unless told otherwise."""

    nodes: list[Node] = field(default_factory=list)
    last: str = INPUT

    def put(self, name: str, layer: Layer, *inputs: str) -> str:
        """Adds a node; without `inputs` it reads the last one. Returns its name, for whoever reads it
        later."""
        self.nodes.append(Node(name, layer, inputs or (self.last,)))
        self.last = name
        return name

    def attend(self, name: str, width: int, attention: Attention, bias: bool) -> None:
        """Adds an attention that reads the last node, a normalised trunk. `width` is that of the trunk; keys
        and values have the width of `groups` of its `heads`."""
        read, narrow = self.last, width * attention.groups // attention.heads
        reads = [
            self.put(f"{name}.{part}", Linear(features, bias), read)
            for part, features in (("query", width), ("key", narrow), ("value", narrow))
        ]
        self.put(name, attention, *reads)
        self.put(f"{name}.out", Linear(width, bias))

    def predict(self, input: Shape, classes: int, norm: Layer) -> Graph:
        """The graph of these nodes, with a last norm and one linear layer to the symbols. Raises ShapeError
        for sizes that do not fit."""
        self.put("norm", norm)
        self.put("symbols", Linear(classes))
        return Graph(input, tuple(self.nodes), head=NextSymbol())


def _gpt(input: Shape, classes: int, blocks: int, heads: int, width: int) -> Graph:
    """A network built as GPT-2, whose MLPs are four times as wide as the trunk. Norms come before attention
    and MLP, biases are in all products but the last."""
    sketch = Sketch()
    sketch.put("embedding", Embedding(classes, width))
    trunk = sketch.put("positions", Positions())
    for block in [f"block{number}" for number in range(1, blocks + 1)]:
        sketch.put(f"{block}.norm1", LayerNorm(), trunk)
        sketch.attend(f"{block}.attention", width, Attention(heads, heads, rotary=0.0), bias=True)
        trunk = sketch.put(f"{block}.add1", Add(), trunk, sketch.last)
        sketch.put(f"{block}.norm2", LayerNorm(), trunk)
        sketch.put(f"{block}.mlp.in", Linear(4 * width, bias=True))
        sketch.put(f"{block}.mlp.gelu", GELU())
        sketch.put(f"{block}.mlp.out", Linear(width, bias=True))
        trunk = sketch.put(f"{block}.add2", Add(), trunk, sketch.last)
    return sketch.predict(input, classes, LayerNorm())


def llama(input: Shape, classes: int, blocks: int, heads: int, groups: int, width: int, hidden: int) -> Graph:
    """A network of any size, built as Llama, with `hidden` features inside its MLPs."""
    sketch = Sketch()
    trunk = sketch.put("embedding", Embedding(classes, width))
    for block in [f"block{number}" for number in range(1, blocks + 1)]:
        sketch.put(f"{block}.norm1", RMSNorm(), trunk)
        sketch.attend(f"{block}.attention", width, Attention(heads, groups), bias=False)
        trunk = sketch.put(f"{block}.add1", Add(), trunk, sketch.last)
        norm = sketch.put(f"{block}.norm2", RMSNorm(), trunk)
        sketch.put(f"{block}.mlp.gate", Linear(hidden), norm)
        gate = sketch.put(f"{block}.mlp.silu", SiLU())
        sketch.put(f"{block}.mlp.in", Linear(hidden), norm)
        sketch.put(f"{block}.mlp.product", Product(), gate, sketch.last)
        sketch.put(f"{block}.mlp.out", Linear(width))
        trunk = sketch.put(f"{block}.add2", Add(), trunk, sketch.last)
    return sketch.predict(input, classes, RMSNorm())
