"""The samples that LoadGen asks for: the run's test examples, loaded into the host's memory before a test."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from aiperf.data import Split
from aiperf.data.split import Batch

MOST_BYTES = 4 << 30
"""Of the samples that are loaded at once; of a larger set LoadGen loads one part after the other."""
AT_ONCE = 256
"""Examples that are read at once."""


class Library:
    """Examples by their place in the test part. MLPerf's rules have them begin in the host's memory."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.total = split.num_examples
        first, _ = next(iter(split.sweep(1)))
        self.loadable = max(1, min(self.total, MOST_BYTES // (first.element_size() * first.numel())))
        self._row = [-1] * self.total
        self._examples, self._targets = torch.empty(0), torch.empty(0)

    def load(self, wanted: Sequence[int]) -> None:
        """These and no others lie in memory afterwards; nothing is read where they do already."""
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
        """What is loaded stays until other samples are: the next test of a search asks for the same."""

    def targets(self) -> Tensor:
        """Of all examples, in their order."""
        return torch.cat([targets for _, targets in self.split.sweep(AT_ONCE)])

    def samples(self, places: Sequence[int]) -> Batch:
        """Of loaded samples what a network reads, and its targets."""
        rows = [self._row[place] for place in places]
        if len(rows) == 1:  # a view, no copy
            examples, targets = (held[rows[0] : rows[0] + 1] for held in (self._examples, self._targets))
        else:
            chosen = torch.tensor(rows)
            examples, targets = (held.index_select(0, chosen) for held in (self._examples, self._targets))
        return (examples.permute(0, 3, 1, 2) if examples.dim() == 4 else examples), targets


def _rows_last(batch: Tensor) -> Tensor:
    """Images with their channels last, so that a choice of them keeps the order that convolutions like."""
    return batch.permute(0, 2, 3, 1) if batch.dim() == 4 else batch
