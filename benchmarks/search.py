"""What each way of searching earns of the same operations.

    python -m benchmarks.search [--data digits fashion text] [--seeds 5] [--gops 2500] [--figure FILE]
    python -m benchmarks.search --table FILE.jsonl     the table and the figure of what was measured

Every arm trains until it has been credited the same operations, so the load of the machine does not
matter. One line a run goes to FILE.jsonl as soon as it is done; what stands there is not done again.
The search, the tuner and the training are those of a run; only processes and messages are left out.

  continued   the seed, trained once with its schedule stretched over all operations
  restarted   the seed, trained again and again from new weights, as long as the longest trials
  random, evolution, foresight, bayesian     with carried weights
  …-anew      the same, every network from new weights, as long as the preset's longest trials
  …+nni, …+optuna     with hyper-parameters tuned by TPE
  …+halving   epochs by asynchronous successive halving
  slow…       from a learning rate a tenth of the preset's, to see whether tuning finds it
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from aiperf.config import Config, DataConfig, load_preset, with_overrides
from aiperf.data import Data, load
from aiperf.device import bind
from aiperf.errors import AiperfError
from aiperf.journal.events import Began, Closed, Dispatched, Ended, LegBegan, Opened, RankReady, Released
from aiperf.journal.replay import Replay
from aiperf.parallel.parallel import Solo
from aiperf.proposing.jobs import Jobs
from aiperf.proposing.pace import Pace
from aiperf.run.run import starting_graph
from aiperf.training.built_trial import Rank, build
from aiperf.training.evaluation import evaluate
from aiperf.training.kept_network import Kept
from aiperf.training.train import NotFinite, train
from aiperf.trial import HyperParameters, Segment, State, Trial
from aiperf.wire.messages import Finished, Ready, Started, Steps, Validated
from benchmarks.quality import FASHION, FASHION_ROUNDS
from benchmarks.search_table import ARMS, Result, figure, read, table
from nas.modules import Network
from nas.ops import OPS
from nas.record import graph_to_json
from nas.search import SEARCHES
from nas.weights import initial

# Per data set: operations of a run relative to --gops, and what differs from the preset. Of images half its
# operations, and rounds of half its length.
DATA: Mapping[str, tuple[float, Mapping[str, Any]]] = {
    "digits": (1.0, {"training.epochs": (6, *[3] * 15, 60)}),
    "fashion": (2.0, {**FASHION_ROUNDS, "training.epochs": (*[1] * 5, 6)}),
    "text": (2.0, {}),
}
FORMAT = "fp32"
"""The same on every machine."""
ANEW = "-anew"
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "+nni": {"tuning.name": "nni"},
    "+optuna": {"tuning.name": "optuna"},
    "+halving": {"training.schedule": "halving"},
}
SLOW = 0.1


@dataclass
class Spent:
    """What was credited."""

    budget: int
    operations: int = 0
    pending: int = 0
    """Of the segment that is open, its validation included."""
    curve: list[tuple[int, float]] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return self.operations + self.pending >= self.budget


@lru_cache(maxsize=2)
def _data(config: DataConfig, random_seed: int) -> Data:
    return load(config, torch.device("cpu"), random_seed)


class Run:
    """One run on this thread: what master and worker do, without their messages."""

    def __init__(self, config: Config, budget: int) -> None:
        torch.set_num_threads(1)
        device = bind("cpu", 0)
        self.config, self.seed, self.spent = config, starting_graph(config), Spent(budget)
        data = _data(config.data, config.random_seed)
        self.rank = Rank(device, data, config.training, Solo())
        self.pace = Pace(
            lambda: self.spent.over, block_seconds=0.05
        )  # it ends within a few steps of its operations
        self.kept: dict[int, Kept] = {}
        self.best: tuple[float, int, Kept] | None = None
        self.used: dict[int, int] = {}
        self.parents: dict[int, int | None] = {}

    def trained(self, trial: Trial, start: Kept, own: Callable[[Segment], None]) -> tuple[State, str]:
        """Trains, and credits as the score does."""
        price, number = start.graph.cost, trial.number
        image, asked = (
            price.train.price(OPS),
            price.evaluate.price(OPS) * self.rank.data.validation.num_examples,
        )
        before, self.parents[number] = self.spent.operations, trial.parent
        errors: list[float] = []

        def report(message: object) -> None:
            if isinstance(message, Steps):
                self.spent.pending = (self.spent.pending or asked) + message.block.examples * image
            elif isinstance(message, Validated):
                segment = message.segment
                self.spent.operations += segment.train_examples * image + asked
                self.spent.pending = 0
                errors.append(segment.error)
                if not self.spent.curve or segment.error < self.spent.curve[-1][1]:
                    self.spent.curve.append((self.spent.operations, segment.error))
                own(segment)

        try:
            state, reason, kept = train(self.rank, build(self.rank, trial, 1, start), self.pace, report)
        except NotFinite as error:
            state, reason, kept = State.FAILED, str(error), None
        self.spent.pending = 0
        self.used[number] = self.spent.operations - before
        if kept is not None and errors:
            self.kept[number] = kept
            if self.best is None or min(errors) < self.best[0]:
                self.best = min(errors), number, kept
        return state, reason

    def fresh(self, random_seed: int) -> Kept:
        return Kept(self.seed, initial(self.seed, random_seed), {})

    def searched(self, anew: bool) -> int:
        """The search of the configuration, by the master's own bookkeeping; how many trials it took."""
        replay, now = Replay(), time.monotonic()
        jobs = Jobs.of(self.config, self.seed, replay)

        def write(event: Any) -> None:
            replay.add(time.monotonic() - now, event)
            if not isinstance(event, Opened):
                jobs.follow(event)

        write(Opened(0, "benchmark", "", "", self.config, graph_to_json(self.seed)))
        write(LegBegan(0, "", (), ((1,),)))
        write(RankReady(0, self._ready(), 0.0))
        write(Released(None))
        waiting: list[Dispatched] = []
        while not self.spent.over:
            while len(waiting) < 2:  # one is prepared while the other is trained
                job = jobs.next(0)
                assert job is not None
                write(job)
                waiting.append(job)
            trial = waiting.pop(0).trial
            number = trial.number
            write(Began(Started(number, 1, "", 0.0), time.monotonic() - now))
            start = self._start(trial)
            if anew:
                start = Kept(start.graph, initial(start.graph, trial.seed), {})
            state, reason = self.trained(
                trial, start, lambda segment: write(Closed(segment, time.monotonic() - now))
            )
            write(Ended(Finished(number, 1, state, reason), time.monotonic() - now))
            needed = jobs.needed()
            self.kept = {old: network for old, network in self.kept.items() if old in needed}
        return len(replay.trials)

    def _start(self, trial: Trial) -> Kept:
        kept = self.fresh(self.config.random_seed) if trial.parent is None else self.kept[trial.parent]
        for morphism in trial.morphisms:
            kept = kept.grown(morphism)
        return kept

    def continued(self) -> int:
        price = self.seed.cost
        data, training = self.rank.data, self.config.training
        asked = price.evaluate.price(OPS) * data.validation.num_examples
        image = price.train.price(OPS) + asked / training.validate_every_examples
        epochs = max(1, int(self.spent.budget / image / data.train.num_examples))
        self._alone(0, epochs, self.fresh(self.config.random_seed))
        return 1

    def restarted(self) -> int:
        number = 0
        while not self.spent.over:
            weights = self.fresh(1000 * self.config.random_seed + number)
            self._alone(number, max(self.config.training.epochs), weights)
            number += 1
        return number

    def _alone(self, number: int, epochs: int, start: Kept) -> None:
        training = self.config.training
        hyper = HyperParameters(
            training.learning_rate,
            training.batch_size,
            training.momentum,
            training.weight_decay,
            training.label_smoothing,
            training.dropout,
        )
        seed = 1000 * self.config.random_seed + number
        self.trained(Trial(number, None, (), hyper, 1 + number, epochs, seed), start, lambda segment: None)

    def _ready(self) -> Ready:
        return Ready(
            rank=1,
            host="here",
            pid=1,
            device=self.rank.device.name,
            memory_bytes=self.rank.device.memory_bytes,
            software={},
            code_hash="",
            data=self.rank.data.manifest,
            initial_weights="",
            wall_seconds=0.0,
            seconds=0.0,
        )

    def lineage_operations(self, number: int) -> int:
        """Of the trial and of all whose weights went into it."""
        total, at = 0, number if number in self.used else None
        while at is not None:
            total, at = total + self.used[at], self.parents[at]
        return total


