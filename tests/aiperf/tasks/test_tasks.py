"""Tasks: what language asks of data, and what keeps a run of it from a rank; known sets and texts, recognised
by their fingerprint; tallies, whose sums are exact; and the windows of a text."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from aiperf.config import DataConfig, load_preset, preset_names, with_overrides
from aiperf.pretending.rank_report import pretended_manifest, refuse_no_examples
from aiperf.rules.eligibility import unrankable
from aiperf.run.checks import starting_graph
from aiperf.tasks.data import data_names
from aiperf.tasks.images.known_sets import CIFAR_10, IMAGENET_1K, known_set
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.images.task import IMAGES
from aiperf.tasks.language.known_texts import BUNDLED_TEXT, ENWIK9, known_text
from aiperf.tasks.language.tally import MOST_BITS, UNIT, Predicted
from aiperf.tasks.language.task import LANGUAGE, WINDOW
from aiperf.tasks.language.text_windows import TextWindows
from aiperf.tasks.registry import TASKS, task_of
from aiperf.tasks.tally import Tally, tally_of
from aiperf.tasks.task import Task, differences
from nas.morphisms.text import GateMLP, MoreGroups, MoreHeads
from nas.record import decode, encode
from tests.journals import DATA
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
    generated text is as the configuration says. Rates are of bytes. Nobody
    pretends to have read a text of one's own."""
    comes_to_what_was_read("manifests.txt", {**globals(), "pretend": refuse_no_examples})


ENTRIES = LANGUAGE.data.foreseen(load_preset("ranked-text").data)
LONGER = {**ENTRIES, "size": 2048, "official_training_examples": 463_866, "test_examples": 24_414}
PACKED = {**IMAGENET_1K.facts({}), "channels": 3, "name": "packed", "packed": {"side": 256}}


def known(manifest: Mapping[str, object]) -> str:
    """The title of the set or text of a manifest, which is anybody's."""
    found = known_set(manifest) or known_text(manifest)
    return "" if found is None else found.title


def test_a_set_is_recognised_by_its_fingerprint_and_other_numbers_are_told(
    comes_to_what_was_read: ComesTo,
) -> None:
    """Packed ImageNet is ImageNet. The number of windows follows from their size."""
    names = {"differences": differences, "ENWIK9": ENWIK9, "BUNDLED_TEXT": BUNDLED_TEXT, "CIFAR_10": CIFAR_10}
    comes_to_what_was_read("known_sets.txt", {**globals(), **names, "DATA": DATA})


SHARES = [Classified(10**17 + place, 10**17 - place) for place in range(5)]
NAMES = {each.__name__: each for each in (Classified, Predicted, Tally, tally_of, decode, encode)}


def bits(each: int) -> Predicted:
    """A text of 16 bytes with so many bits for each."""
    return Predicted(1, each * UNIT * 16, 16)


def test_what_tallies_come_to(comes_to_what_was_read: ComesTo) -> None:
    """Another machine may turn one answer, or two in a thousand and a tenth of the wrong ones. No more
    answers are right than were given, no byte has more bits than are counted, and tasks are neither compared
    nor added. Of nothing, nothing is right; a text worse than chance has an error of one and is still
    compared. A record names the kind, and the numbers alone tell it."""
    comes_to_what_was_read("tallies.txt", {**globals(), **NAMES, "MOST_BITS": MOST_BITS})


def test_a_text_is_divided_as_enwik8_customarily_is() -> None:
    training, validation, test = TextWindows(100_000_000, 1024).parts
    assert (training, validation) == (range(90_000_000), range(90_000_000, 95_000_000))
    assert test == range(95_000_000, 100_000_000)
    found = TextWindows(1_000_000_000, 1024)
    assert (found.training, found.validation, found.test) == (878_905, 48_828, 48_828)
    assert found.official_training == 927_733


@pytest.mark.parametrize("size", [2, 3, 7, 64])
@pytest.mark.parametrize("length", [*range(0, 400, 39), 1299, 1300, 1301, 9999])
def test_the_windows_are_those_that_fit(length: int, size: int) -> None:
    found = TextWindows(length, size)
    training, validation, test = found.parts
    assert [*training, *validation, *test] == list(range(length))
    for part, number in ((validation, found.validation), (test, found.test)):
        assert number == len([begin for begin in part[::size] if begin + size in part])
    starts = [training[first::size] for first in range(size)]
    assert found.training == min(len([at for at in begins if at + size in training]) for begins in starts)


@pytest.mark.parametrize(("training", "validation"), [(1, 1), (250, 128), (250, 3), (1, 7), (99, 5)])
@pytest.mark.parametrize("size", [2, 5, 64, 1024])
def test_enough_bytes_for_so_many_windows_are_no_more_than_it_takes(
    size: int, training: int, validation: int
) -> None:
    enough = TextWindows(0, size).enough_bytes(training, validation)
    fitting = [
        length
        for length in range(enough - 40, enough + 40)
        if (found := TextWindows(length, size)).training >= training
        and found.validation >= validation
        and found.test >= 1
    ]
    assert enough in fitting
    assert min(fitting) > enough - 20  # by rounding, a few bytes fewer may be enough


def test_the_longest_windows() -> None:
    for length in range(60, 400, 7):
        longest = TextWindows(length, 2).longest
        of_longest, of_longer = TextWindows(length, longest), TextWindows(length, longest + 1)
        assert min(of_longest.training, of_longest.validation, of_longest.test) >= 1
        assert min(of_longer.validation, of_longer.test) == 0


def test_what_is_left_out_belongs_to_no_window() -> None:
    found = TextWindows(1000, 10)
    assert (found.training, found.validation, found.test) == (89, 4, 4)
    assert found.left_out(89 + 4 + 4) == 1000 - 891 - 41 - 41 == 27
