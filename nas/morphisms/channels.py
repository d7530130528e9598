"""Which of the parent's channels each channel of the child copies, followed through the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, singledispatch
from math import prod

import numpy as np
from numpy.typing import NDArray

from nas.frozen import frozen
from nas.graph import Graph, Node
from nas.layers import Concat, Flatten, Layer, Shape

NEW = -1
"""Stands in an index for a channel that the parent does not have."""
Index = NDArray[np.intp]


class MorphismError(ValueError):
    """A morphism that does not apply to this graph."""


MOST_FEATURES = 1 << 18
"""Rows or columns of a tensor that a morphism of text takes from the parent, of which it lists each: as many
as the largest vocabularies have."""


def refuse_many(num: int, what: str) -> None:
    """Raises MorphismError, before a list of billions is made."""
    if num > MOST_FEATURES:
        raise MorphismError(f"{what} has {num:,} rows or columns; text grows up to {MOST_FEATURES:,}")


@frozen(eq=False)
class Channels:
    """For each channel of a child's tensor: the parent's channel that it copies, and its share.

    `source` is NEW for a channel that copies none. Whoever reads the tensor multiplies its weights
    for a channel by `share`: the shares of all copies of a channel add up to 1, and what is to be
    read with zeros has the share 0.
    """

    source: Index
    share: NDArray[np.float64]

    @staticmethod
    def same(width: int) -> Channels:
        """Each channel copies its own."""
        return Channels(np.arange(width), np.ones(width))

    @property
    def identical(self) -> bool:
        """Whether each channel copies its own, whole."""
        return self.agrees(Channels.same(len(self.source)))

    def agrees(self, other: Channels) -> bool:
        return np.array_equal(self.source, other.source) and np.array_equal(self.share, other.share)


@frozen(eq=False)
class Block:
    """What a group of the child's convolution takes from a group of the parent's.

    weight[rows, columns - first] comes from the parent's [source of rows, source of columns - was_first].
    """

    rows: Index
    columns: Index
    first: int
    was_first: int


@frozen(eq=False)
class Reading:
    """A layer with weights of the child and of the parent, by what they read and put out."""

    rows: Channels
    columns: Channels
    groups: int
    was_groups: int
    was_rows: int
    was_columns: int

    @cached_property
    def same(self) -> bool:
        """Whether the child's layer takes the parent's tensor as it is, in the same order."""
        return self.groups == self.was_groups and self.rows.identical and self.columns.identical

    def blocks(self) -> Iterator[Block]:
        """One block for each pair of groups with something to take. Ungrouped layers have one.

        A row of weights has columns for the channels of its own group only. So a column's number is that of
        the channel, less the first of the group; and what another group of the parent read is not there.
        """
        kept = np.flatnonzero(self.rows.source >= 0)
        reads, was_reads = len(self.columns.source) // self.groups, self.was_columns // self.was_groups
        # Of R rows in G groups, row r belongs to group r·G // R, in the child as in the parent.
        group = kept * self.groups // len(self.rows.source)
        was_group = self.rows.source[kept] * self.was_groups // self.was_rows
        for one, was in sorted(set(zip(group.tolist(), was_group.tolist()))):
            seen = self.columns.source[one * reads : (one + 1) * reads]
            inside = (seen >= was * was_reads) & (seen < (was + 1) * was_reads)
            yield Block(
                rows=kept[(group == one) & (was_group == was)],
                columns=np.flatnonzero(inside) + one * reads,
                first=one * reads,
                was_first=was * was_reads,
            )

    def keeps(self) -> bool:
        """Whether every copied output channel still reads, once, all that it read.

        `bincount` adds up, for each channel that a group of the parent read, the shares of its copies.
        """
        needed = self.was_columns // self.was_groups
        for block in self.blocks():
            source = self.columns.source[block.columns] - block.was_first
            # Compared exactly: shares are in 256ths, whose sums are not rounded.
            if not np.array_equal(
                np.bincount(source, self.columns.share[block.columns], needed), np.ones(needed)
            ):
                return False
        return True


def follow(parent: Graph, child: Graph, given: Mapping[str, Channels]) -> dict[str, Channels]:
    """The channels of every tensor of the child that are not just the parent's, from the `given` ones.

    Raises MorphismError where copies or zeros cannot keep the function.
    """
    found = dict(given)
    for node in child.nodes:
        old = parent.node.get(node.name)
        if old is None or (node.layer == old.layer and not any(name in found for name in node.inputs)):
            continue
        if node.layer.mixes_channels:
            if not reading(parent, old, node, found).keeps():
                raise MorphismError(f"{node.name}: its groups would not see the channels that they saw")
        elif node.name not in found:
            read = [found.get(name) or _same(parent, was) for name, was in zip(node.inputs, old.inputs)]
            try:
                found[node.name] = _passed(node.layer, read, parent.reads(old))
            except MorphismError as error:
                raise MorphismError(f"{node.name}: {error}") from None
    return found


def reading(parent: Graph, old: Node, node: Node, found: Mapping[str, Channels]) -> Reading:
    """How `node` of the child takes from `old` of the parent.

    Weights of a layer that mixes no channels have one column for each channel out: it stays the first.
    """
    mixes, read = node.layer.mixes_channels, old.inputs[0]
    return Reading(
        rows=found.get(node.name) or _same(parent, old.name),
        columns=found.get(node.inputs[0]) or _same(parent, read) if mixes else Channels.same(1),
        groups=node.layer.groups,
        was_groups=old.layer.groups,
        was_rows=parent.shapes[old.name][0],
        was_columns=parent.shapes[read][0] if mixes else 1,
    )


def span(index: Index) -> slice | Index:
    """A run of consecutive numbers as a slice, with which numpy is many times faster."""
    if len(index) and (np.diff(index) == 1).all():
        return slice(int(index[0]), int(index[-1]) + 1)
    return index


def _same(parent: Graph, name: str) -> Channels:
    return Channels.same(parent.shapes[name][0])


@singledispatch
def _passed(layer: Layer, read: list[Channels], shapes: tuple[Shape, ...]) -> Channels:
    """The channels that a layer puts out, from those it reads: the same, where nothing else is said.

    `shapes` are those that the layer read in the parent.
    """
    if not all(read[0].agrees(other) for other in read[1:]):
        raise MorphismError("it reads channels that are widened differently")
    if layer.fixes_width and not all(part.identical for part in read):
        raise MorphismError("it takes numbers over all of its channels")
    if layer.tears_copies and not np.isin(read[0].share, (0, 1)).all():
        raise MorphismError("in training, it tears copies of a channel apart")
    order = layer.order(len(read[0].source))
    return read[0] if order is None else _reordered(layer, read[0], np.asarray(order), shapes[0][0])


def _reordered(layer: Layer, read: Channels, order: Index, was: int) -> Channels:
    """Each channel out is the channel `order` of those read; what the parent's is called, its order says."""
    place = np.empty(was, np.intp)
    place[np.asarray(layer.order(was))] = np.arange(was)
    source = read.source[order]
    return Channels(np.where(source < 0, NEW, place[source]), read.share[order])


@_passed.register(Concat)
def _joined(layer: Layer, read: list[Channels], shapes: tuple[Shape, ...]) -> Channels:
    """Channels of an input are numbered behind those of the inputs before it, as the parent had them."""
    starts = np.cumsum([0, *(shape[0] for shape in shapes[:-1])])
    sources = [np.where(part.source < 0, NEW, part.source + start) for part, start in zip(read, starts)]
    return Channels(np.concatenate(sources), np.concatenate([part.share for part in read]))


@_passed.register(Flatten)
def _spread(layer: Layer, read: list[Channels], shapes: tuple[Shape, ...]) -> Channels:
    """Each channel becomes as many features as it has pixels, which share its origin and its share."""
    area = prod(shapes[0][1:])  # a channel's pixels become features that stand side by side
    features = read[0].source[:, None] * area + np.arange(area)
    features[read[0].source < 0] = NEW
    return Channels(features.ravel(), np.repeat(read[0].share, area))
