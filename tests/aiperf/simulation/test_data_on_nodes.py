"""What nodes read of the training images, against shares that are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiperf.config import load_preset
from aiperf.pretending.assumptions import TrainingData
from aiperf.simulation.data_on_nodes import DataOnNodes, ImageReading
from aiperf.wire.layout import layout

IMAGES, BYTES = 1000, 10.0
SET = IMAGES * BYTES
ROOMY = TrainingData(BYTES, 1e9)


def readings(
    hosts: str, size: int, assumed: TrainingData = ROOMY, spread: bool = False
) -> list[ImageReading]:
    """That of each group of these hosts."""
    places, nodes = layout(hosts, size, spread), DataOnNodes(assumed)
    groups = dict.fromkeys(place.group for place in places)
    data = load_preset("ranked").data
    return [
        nodes.reading([place for place in places if place.group == each], data, IMAGES) for each in groups
    ]


def test_a_group_alone_reads_the_set_once() -> None:
    (one,) = readings("aaa", 2)
    assert [one.next(250) for _ in range(4)] == [pytest.approx([SET / 4])] * 4
    assert one.next(2500) == [0.0]


def test_a_trial_begins_with_a_new_order() -> None:
    (one,) = readings("aaa", 2)
    assert one.next(500) == [pytest.approx(SET / 2)]
    one.begin()
    # Of another half of the images, half were read before.
    assert one.next(500) == [pytest.approx(SET / 4)]
    assert one.next(500) == [pytest.approx(SET / 4)], "an epoch has each image once"
    assert one.next(500) == [0.0]


def test_what_another_group_of_the_node_has_read_is_there() -> None:
    first, second = readings("aaa", 1)
    assert first.next(500) == [pytest.approx(SET / 2)]
    assert second.next(500) == [pytest.approx(SET / 4)]
    assert first.next(500) == [pytest.approx(SET / 4)], "the second has read half of these"
    assert second.next(500) == [0.0]


def test_a_node_of_a_spread_group_reads_its_share_of_each_epoch() -> None:
    (one,) = readings("aab", 2, spread=True)
    assert one.next(IMAGES) == pytest.approx([SET / 2, SET / 2])
    # The share of the next epoch is another one: half of it is there.
    assert one.next(IMAGES) == pytest.approx([SET / 4, SET / 4])
    assert one.next(2 * IMAGES) == pytest.approx([SET / 8 + SET / 16] * 2)


def test_what_does_not_fit_into_memory_is_read_in_every_epoch() -> None:
    (one,) = readings("aaa", 2, TrainingData(BYTES, 0.25 * SET))
    assert one.next(IMAGES) == [pytest.approx(SET)]
    assert one.next(2 * IMAGES) == [pytest.approx(2 * 0.75 * SET)]


@pytest.mark.parametrize(
    "changes",
    [{"name": "synthetic"}, {"name": "cifar10"}, {"name": "packed", "stage": "/local"}],
    ids=lambda each: str(each),
)
def test_what_is_not_read_from_files_costs_nothing(changes: dict[str, str]) -> None:
    data = replace(load_preset("ranked").data, **changes)  # type: ignore[arg-type]
    assert DataOnNodes(ROOMY).reading(layout("aa"), data, IMAGES).next(IMAGES) == []