def measured(data: str, arm: str, seed: int, gops: float) -> Result:
    share, overrides = DATA[data]
    name = arm.removeprefix("slow ")
    settings: dict[str, Any] = {"random_seed": seed, "training.format": FORMAT, **overrides}
    preset = load_preset("text" if data == "text" else "digits")
    if data == "fashion":
        preset = replace(preset, data=FASHION)
    preset = with_overrides(preset, settings)
    longest = max(preset.training.epochs)
    if "+halving" in name:
        rungs = tuple(sorted({max(1, round(longest * part / 27)) for part in (1, 3, 9, 27)}))
        preset = with_overrides(preset, {"training.epochs": rungs})
    for suffix, changes in VARIANTS.items():
        if suffix in name:
            preset = with_overrides(preset, changes)
    if ANEW in name:
        preset = with_overrides(preset, {"training.epochs": (longest,), "training.child_learning_rate": 0.0})
    base = name.partition("+")[0].removesuffix(ANEW)
    if base in SEARCHES:
        preset = with_overrides(preset, {"search.name": base})
    if name != arm:
        training = preset.training
        slow = {
            "training.learning_rate": SLOW * training.learning_rate,
            "training.child_learning_rate": SLOW * training.child_learning_rate,
        }
        preset = with_overrides(preset, slow)
    began = time.thread_time()
    run = Run(preset, int(share * gops * 1e9))
    if base == "continued":
        trials = run.continued()
    elif base == "restarted":
        trials = run.restarted()
    else:
        trials = run.searched(anew=ANEW in name)
    assert run.best is not None
    error, number, kept = run.best
    network = Network(kept.graph)
    network.load(kept.weights)
    network.place(run.rank.device.torch)
    tested, _ = evaluate(run.rank, network, run.rank.data.test)
    lineage = run.used[number] if ANEW in name else run.lineage_operations(number)
    return Result(
        data=data,
        arm=arm,
        seed=seed,
        operations=run.spent.operations,
        trials=trials,
        validation_error=error,
        test_error=tested.error,
        growth=kept.graph.operations / run.seed.operations,
        lineage_operations=lineage,
        curve=run.spent.curve,
        seconds=time.thread_time() - began,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--gops", type=float, default=2500.0)
    parser.add_argument("--results", type=Path, default=Path("build/search.jsonl"))
    parser.add_argument("--table", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    path = options.table or options.results
    if not options.table:
        path.parent.mkdir(parents=True, exist_ok=True)
        _measure(options, path)
    results = read(path)
    print("\n".join(table(results)))
    if options.figure:
        figure(results, options.figure)


def _measure(options: argparse.Namespace, path: Path) -> None:
    done = {(r.data, r.arm, r.seed) for r in read(path)} if path.exists() else set()
    # Seed by seed, so that what is there at any time is even.
    wanted = [
        (data, arm, seed)
        for seed in range(1, options.seeds + 1)
        for data in options.data
        for arm in options.arms
    ]
    for index, key in enumerate(wanted):
        if key in done:
            continue
        try:
            result = measured(*key, options.gops)
        except AiperfError as error:
            raise SystemExit(f"{key[1]} on {key[0]}: {error}") from None
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
        told = f"test error {result.test_error:.2%}, {result.trials} trials, {result.seconds:.0f} s of CPU"
        print(f"{index + 1}/{len(wanted)} {key[0]} {key[1]} seed {key[2]}: {told}", flush=True)


if __name__ == "__main__":
    main()
