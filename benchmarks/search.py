"""What each way of searching earns of the same operations.

    python -m benchmarks.search [--data digits fashion fashion-all text] [--seeds 5] [--gops 2500]
    python -m benchmarks.search --data text --seeds 3 --gops 30000 --results FILE    20 minutes of a core each
    python -m benchmarks.search --table FILE.jsonl     the table and the figure of what was measured

Every arm trains until it has been credited the same operations, so the load of the machine does not
matter. One line a run goes to FILE.jsonl as soon as it is done; runs that have a line are not repeated.
The search, the tuner and the training are those of a run; only processes and messages are left out.
It is one file because all arms are settings of the same loop, and the table names each of them.

  continued   the seed, trained once with its schedule stretched over all operations
  restarted   the seed, trained again and again from new weights, as long as the longest trials
  random, evolution, bayesian     with carried weights
  …-anew      the same, every network from new weights, as long as the preset's longest trials of which the
              operations allow five of the seed
  …+nni       with hyper-parameters tuned by TPE
  …+prepared  of text: a trial is proposed while the one before it is trained, as of images always
  sweep       of text: networks of fixed sizes, each trained once with an equal share of the operations
  best size   of text: the one that was best in the sweep of that seed, trained once with all operations
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
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
from aiperf.run.checks import starting_graph
from aiperf.tasks.images.data import ImageData
from aiperf.training.built_trial import Rank, build
from aiperf.training.evaluation import evaluate
from aiperf.training.kept_network import Kept
from aiperf.training.train import NotFinite, TrialEnd, train
from aiperf.wire.messages import NOTHING_KEPT, Finished, Ready, Started, Steps, Validated
from aiperf.wire.trial import HyperParameters, Segment, State, Trial
from benchmarks.search_table import ARMS, TEXT, TEXT_ARMS, Result, figure, read, table
from nas.graph import Graph
from nas.modules import Network
from nas.ops import OPS
from nas.record import graph_to_json
from nas.search import SEARCHES
from nas.text_seeds import llama
from nas.weights import initial

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
# Per data set: operations of a run relative to --gops, and what differs from the preset. Of images half its
# operations, and rounds of half its length. Of all of Fashion-MNIST a trial is one epoch: as many steps as
# eleven of its 5,000 images.
DATA: Mapping[str, tuple[float, Mapping[str, Any]]] = {
    "digits": (1.0, {"training.epochs": (6, *[3] * 15, 60)}),
    "fashion": (2.0, {**FASHION_ROUNDS, "training.epochs": (*[1] * 5, 6), "search.bounds.growth_rounds": 5}),
    "fashion-all": (
        4.0,
        {
            **FASHION_ROUNDS,
            "training.epochs": (1,),
            "training.validate_every_examples": 27_500,
            "search.bounds.growth_rounds": 5,
        },
    ),
    "text": (1.2, {}),
}
IMAGES: Mapping[str, DataConfig] = {
    "fashion": FASHION,
    "fashion-all": replace(FASHION, training_examples=0, validation_examples=5000),
}
"""Data of a set, if not the preset's."""
SWEEP: Mapping[str, Mapping[str, int]] = {
    "1x64": {"blocks": 1, "heads": 2, "groups": 2, "width": 64, "hidden": 192},
    "2x64": {"blocks": 2, "heads": 2, "groups": 2, "width": 64, "hidden": 192},
    "3x96": {"blocks": 3, "heads": 3, "groups": 3, "width": 96, "hidden": 256},
    "4x128": {"blocks": 4, "heads": 4, "groups": 4, "width": 128, "hidden": 352},
}
"""Blocks and width, from half the seed's operations to six times as many; heads of 32 as the seed's."""
FORMAT = "fp32"
"""Number format, which is the same on every machine."""
ANEW = "-anew"
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "+nni": {"tuning.name": "nni"},
    "+prepared": {"search.prepared": 1},
}
FEWEST = 5
"""Fewest networks from new weights in one run, which limits the length of their trials."""
SLACK = 0.2
"""Largest deviation from the budget, as a share of the operations: whole epochs of a network that is trained
once may come to less."""


