"""What a step costs in reading: the digits' stream beside a bare index with a slice of a permutation.

    python -m benchmarks.stream [--steps 2000]

Prints microseconds per step, the median of alternating rounds, on the device that is found.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

from aiperf.config import load_preset
from aiperf.data import load

ROUNDS, BATCH = 11, 50


def bare(images: Tensor, labels: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches by a slice of a permutation, the least that an epoch needs."""
    while True:
        order = torch.randperm(len(images)).to(images.device)
        for first in range(0, len(images) - batch_size + 1, batch_size):
            chosen = order[first : first + batch_size]
            yield images[chosen], labels[chosen]


def seconds_a_step(batches: Iterator[tuple[Tensor, Tensor]], steps: int, device: torch.device) -> float:
    """Seconds to read a batch; the first one, which may prepare something, is not timed."""
    next(batches)
    started = time.perf_counter()
    for _ in islice(batches, steps):
        pass
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / steps


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="of each round")
    steps = parser.parse_args(arguments).steps
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train = load(load_preset("digits").data, device, seed=1).train
    ((images, labels),) = train.sweep(train.num_examples)
    rounds = [
        (
            seconds_a_step(bare(images, labels, BATCH), steps, device),
            seconds_a_step(train.stream(BATCH, 1), steps, device),
        )
        for _ in range(ROUNDS)
    ]
    for name, taken in zip(("bare index", "stream"), zip(*rounds)):
        spread = f"{min(taken) * 1e6:.1f} to {max(taken) * 1e6:.1f}"
        print(f"{name:12}{statistics.median(taken) * 1e6:8.1f} µs per step of {BATCH}   ({spread})")


if __name__ == "__main__":
    main()
