"""What nodes read of the training images, against shares that are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from aiperf.config import load_preset
from aiperf.pretending.assumptions import TrainingData
from aiperf.simulation.data_on_nodes import DataOnNodes
from aiperf.wire.layout import layout
from tests.tables import ComesTo

IMAGES, BYTES = 1000, 10.0
SET = IMAGES * BYTES
Next = int | tuple[int, int]
BEGIN = 0
"""In the place of a number of images: the group begins a trial."""


def shares(
    hosts: str, size: int, *images: Next, memory: float = 1e9, spread: bool = False, **data: str
) -> list[list[float]]:
    """What the nodes of a group of these hosts read of the set for its next images, several times; a pair
    names another group first."""
    places, nodes = layout(hosts, size, spread), DataOnNodes(TrainingData(BYTES, memory))
    own = replace(load_preset("ranked").data, **data)
    groups = sorted({place.group for place in places})
    readings = [nodes.reading([p for p in places if p.group == group], own, IMAGES) for group in groups]
    found = []
    for each in images:
        group, num = each if isinstance(each, tuple) else (0, each)
        if num == BEGIN:
            readings[group].begin()
        else:
            found.append([round(read / SET, 9) for read in readings[group].next(num)])
    return found


def test_each_node_reads_its_share_once_while_it_has_memory(comes_to_what_was_read: ComesTo) -> None:
    """Each trial begins with a new order, of which a part was read before; a node of a spread group has
    another share in each epoch. What is not read from files costs nothing."""
    comes_to_what_was_read("data_on_nodes.txt", globals())
