"""The order in which examples are shown: one permutation a pass, from (seed, pass) alone."""

from __future__ import annotations

from hashlib import blake2b

import torch
from torch import Tensor


class Order:
    """Endless positions 0, 1, 2, …: position p shows example `permutation(p // n)[p % n]`.

    With each position come `draws` numbers in [0, 1), for its augmentation. Both are drawn on the
    host, so that every device and every rank sees the same.
    """

    def __init__(self, num_examples: int, seed: int, draws: int = 0) -> None:
        self.num_examples = num_examples
        self.seed = seed
        self.draws = draws
        self._number = -1
        self._pass = (torch.empty(0, dtype=torch.int64), torch.empty(0, draws))

    def take(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Examples (m,) int64 and draws (m, draws) float32 of the positions start ≤ p < stop."""
        pieces = []
        for number in range(start // self.num_examples, -(-stop // self.num_examples)):
            examples, draws = self._of_pass(number)
            origin = number * self.num_examples
            piece = slice(max(start - origin, 0), stop - origin)
            pieces.append((examples[piece], draws[piece]))
        if len(pieces) == 1:
            return pieces[0]
        return torch.cat([examples for examples, _ in pieces]), torch.cat([draws for _, draws in pieces])

    def _of_pass(self, number: int) -> tuple[Tensor, Tensor]:
        if number != self._number:
            digest = blake2b(f"{self.seed}/{number}".encode(), digest_size=8).digest()
            source = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
            examples = torch.randperm(self.num_examples, generator=source)
            self._pass = (examples, torch.rand(self.num_examples, self.draws, generator=source))
            self._number = number
        return self._pass
