"""Training images that simulated nodes read from the shared file system: what a node has in memory by now is
not read again. It is an expectation over random orders: no image has a name, and shares of the set are
enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiperf.pretending.assumptions import TrainingData
from aiperf.tasks.data import DataConfig
from aiperf.wire.layout import Place

READ_FROM_FILES = ("imagefolder", "packed")
"""Forms of data whose images are read as they are needed; all others are kept in memory from the start."""


@dataclass
class DataOnNodes:
    """The memory of all nodes for training images, by node."""

    assumed: TrainingData
    unread: dict[int, float] = field(default_factory=lambda: defaultdict(lambda: 1.0))
    """Share of the images that no group on the node has read yet, as an expectation."""
    bytes_read: float = 0.0
    """Bytes read from the file system by all groups."""
    waited_seconds: float = 0.0
    """For how long steps waited for images, summed over all groups."""

    def reading(self, places: Sequence[Place], data: DataConfig, examples: int) -> ImageReading:
        """The reading of one group. `examples`: number of training examples."""
        own = defaultdict[int, float](float)
        for place in places:
            own[place.host_index] += 1 / len(places)
        # A staged set is copied to the nodes before the clock starts.
        is_read = data.name in READ_FROM_FILES and not data.stage
        return ImageReading(self, own, examples, self.assumed.image_bytes * is_read)

    def waited(self, seconds: float, content: float) -> None:
        """Adds up a block of steps: how long it waited, and what was read."""
        self.waited_seconds += seconds
        self.bytes_read += content


@dataclass
class ImageReading:
    """How far a group has come in its epoch. Each epoch is all examples in a new order, of which each node
    gets the share of the group's ranks that it has."""

    nodes: DataOnNodes
    own: dict[int, float]
    """Share of the group's examples that each of its nodes reads."""
    examples: int
    example_bytes: float
    """Bytes of an image in its file; 0 if images are in memory from the start."""
    _done: float = 0.0
    """Share of the epoch that is done."""

    @property
    def goes_on(self) -> bool:
        """Whether images are still read, so that nobody knows in advance how long a step takes."""
        if not self.example_bytes:
            return False
        fits = self.example_bytes * self.examples <= self.nodes.assumed.node_cache_bytes
        return not fits or any(self.nodes.unread[node] > 0.0 for node in self.own)

    def begin(self) -> None:
        """A new trial begins with a new order."""
        self._done = 0.0

    def next(self, examples: int) -> list[float]:
        """The bytes that each node of the group must read for the next examples. What does not fit into the
        memory of a node is read in each epoch."""
        if not self.example_bytes:
            return []
        set_bytes = self.example_bytes * self.examples
        fits = min(1.0, self.nodes.assumed.node_cache_bytes / set_bytes)
        left, found = examples / self.examples, dict.fromkeys(self.own, 0.0)
        while left > 0:
            # Up to the end of the epoch; then the next one begins, with a new order.
            part = min(left, 1.0 - self._done)
            for node, own in self.own.items():
                new = self._new(node, own * self._done, own * (self._done + part))
                found[node] += set_bytes * (fits * new + (1.0 - fits) * own * part)
            left -= part
            self._done = 0.0 if self._done + part >= 1.0 else self._done + part
        return list(found.values())

    def _new(self, node: int, before: float, after: float) -> float:
        """The share of all images that the node has not read yet, among those from a share of the epoch to
        another one. An image that this epoch has not reached is as likely unread as any other such one."""
        unread = self.nodes.unread[node]
        self.nodes.unread[node] = left = unread * max(0.0, 1.0 - after) / (1.0 - before)
        return unread - left
