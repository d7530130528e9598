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
from tests.nas.graphs import SAMPLES, TEXT_SAMPLES, graphs, texts
from tests.tables import ComesTo


def seen(graph: Graph) -> Architecture:
    return architecture([(None, graph)])


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


def parts(graph: Graph, *line: tuple[Any, Graph]) -> str:
    """How often each part repeats, the first of its blocks, and of how many the last one is the last."""
    found = architecture([(None, graph), *line]).parts
    return ", ".join(
        f"{part.times} × {part.blocks[0].name} ({len(part.blocks)}, {part.last})" for part in found
    )


def units(block: Any) -> list[tuple[str, tuple[int | None, ...]]]:
    return [(" ".join([unit.text, *unit.after]), unit.reads) for unit in block.units]


def test_equal_blocks_are_one_part_and_words_tell_layers_apart(comes_to_what_was_read: ComesTo) -> None:
    """Blocks of a transformer repeat in pairs; one that was changed is not drawn with others."""
    layers = {layer for layer, _ in [*SAMPLES.values(), *TEXT_SAMPLES.values()]}
    assert all(words(layer) for layer in layers)
    wider = Widen("stage3.block4.2.conv", 320, 0)
    names = {"changed": (trial(1, wider), wider.apply(resnet50())), "TEXT_SEEDS": TEXT_SEEDS, "words": words}
    comes_to_what_was_read("architecture.txt", globals() | names)