@dataclass
class Spent:
    """The budget of a run, and what was credited."""

    budget: float = math.inf
    operations: int = 0
    pending: int = 0
    """Operations of the segment that is open, its validation included."""
    curve: list[tuple[int, float]] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Operations that are left."""
        return self.budget - self.operations - self.pending

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.left <= 0


@dataclass
class Budget(Pace):
    """A deadline in operations, or in seconds if none are given."""

    spent: Spent = field(default_factory=Spent)
    left: Callable[[], float] = lambda: math.inf
    """What is left in steps of the network that is trained, its validations included."""

    def must_close(self, now: float) -> bool:
        return self.spent.over or super().must_close(now)

    def steps_left(self, now: float, step_seconds: float) -> float:
        return max(0.0, min(self.left(), super().steps_left(now, step_seconds)))


@lru_cache(maxsize=2)
def _data(config: DataConfig, random_seed: int) -> Data:
    """The data of a run; those of the same seed share it."""
    return load(config, torch.device("cpu"), random_seed)


class Run:
    """One run on this thread: what master and worker do, without their messages."""

    def __init__(self, config: Config, pace: Budget, clock: Callable[[], float] = time.perf_counter) -> None:
        torch.set_num_threads(1)
        device = bind("cpu", 0)
        self.config, self.seed, self.spent, self.pace = config, starting_graph(config), pace.spent, pace
        self.rank = Rank(device, _data(config.data, config.random_seed), config.training, Solo(), clock=clock)
        self.kept: dict[int, Kept] = {}
        self.best: tuple[float, int, Kept] | None = None
        self.used: dict[int, int] = {}
        self.parents: dict[int, int | None] = {}

    @property
    def over(self) -> bool:
        return self.pace.must_close(self.rank.clock())

    def trained(self, trial: Trial, start: Kept, own: Callable[[Segment], None]) -> TrialEnd:
        """Trains, and credits as the score does."""
        price, number = start.graph.cost, trial.number
        image = price.train.price(OPS)
        asked = price.evaluate.price(OPS) * self.rank.data.validation.num_examples
        before, self.parents[number] = self.spent.operations, trial.parent
        errors: list[float] = []
        step = trial.hyper.batch_size * (image + asked / self.config.training.validate_every_examples)
        self.pace.left = lambda: (self.spent.left - asked) / step

        def report(message: object) -> None:
            if isinstance(message, Steps):
                self.spent.pending = (self.spent.pending or asked) + message.block.examples * image
            elif isinstance(message, Validated):
                segment = message.segment
                self.spent.operations += segment.train_examples * image + asked
                self.spent.pending = 0
                errors.append(segment.unbounded)
                if not self.spent.curve or segment.unbounded < self.spent.curve[-1][1]:
                    self.spent.curve.append((self.spent.operations, segment.unbounded))
                own(segment)

        try:
            end = train(self.rank, build(self.rank, trial, 1, start), self.pace, report)
        except NotFinite as error:
            end = TrialEnd(State.FAILED, str(error), None, NOTHING_KEPT)
        self.spent.pending = 0
        self.used[number] = self.spent.operations - before
        if end.kept is not None and errors:
            self.kept[number] = end.kept
            if self.best is None or min(errors) < self.best[0]:
                self.best = min(errors), number, end.kept
        return end

    def fresh(self, random_seed: int) -> Kept:
        """The seed with new weights."""
        return Kept(self.seed, initial(self.seed, random_seed), {})

    def searched(self, anew: bool) -> int:
        """Runs the search of the configuration with the master's own bookkeeping; returns the number of
        trials."""
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
        while not self.over:
            # What is prepared while another is trained, but nothing before there is a result: so the master.
            while len(waiting) < 1 + (self.config.search.prepared if self.used else 0):
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
            end = self.trained(trial, start, lambda segment: write(Closed(segment, time.monotonic() - now)))
            told = Finished(number, 1, end.state, end.reason, kept=end.segment)
            write(Ended(told, time.monotonic() - now))
            needed = jobs.needed()
            self.kept = {old: network for old, network in self.kept.items() if old in needed}
        return len(replay.trials)

    def _start(self, trial: Trial) -> Kept:
        """What a trial starts from: its parent's network, grown by its morphisms."""
        kept = self.fresh(self.config.random_seed) if trial.parent is None else self.kept[trial.parent]
        for morphism in trial.morphisms:
            kept = kept.grown(morphism)
        return kept

    def continued(self) -> int:
        """One trial of the seed with all operations."""
        self._fixed(0, self.seed, self.spent.budget)
        return 1

    def swept(self) -> int:
        """One trial of each size of the sweep, with an equal share of the operations."""
        for number, graph in enumerate(self._sizes()):
            self._fixed(number, graph, self.spent.budget // len(SWEEP))
        return len(SWEEP)

    def one_size(self, growth: float) -> int:
        """Trains the network of the sweep that has `growth` times the seed's operations."""
        (graph,) = [each for each in self._sizes() if each.operations / self.seed.operations == growth]
        self._fixed(0, graph, self.spent.budget)
        return 1

    def _sizes(self) -> list[Graph]:
        """The networks of the sweep."""
        data = self.config.data
        return [llama((data.size,), data.classes, **shape) for shape in SWEEP.values()]

    def _fixed(self, number: int, graph: Graph, operations: int) -> None:
        """Trains a network once, with its schedule stretched over the operations."""
        data, training = self.rank.data, self.config.training
        asked = graph.cost.evaluate.price(OPS) * data.validation.num_examples
        image = graph.cost.train.price(OPS) + asked / training.validate_every_examples
        epochs = max(1, int(operations / image / data.train.num_examples))
        self.alone(number, epochs, Kept(graph, initial(graph, self.config.random_seed), {}))

    def restarted(self) -> int:
        """Trials of the seed from new weights until nothing is left."""
        number = 0
        while not self.over:
            weights = self.fresh(1000 * self.config.random_seed + number)
            self.alone(number, max(self.config.training.epochs), weights)
            number += 1
        return number

    def alone(self, number: int, epochs: int, start: Kept) -> None:
        """Trains a network of no parent."""
        training = self.config.training
        names = ("learning_rate", "batch_size", "momentum", "weight_decay", "label_smoothing", "dropout")
        hyper = HyperParameters(**{name: getattr(training, name) for name in names})
        seed = 1000 * self.config.random_seed + number
        self.trained(Trial(number, None, (), hyper, 1 + number, epochs, seed), start, lambda segment: None)

    def _ready(self) -> Ready:
        """What the only rank reports."""
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

    def test_error(self, kept: Kept) -> float:
        """The error of a network on the test images, evaluated once."""
        network = Network(kept.graph)
        network.load(kept.weights)
        network.place(self.rank.device.torch, self.rank.device.layout)
        return evaluate(self.rank, network, self.rank.data.test)[0].error

    def lineage_operations(self, number: int) -> int:
        """Operations of the trial and of all trials whose weights went into it."""
        total, at = 0, number if number in self.used else None
        while at is not None:
            total, at = total + self.used[at], self.parents[at]
        return total


def measured(data: str, arm: str, seed: int, gops: float, best_growth: float = 1.0) -> Result:
    """The result of one run. `best_growth` is the operations of the sweep's best network over the seed's."""
    share, overrides = DATA[data]
    settings: dict[str, Any] = {"random_seed": seed, "training.format": FORMAT, **overrides}
    preset = load_preset("text" if data == "text" else "digits")
    if data in IMAGES:
        preset = replace(preset, data=IMAGES[data])
    preset = with_overrides(preset, settings)
    for suffix, changes in VARIANTS.items():
        if suffix in arm:
            preset = with_overrides(preset, changes)
    if ANEW in arm:
        longest = _longest(preset, share * gops)
        preset = with_overrides(preset, {"training.epochs": (longest,), "training.child_learning_rate": 0.0})
    base = arm.partition("+")[0].removesuffix(ANEW)
    if base in SEARCHES:
        preset = with_overrides(preset, {"search.name": base})
    began = time.thread_time()
    # Short blocks: it ends within a few steps of its operations.
    run = Run(preset, Budget(block_seconds=0.05, spent=Spent(int(share * gops * 1e9))))
    arms: Mapping[str, Callable[[], int]] = {
        "continued": run.continued,
        "restarted": run.restarted,
        "sweep": run.swept,
        "best size": lambda: run.one_size(best_growth),
    }
    trials = arms[base]() if base in arms else run.searched(anew=ANEW in arm)
    assert run.best is not None
    error, number, kept = run.best
    lineage = run.used[number] if ANEW in arm else run.lineage_operations(number)
    return Result(
        data=data,
        arm=arm,
        seed=seed,
        operations=run.spent.operations,
        trials=trials,
        validation_error=error,
        test_error=run.test_error(kept),
        growth=kept.graph.operations / run.seed.operations,
        lineage_operations=lineage,
        curve=run.spent.curve,
        seconds=time.thread_time() - began,
    )


def _longest(config: Config, gops: float) -> int:
    """Epochs of the longest trials that would not take most of the operations."""
    image = starting_graph(config).cost.train.price(OPS) / 1e9
    images = config.data.training_examples
    return max(each for each in config.training.epochs if not images or FEWEST * each * images * image < gops)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--arms", nargs="+", choices=sorted({*ARMS, *TEXT_ARMS}))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--gops", type=float, default=2500.0)
    parser.add_argument("--results", type=Path, default=Path("build/search.jsonl"))
    parser.add_argument("--table", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args(arguments)
    path = options.table or options.results
    if not options.table:
        path.parent.mkdir(parents=True, exist_ok=True)
        _measure(options, path)
    results = read(path)
    print("\n".join(table(results)))
    if options.figure:
        figure(results, options.figure)


def _measure(options: argparse.Namespace, path: Path) -> None:
    """Makes the runs that are not in the file, and appends each as soon as it is done."""
    results = read(path) if path.exists() else []
    done = {(each.data, each.arm, each.seed): each for each in results}
    # Seed by seed, so that what is there at any time is even.
    wanted = [
        (data, arm, seed)
        for seed in range(1, options.seeds + 1)
        for data in options.data
        for arm in options.arms or (TEXT_ARMS if data == TEXT else ARMS)
    ]
    for index, (data, arm, seed) in enumerate(wanted):
        if (data, arm, seed) in done:
            _check_budget(done[data, arm, seed], options.gops, path)
            continue
        growth = 1.0
        if arm == "best size":
            if (data, "sweep", seed) not in done:
                raise SystemExit(f"{arm} of {data}, seed {seed}: it needs the arm sweep of the same seed")
            growth = done[data, "sweep", seed].growth
        try:
            result = measured(data, arm, seed, options.gops, growth)
        except AiperfError as error:
            raise SystemExit(f"{arm} on {data}: {error}") from None
        done[data, arm, seed] = result
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
        came_to = f"test error {result.test_error:.2%}, {result.trials} trials, {result.seconds:.0f} s of CPU"
        print(f"{index + 1}/{len(wanted)} {data} {arm} seed {seed}: {came_to}", flush=True)


def _check_budget(result: Result, gops: float, path: Path) -> None:
    """Refuses a result with another budget, because one table compares equal operations."""
    found, asked = result.operations / 1e9, DATA[result.data][0] * gops
    if not 1 - SLACK < found / asked < 1 + SLACK:
        raise SystemExit(
            f"{path}: {result.arm} on {result.data} had {found:,.0f} GOP, not {asked:,.0f}; "
            "remedy: another file by --results"
        )


if __name__ == "__main__":
    main()
