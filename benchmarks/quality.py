"""Whether the search earns its time: it against its own seed, at an equal span.

    python -m benchmarks.quality [--data digits|fashion] [--seeds 5] [--seconds 120]

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

from aiperf.config import Config, load_preset, with_overrides
from benchmarks.script import head, row
from benchmarks.search import FASHION, FASHION_ROUNDS, Budget, Run

ARMS = {
    "search": "the search",
    "stretched": "the seed, trained once, its schedule stretched over the span",
    "restarted": "the seed, restarted repeatedly with the search's longest schedule",
}
"""Arms, each with its row of the table."""
TITLES = {"digits": "digits, 200 training images", "fashion": "Fashion-MNIST, 5,000 training images"}
CALIBRATION_EPOCHS = 10
"""Epochs by which the length of one is measured, before the span of the arm that needs it."""
now = time.thread_time


@dataclass(frozen=True)
class Result:
    """The result of one arm."""

    arm: str
    seed: int
    test_error: float


def measured(arm: str, config: Config, seconds: float) -> Result:
    """The result of one arm, trained on this thread."""
    job = Run(config, Budget(deadline=now() + seconds), now)
    if arm == "search":
        job.searched(anew=False)
    elif arm == "restarted":
        job.restarted()
    else:
        _stretched(job, seconds)
    if job.best is None:
        sys.exit(f"no network of {arm} was validated within {seconds} s; give more --seconds")
    return Result(arm, config.random_seed, job.test_error(job.best[2]))


def _stretched(job: Run, seconds: float) -> None:
    """Trains the seed once. How many epochs fit into the span is measured first, out of the span."""
    began, job.pace.deadline = now(), math.inf
    job.alone(0, CALIBRATION_EPOCHS, job.fresh(0))
    seconds_an_epoch = (now() - began) / CALIBRATION_EPOCHS
    job.best = None
    job.alone(0, max(1, round(seconds / seconds_an_epoch)), job.fresh(job.config.random_seed))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", choices=("digits", "fashion"), default="digits")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args(arguments)
    results = list(_results(options))
    print(f"\n{head('', TITLES[options.data])}")
    for arm, title in ARMS.items():
        errors = sorted(100 * result.test_error for result in results if result.arm == arm)
        print(row(title, f"{statistics.median(errors):.2f} % ({errors[0]:.2f} to {errors[-1]:.2f})"))


def _results(options: argparse.Namespace) -> Iterator[Result]:
    """The results of all arms, each in a process, as many at once as there are cores."""
    preset = load_preset("digits")
    if options.data == "fashion":
        preset = with_overrides(replace(preset, data=FASHION), FASHION_ROUNDS)
    with ProcessPoolExecutor() as pool:
        jobs = [
            pool.submit(measured, arm, with_overrides(preset, {"random_seed": seed}), options.seconds)
            for seed in range(1, options.seeds + 1)
            for arm in ARMS
        ]
        for job in jobs:
            result = job.result()
            print(result, file=sys.stderr, flush=True)
            yield result


if __name__ == "__main__":
    main()
