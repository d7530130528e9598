"""When a run ends early because every trial fails for the same reason, which no further trial can avoid.

A wrong image or a learning rate that is far too high would otherwise be reported after an hour. One bad node
must not end the run of all others, so the failure must have been seen in several places.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from nas.frozen import frozen

NETWORKS = 3
"""Number of different networks that must fail: single architectures do."""
PLACES = 3
"""Number of groups, and of hosts, on which they must fail, where there are as many: a device or a node may be
broken."""

_OF_RANK = re.compile(r"^rank \d+ on \S+: ")
_NOT_FINITE = "NotFinite: "
_PATH = re.compile(r"/[^\s:;()]+")
_NUMBER = re.compile(r"-?\d[\d.,]*(e[+-]?\d+)?|-?\b(nan|inf)\b")


@frozen
class Failure:
    """A trial that failed for good."""

    network: str
    """Key of its graph."""
    group: int
    hosts: Collection[str]
    """The hosts of its group."""
    reason: str
    """The line that the rank reported."""
    segments: int = 0
    """Number of validations before it failed."""

    @property
    def cause(self) -> str:
        """The reason without what differs from one occurrence to the next: rank, host, files and numbers. If
        files cannot be read, each trial meets another one first."""
        text = _OF_RANK.sub("", self.reason)
        if text.startswith(_NOT_FINITE):  # of a loss, or of an answer in a validation
            return _NOT_FINITE
        return _NUMBER.sub("#", _PATH.sub("PATH", text))


@dataclass
class SharedFailure:
    """The failures of a leg, as long as all of them have one cause and no trial has completed."""

    excluded: bool = False
    """Whether some trial completed or failed for another reason, so that the next one may complete."""
    first: Failure | None = None
    _segments: int = 0
    """The most validations of a trial that failed."""
    _networks: set[str] = field(default_factory=set)
    _groups: set[int] = field(default_factory=set)
    _hosts: set[str] = field(default_factory=set)

    def failed(self, failure: Failure) -> None:
        """Adds a failure."""
        self.first = self.first or failure
        self.excluded = self.excluded or failure.cause != self.first.cause
        if not self.excluded:
            self._networks.add(failure.network)
            self._groups.add(failure.group)
            self._hosts.update(failure.hosts)
            self._segments = max(self._segments, failure.segments)

    def ends_run(self, num_groups: int, num_hosts: int, open_segments: int) -> bool:
        """Whether no trial can be expected to complete, with this many groups and hosts: three networks
        failed, on at least half of the groups, and on three groups and three hosts where there are as many.
        A trial in progress with more validations (`open_segments`) than any that failed is waited for."""
        return (
            not self.excluded
            and open_segments <= self._segments
            and len(self._networks) >= NETWORKS
            and len(self._groups) >= max(num_groups / 2, min(PLACES, num_groups))
            and len(self._hosts) >= min(PLACES, num_hosts)
        )
