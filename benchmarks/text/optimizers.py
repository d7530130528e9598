"""AdamW and Muon on the bundled text, at equal steps: the seed of the preset, trained once by each.

    python -m benchmarks.text.optimizers [--seeds 3] [--steps 120] [--rate 0.003]

Both begin with the same weights and read the same windows in the same order. They take their steps in turns,
so that what else the machine does meets both. Bits per byte are of windows of the validation part; seconds
are processor time of one thread.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import replace
from time import process_time

import torch

from aiperf.config import load_preset, with_overrides
from aiperf.data import load
from aiperf.device import bind
from aiperf.parallel.parallel import Solo, make_step
from aiperf.tasks.language.tally import Predicted
from aiperf.training.built_trial import BuiltTrial, Rank, build
from aiperf.training.evaluation import evaluate
from aiperf.training.kept_network import Kept
from aiperf.wire.trial import HyperParameters, Trial
from nas.seeds import resolve_seed
from nas.weights import initial

OPTIMIZERS = ("adamw", "muon")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rate", type=float, default=0.003, help="of learning; default: the preset's")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    bits, ratios = list[float](), list[float]()
    for seed in range(1, options.seeds + 1):
        (adamw, muon), seconds = _pair(options.rate, seed, options.steps)
        print(f"seed {seed}: adamw {adamw:.3f}, muon {muon:.3f} bits per byte", flush=True)
        bits.append(muon - adamw)
        ratios.append(seconds[1] / seconds[0])
    print(
        f"muon {statistics.mean(bits):+.3f} bits per byte ({min(bits):+.3f} to {max(bits):+.3f}); its steps "
        f"take {statistics.median(ratios):.2f} times the processor time (median; {min(ratios):.2f} to "
        f"{max(ratios):.2f})"
    )


def _pair(rate: float, seed: int, steps: int) -> tuple[list[float], list[float]]:
    """Bits per byte of each optimizer, and the seconds of all its steps."""
    config = with_overrides(
        load_preset("text"),
        {"data.training_examples": 0, "data.validation_examples": 256, "training.format": "bf16"},
    )
    device, training = bind("cpu", 0), config.training
    graph = resolve_seed(config.seed_architecture)
    hyper = HyperParameters(rate, training.batch_size, momentum=0.9, weight_decay=training.weight_decay)
    rank = Rank(device, load(config.data, device.torch, seed), training, Solo())
    # One epoch is longer than all steps; the rate falls to zero with the last.
    trial, start = Trial(0, None, (), hyper, 1, 1, seed), Kept(graph, initial(graph, seed), {})
    attempts = []
    for name in OPTIMIZERS:
        attempt = build(replace(rank, training=replace(training, optimizer=name)), trial, 1, start)
        attempts.append(replace(attempt, plan=replace(attempt.plan, steps=steps)))
    seconds = [0.0, 0.0]
    for step in range(steps):
        for place, attempt in enumerate(attempts):
            began = process_time()
            _step(attempt, step, training.gradient_clip)
            seconds[place] += process_time() - began
    found = [evaluate(rank, attempt.network, rank.data.validation)[0] for attempt in attempts]
    assert all(isinstance(tally, Predicted) for tally in found)
    return [tally.bits_per_byte for tally in found if isinstance(tally, Predicted)], seconds


def _step(attempt: BuiltTrial, step: int, clip: float) -> None:
    """One step of a trial, as training makes it."""
    for group in attempt.optimizer.param_groups:
        group["lr"] = attempt.plan.rate(step)
    attempt.engine.step(*attempt.batches.next)
    make_step(attempt.optimizer, attempt.scaler, clip)
    attempt.batches.load()


if __name__ == "__main__":
    main()
