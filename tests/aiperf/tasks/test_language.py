"""Language as a task: what it asks of data, what a tally of it is, and what keeps a run of it from a rank."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

import pytest

from aiperf.config import ConfigError, DataConfig, load_preset, preset_names, with_overrides
from aiperf.pretending.rank_report import pretended_manifest, refuse_no_examples
from aiperf.rules.eligibility import unrankable
from aiperf.run.checks import starting_graph
from aiperf.tasks.data import data_names
from aiperf.tasks.images.task import IMAGES
from aiperf.tasks.language.known_texts import BUNDLED_TEXT, ENWIK9
from aiperf.tasks.language.tally import Predicted
from aiperf.tasks.language.task import LANGUAGE, WINDOW
from aiperf.tasks.registry import TASKS, task_of
from aiperf.tasks.task import Task
from nas.morphisms.text import GateMLP, MoreGroups, MoreHeads
from tests.tables import ComesTo

TEXT = load_preset("text").data
OWN = replace(TEXT, path="/nowhere/own.txt", training_examples=0, validation_examples=0)
OF_OWN = {"bytes": 100_000, "sha256": "1" * 64, "official_training_examples": 369, "test_examples": 19}
OF_OWN |= {"training_examples": 350, "validation_examples": 19, "bytes_left_out": 100_000 - 388 * 256 - 3}
GENERATED = load_preset("synthetic-text").data
MANY = replace(GENERATED, training_examples=2**31 - 1, test_examples=2**31 - 1)


def manifest(data: DataConfig = TEXT, **other: Any) -> dict[str, Any]:
    return {**LANGUAGE.data.foreseen(data), **other}


def test_each_set_of_data_is_of_one_task() -> None:
    names = [name for task in TASKS for name in task.data_class.names]
    assert sorted(names) == sorted(set(names)) == sorted(data_names())
    assert task_of(TEXT) is LANGUAGE
    assert task_of(load_preset("digits").data) is IMAGES
    assert all(getattr(task, field.name) is not None for task in TASKS for field in fields(Task))


@pytest.mark.parametrize("name", preset_names())
def test_the_seed_of_a_preset_is_of_its_task_and_can_be_ranked_where_it_says_so(name: str) -> None:
    config = with_overrides(load_preset(name), {"training.format": "bf16"})
    graph, task = starting_graph(config), task_of(config.data)
    assert config.seed_architecture in task.seeds
    assert graph.input == task.examples(config.data).input
    if config.ranked:
        assert unrankable(config, pretended_manifest(config)) == []
        assert config.training.validate_every_examples >= pretended_manifest(config)["training_examples"] / 8


def test_the_ranked_seed_has_the_size_of_gpt2_small() -> None:
    """The morphisms of text have a place in it, as they have not in GPT-2 itself."""
    assert LANGUAGE.ranked is not None
    seed, control = LANGUAGE.seeds[LANGUAGE.ranked.seed]((WINDOW,), 256), LANGUAGE.control.graph(WINDOW)
    assert seed.num_parameters == pytest.approx(control.num_parameters, rel=0.02)
    assert seed.operations == pytest.approx(control.operations, rel=0.01)
    for morphism in LANGUAGE.morphisms:
        # Its keys are as many as its heads, its MLPs gated, its heads together as wide as its stream.
        if morphism not in (MoreGroups, GateMLP, MoreHeads):
            assert morphism.propose(seed, random.Random(1)).apply(seed).operations > seed.operations


def test_a_tally_of_an_error_has_that_error() -> None:
    tally = LANGUAGE.tally(500, 256, 0.312)
    assert isinstance(tally, Predicted)
    assert (tally.of, tally.bytes, tally.error) == (500, 128_000, pytest.approx(0.312, abs=1e-9))
    assert LANGUAGE.tally(3, 256, LANGUAGE.chance(256)).error == 1.0


def contradictions(data: DataConfig = TEXT, **other: Any) -> list[str]:
    return list(LANGUAGE.data.contradictions(data, manifest(data, **other)))


def ranked(**other: Any) -> list[str]:
    """What keeps the whole of enwik9 from a rank, if it has these entries."""
    assert LANGUAGE.ranked is not None
    found = pretended_manifest(load_preset("ranked-text"))
    assert found["sha256"] == ENWIK9.sha256
    return list(LANGUAGE.ranked.data_faults({**found, **other}))


def test_a_manifest_of_a_text_agrees_with_itself_and_ranked_is_enwik9_whole(
    comes_to_what_was_read: ComesTo,
) -> None:
    """What a text must hold follows from its bytes. One's own is not known, but its windows are checked;
    generated text is as the configuration says. Rates are of bytes."""
    names = {"BUNDLED_TEXT": BUNDLED_TEXT, "IMAGES": IMAGES, "LANGUAGE": LANGUAGE}
    comes_to_what_was_read("manifests.txt", {**globals(), **names})


def test_nobody_pretends_to_have_read_a_text_of_ones_own() -> None:
    config = with_overrides(load_preset("text"), {"data.path": "/nowhere/own.txt"})
    with pytest.raises(ConfigError) as raised:
        refuse_no_examples(config)
    assert str(raised.value) == (
        "preset text does not say how many windows there are, and none are read; give "
        "--set data.test_examples=N"
    )
