"""LoadGen's sample library: the run's test examples, loaded into host memory before a test."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from aiperf.data import Split
from aiperf.data.splits import Batch

MOST_BYTES = 4 << 30
"""Maximum memory of loaded samples in bytes; LoadGen loads a larger set one part after the other."""
AT_ONCE = 256
"""Number of examples per read."""


class SampleLibrary:
    """Test examples by their place in the test part. By MLPerf's rules a query begins with its samples in
    host memory."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.total = split.num_examples
        first, _ = next(iter(split.sweep(1)))
        self.loadable = max(1, min(self.total, MOST_BYTES // (first.element_size() * first.numel())))
        self._row = [-1] * self.total
        self._examples, self._targets = torch.empty(0), torch.empty(0)

    def load(self, wanted: Sequence[int]) -> None:
        """Loads these samples and drops all others. Nothing is read if they are loaded already."""
        places = sorted(set(wanted))
        if places == [index for index, row in enumerate(self._row) if row >= 0]:
            return
        self._row, chosen = [-1] * self.total, torch.zeros(self.total, dtype=torch.bool)
        for row, place in enumerate(places):
            self._row[place] = row
        chosen[places] = True
        self._examples, self._targets = torch.empty(0), torch.empty(0)
        kept: list[Batch] = []
        start = 0
        for batch, targets in self.split.sweep(AT_ONCE):
            here = chosen[start : start + len(targets)]
            if here.any():
                kept.append((_rows_last(batch)[here], targets[here]))
            start += len(targets)
        self._examples = torch.cat([examples for examples, _ in kept])
        self._targets = torch.cat([targets for _, targets in kept])

    def unload(self, places: Sequence[int]) -> None:
        """Does nothing: samples stay loaded until others replace them, because the next test of a search asks
        for the same ones."""

    def targets(self) -> Tensor:
        """Targets of all examples, in order."""
        return torch.cat([targets for _, targets in self.split.sweep(AT_ONCE)])

    def samples(self, places: Sequence[int]) -> Batch:
        """Examples and targets of loaded samples, as a batch for the network."""
        rows = [self._row[place] for place in places]
        if len(rows) == 1:  # a view, no copy
            examples, targets = (held[rows[0] : rows[0] + 1] for held in (self._examples, self._targets))
        else:
            chosen = torch.tensor(rows)
            examples, targets = (held.index_select(0, chosen) for held in (self._examples, self._targets))
        return (examples.permute(0, 3, 1, 2) if examples.dim() == 4 else examples), targets


def _rows_last(batch: Tensor) -> Tensor:
    """Images with their channels last, so that rows selected from them keep the memory layout that is fastest
    for convolutions."""
    return batch.permute(0, 2, 3, 1) if batch.dim() == 4 else batch
