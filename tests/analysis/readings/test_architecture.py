"""An architecture as units and blocks, and what a line of trials changed in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings

from analysis.readings.architecture import SEED, Architecture, Step, Touch, architecture, words
from nas.graph import Graph
from nas.morphisms import SqueezeExcite, Widen
from nas.seeds import residual, resnet50
from nas.text_seeds import TEXT_SEEDS
from tests.nas.graphs import SAMPLES, graphs
from tests.nas.text.samples import TEXT_SAMPLES, texts


def seen(graph: Graph) -> Architecture:
    return architecture([(None, graph)])


def test_resnet50_is_twelve_parts() -> None:
    parts = seen(resnet50()).parts
    stages = ((1, 3), (2, 4), (3, 6), (4, 3))
    assert [(part.times, part.last) for part in parts] == [
        *((1, "stem"), (1, "stem.pool")),
        *(
            each
            for stage, depth in stages
            for each in ((1, f"stage{stage}.block1"), (depth - 1, f"stage{stage}.block{depth}"))
        ),
        *((1, "pool"), (1, "classifier")),
    ]
    (block,) = parts[4].blocks
    assert [(" ".join([unit.text, *unit.after]), unit.reads) for unit in block.units] == [
        ("1×1 conv 128 batch norm ReLU", (None,)),
        ("3×3 conv 128 /2 batch norm ReLU", (0,)),
        ("1×1 conv 512 batch norm", (1,)),
        ("1×1 conv 512 /2 batch norm", (None,)),
        ("add ReLU", (2, 3)),
    ]


def test_blocks_of_a_transformer_repeat_in_pairs() -> None:
    found = seen(TEXT_SEEDS["llama-4x128"]())
    assert [(part.times, len(part.blocks)) for part in found.parts] == [(1, 1), (4, 2), (1, 1), (1, 1)]


def trial(number: int, *morphisms: Any) -> Any:
    return SimpleNamespace(number=number, morphisms=morphisms)


def test_a_line_says_what_each_trial_changed() -> None:
    seed = residual()
    node = "stage2.block1.1.conv"
    wider = Widen(node, 12, 0)
    second = wider.apply(seed)
    gated = SqueezeExcite("stage3.block1.1.relu", 4, 0)
    third = gated.apply(second)
    line = [(None, seed), (trial(0), seed), (trial(3, wider), second), (trial(7, gated), third)]
    found = architecture(line)
    new = [name for name in third.node if name not in second.node]
    assert len(new) == 5
    assert found.steps == [
        Step(0, (), (), (), seed.num_parameters),
        Step(3, ("widen",), (), (f"{node}: 3×3 conv 8 /2 → 3×3 conv 12 /2",), second.num_parameters),
        Step(7, ("squeeze excite",), tuple(new), (), third.num_parameters),
    ]  # fmt: skip
    touched = {unit.name: unit.touch for part in found.parts for block in part.blocks for unit in block.units}
    assert touched.pop(node) == Touch(3, was="3×3 conv 8 /2")
    gone = {name for name, touch in touched.items() if touch.trial == 7}
    assert gone <= set(new)
    assert all(touched[name] == Touch(7, is_new=True) for name in gone)
    assert {touch.trial for name, touch in touched.items() if name not in gone} == {SEED}


def test_a_block_that_was_changed_is_not_drawn_with_others() -> None:
    seed = resnet50()
    wider = Widen("stage3.block4.2.conv", 320, 0)
    found = architecture([(None, seed), (trial(1, wider), wider.apply(seed))])
    stage = [(part.times, part.blocks[0].name) for part in found.parts if "stage3" in part.last]
    assert stage == [(1, "stage3.block1"), (2, "stage3.block2"), (1, "stage3.block4"), (2, "stage3.block5")]


@settings(max_examples=60, deadline=None)
@given(graphs() | texts())
def test_any_network(graph: Graph) -> None:
    """Every node is in one unit; repeats unrolled, a block reads only what enters it and what is above."""
    parts = seen(graph).parts
    blocks = [block for part in parts for _ in range(part.times) for block in part.blocks]
    assert sum(1 + len(unit.after) for block in blocks for unit in block.units) == len(graph.nodes)
    assert blocks[-1].shape == graph.shapes[graph.output]
    for block in blocks:
        for place, unit in enumerate(block.units):
            assert all(read is None or 0 <= read < place for read in unit.reads)
        read_inside = {read for unit in block.units for read in unit.reads}
        assert {*range(len(block.units) - 1)} <= read_inside, "what no node reads would be the output"


def test_words_tell_layers_apart() -> None:
    layers = {layer for layer, _ in [*SAMPLES.values(), *TEXT_SAMPLES.values()]}
    assert all(words(layer) for layer in layers)
    assert words(SAMPLES["conv, rectangular"][0]) == "1×3 conv 8 /2×1"
    assert words(SAMPLES["conv, groups"][0]) == "3×3 conv 8 in 2 groups /2"
    assert words(TEXT_SAMPLES["experts"][0]) == "experts 2 of 5, 6"
    assert words(TEXT_SAMPLES["attention, grouped"][0]) == "attention 6 heads, 2 groups"
    assert words(SAMPLES["dropout"][0]) == "dropout 0.25"
    assert words(SAMPLES["hard-swish"][0]) == "hard swish"
    assert words(TEXT_SAMPLES["squared ReLU"][0]) == "SquaredReLU"
