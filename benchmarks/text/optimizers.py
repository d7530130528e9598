"""AdamW and Muon on the bundled text, at equal steps: the seed of the preset, trained once by each.

    python -m benchmarks.text.optimizers [--seeds 3] [--steps 300] [--rates 0.002,0.004,0.008] [--format bf16]

Both begin with the same weights and read the same windows in the same order. They take their steps in turns,
so that what else the machine does meets both. Bits per byte are of windows of the validation part; seconds
are processor time of one thread.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from time import process_time

import torch

from aiperf.config import with_overrides
from aiperf.data import load
from aiperf.device import bind
from aiperf.parallel.parallel import Solo, make_step
from aiperf.tally import Predicted
from aiperf.training.built_trial import BuiltTrial, Rank, build
from aiperf.training.evaluation import evaluate
from aiperf.training.kept_network import Kept
from aiperf.trial import HyperParameters, Trial
from nas.seeds import resolve_seed
from nas.weights import initial
from tests.aiperf.presets import resolved_preset

OPTIMIZERS = ("adamw", "muon")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rates", default="0.002,0.004,0.008")
    parser.add_argument("--format", default="bf16")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for rate in map(float, options.rates.split(",")):
        bits, ratios = list[float](), list[float]()
        for seed in range(1, options.seeds + 1):
            (adamw, muon), seconds = _pair(rate, seed, options.steps, options.format)
            print(f"rate {rate}, seed {seed}: adamw {adamw:.4f}, muon {muon:.4f} bits per byte", flush=True)
            bits.append(muon - adamw)
            ratios.append(seconds[1] / seconds[0])
        print(
            f"rate {rate}: muon {statistics.mean(bits):+.4f} bits per byte ({min(bits):+.4f} to "
            f"{max(bits):+.4f}); its steps take {statistics.median(ratios):.2f} times as long (median)",
            flush=True,
        )


def _pair(rate: float, seed: int, steps: int, format: str) -> tuple[list[float], list[float]]:
    """Of each optimizer bits per byte, and the seconds of all steps."""
    config = with_overrides(
        resolved_preset("text"),
        {"data.training_examples": 0, "data.validation_examples": 256, "training.format": format},
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
    for group in attempt.optimizer.param_groups:
        group["lr"] = attempt.plan.rate(step)
    attempt.engine.step(*attempt.batches.next)
    make_step(attempt.optimizer, attempt.scaler, clip)
    attempt.batches.load()


if __name__ == "__main__":
    main()
