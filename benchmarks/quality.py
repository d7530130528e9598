"""Whether the search earns its time: it against its own seed, at an equal span.

    python benchmarks/quality.py [--data digits|fashion] [--seeds 5] [--seconds 120]

Three arms for each random seed, each with the same span:
  search      the preset's search
  stretched   the seed, trained once with its schedule stretched over the span
  restarted   the seed, trained again and again from new weights by the search's longest schedule, the
              best on validation taken
Prints the column of the table in docs/search.md: the test error of the network that was best on validation,
its median and, in brackets, the least and the greatest. A second is one of the training thread's CPU time, so
that arms run side by side, one on each core. On a quiet machine it is the clock's.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import torch

from aiperf.config import Config, load_preset, with_overrides
from aiperf.data import load
from aiperf.device import bind
from aiperf.parallel.parallel import Solo
from aiperf.proposing.pace import Pace
from aiperf.run.checks import starting_graph
from aiperf.tasks.images.data import ImageData
from aiperf.training.built_trial import Rank, build
from aiperf.training.evaluation import evaluate
from aiperf.training.kept_network import Kept
from aiperf.training.train import train
from aiperf.trial import HyperParameters, State, Trial
from aiperf.wire.messages import Validated
from nas.graph import Graph
from nas.modules import Network
from nas.search import SEARCHES, Observation
from nas.weights import initial

ARMS = {
    "search": "the search",
    "stretched": "the seed, trained once, its schedule stretched over the span",
    "restarted": "the seed, restarted repeatedly with the search's longest schedule",
}
"""Arms, each with its row of the table."""
TITLES = {
    "digits": "digits, 200 training images",
    "fashion": "Fashion-MNIST, 5,000 training images",
}
FASHION = ImageData(
    name="idx",
    path="/usr/share/datasets/fashion-mnist",
    channels=1,
    size=32,
    classes=10,
    training_examples=5000,
    validation_examples=1000,
)
# An epoch is 25 of the digits', so fewer of them, in which networks grow faster; less decay for more images.
FASHION_ROUNDS = {
    "training.epochs": [1] * 8 + [12],
    "training.validate_every_examples": 5000,
    "training.weight_decay": 5e-4,
    "search.bounds.growth_rounds": 8,
}
CALIBRATION_EPOCHS = 10
now = time.thread_time


@dataclass(frozen=True)
class Result:
    """The result of one arm."""

    arm: str
    seed: int
    test_error: float


class Arm:
    """A span of training on this thread."""

    def __init__(self, config: Config, seconds: float) -> None:
        torch.set_num_threads(1)
        device = bind("cpu", 0)
        data = load(config.data, device.torch, config.random_seed)
        self.config, self.seconds = config, seconds
        self.rank = Rank(device, data, config.training, Solo(), clock=now)
        self.seed: Graph = starting_graph(config)
        self.pace = Pace(deadline=now() + seconds)
        self.best_error, self.best, self.trials = math.inf, None, 0

    def fresh(self, random_seed: int) -> Kept:
        return Kept(self.seed, initial(self.seed, random_seed), {})

    def trained(
        self, number: int, epochs: int, start: Kept, is_child: bool
    ) -> tuple[State, Kept | None, list]:
        training = self.config.training
        rate = training.child_learning_rate if is_child else 0.0
        hyper = HyperParameters(
            rate or training.learning_rate,
            training.batch_size,
            training.momentum,
            training.weight_decay,
            training.label_smoothing,
        )
        seed = 1000 * self.config.random_seed + number
        trial = Trial(number, None, (), hyper, 1 + number, epochs, seed)
        curve: list[tuple[int, float]] = []

        def report(message: object) -> None:
            if isinstance(message, Validated):
                images = curve[-1][0] if curve else 0
                curve.append((images + message.segment.train_examples, message.segment.error))

        end = train(self.rank, build(self.rank, trial, 1, start), self.pace, report)
        self.trials += 1
        if curve and end.kept is not None and min(error for _, error in curve) < self.best_error:
            self.best_error, self.best = min(error for _, error in curve), end.kept
        return end.state, end.kept, curve

    def search(self) -> None:
        settings, epochs = self.config.search, self.config.training.epochs
        search = SEARCHES[settings.name](
            self.seed, self.config.random_seed, settings.bounds, settings.population, settings.morphisms
        )
        kept: dict[int, Kept] = {}
        ahead = [(0, search.ask(0, 1)), (1, search.ask(1, 2))]  # one is prepared while the other is trained
        while not self.pace.must_close(now()):
            number, candidate = ahead.pop(0)
            start = self.fresh(self.config.random_seed)
            start = start if candidate.parent is None else kept[candidate.parent]
            for morphism in candidate.morphisms:
                start = start.grown(morphism)
            length = epochs[min(number, len(epochs) - 1)]
            state, network, curve = self.trained(number, length, start, candidate.parent is not None)
            if state is State.COMPLETE and network is not None:
                images = length * self.rank.data.train.num_examples
                search.tell(Observation(number, images, tuple(curve)))
                kept[number] = network
            next_number = ahead[-1][0] + 1
            ahead.append((next_number, search.ask(next_number, next_number + 1)))
            living = search.alive()
            kept = {old: network for old, network in kept.items() if old in living}

    def stretched(self) -> None:
        began, self.pace.deadline = now(), float("inf")
        self.trained(0, CALIBRATION_EPOCHS, self.fresh(0), False)
        seconds_an_epoch = (now() - began) / CALIBRATION_EPOCHS
        self.best_error, self.best, self.trials = math.inf, None, 0
        epochs = max(1, round(self.seconds / seconds_an_epoch))
        self.trained(0, epochs, self.fresh(self.config.random_seed), False)

    def restarted(self) -> None:
        while not self.pace.must_close(now()):
            weights = self.fresh(1000 * self.config.random_seed + self.trials)
            self.trained(self.trials, max(self.config.training.epochs), weights, False)


def run(arm: str, config: Config, seconds: float) -> Result:
    job = Arm(config, seconds)
    getattr(job, arm)()
    if job.best is None:
        sys.exit(f"no network of {arm} was validated within {seconds} s; give more --seconds")
    network = Network(job.best.graph)
    network.load(job.best.weights)
    network.place(job.rank.device.torch, job.rank.device.layout)
    tested, _ = evaluate(job.rank, network, job.rank.data.test)
    return Result(arm, config.random_seed, tested.error)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", choices=("digits", "fashion"), default="digits")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args(arguments)
    results = list(_results(options))
    print(f"\n| | {TITLES[options.data]} |\n|-|-|")
    for arm, title in ARMS.items():
        errors = sorted(100 * result.test_error for result in results if result.arm == arm)
        print(f"| {title} | {statistics.median(errors):.2f} % ({errors[0]:.2f} to {errors[-1]:.2f}) |")


def _results(options: argparse.Namespace) -> Iterator[Result]:
    preset = load_preset("digits")
    if options.data == "fashion":
        preset = with_overrides(replace(preset, data=FASHION), FASHION_ROUNDS)
    with ProcessPoolExecutor() as pool:
        jobs = [
            pool.submit(run, arm, with_overrides(preset, {"random_seed": seed}), options.seconds)
            for seed in range(1, options.seeds + 1)
            for arm in ARMS
        ]
        for job in jobs:
            result = job.result()
            print(result, file=sys.stderr, flush=True)
            yield result


if __name__ == "__main__":
    main()
