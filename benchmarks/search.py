"""What each way of searching earns of the same operations, on trials that are really trained.

    python -m benchmarks.search [--data fashion cifar10 digits] [--arms random evolution …]
                                [--seeds 1 2 3] [--groups 32] [--gops 1500] [--results FILE.jsonl]
    python -m benchmarks.search --data text --groups 1 --gops 36000
    python -m benchmarks.search --table FILE.jsonl     the table and the figure of what was measured

Each run is the real master with its search on a virtual clock (`benchmarks/trained_world.py`): so many groups
train for as long as the operations last, on this one core. One line per run goes to FILE.jsonl as soon as it
is done; runs that have a line are not repeated, so the command is given again after an interruption, and two
calls with different seeds may write to one file. The sets lie in the folders `fashion-mnist` and `cifar10` of
--folder.

  random            any parent that lives, with the same morphisms and carried weights: the mark
  evolution, final, foresight, bayesian, or the name of an installed search
  …-anew            the same, every network from new weights, as long as the preset's longest trials of which
                    the operations allow five of the seed
  …+prepared        of text: a trial is proposed shortly before its group is free, as of images
  …+unprepared      of images: a trial is proposed when its group is free, as of text
  continued         the seed, trained once by one group, its schedule stretched over all operations
  2x64, 3x96, …     of text: the same of a network with so many blocks of that width, as if its size had been
                    known in advance
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from aiperf.config import Config, load_preset, with_overrides
from aiperf.errors import AiperfError
from aiperf.journal.replay import Replay
from aiperf.run.checks import starting_graph
from aiperf.score.credit import credit, work
from aiperf.score.lineage import recount
from aiperf.score.score import score
from benchmarks.search_table import ARMS, TEXT, TEXT_ARMS, UNPREPARED, Result, figure, read, table
from benchmarks.trained_world import RATE, TrainingWorld, train_in
from nas.graph import Graph
from nas.ops import OPS
from nas.record import graph_to_json
from nas.text_seeds import llama

# The regime of the preset `ranked`, made small: its bounds, its population, its lengths of trials by round in
# their proportions, and a seed whose trials take some tenths of a second on one core.
IMAGES: Mapping[str, Any] = {
    "seed_architecture": "residual-4-8-16",
    "data.size": 16,
    "training.step": "fused",
    "training.epochs": (1, 2, 3, 4),
    "search.population": 100,
    "search.omit": (),
    "search.bounds.growth_rounds": 0,
    "search.bounds.min_operations": 0.25,
    "search.bounds.max_operations": 4.0,
    "search.bounds.max_parameters": 4.0,
    "search.bounds.min_activations": 0.0,
    "search.bounds.max_activations": 4.0,
    "search.bounds.min_layers": 0.0,
    "search.bounds.max_layers": 0.0,
}
FILES: Mapping[str, Any] = {
    **IMAGES,
    "data.classes": 10,
    "data.training_examples": 500,
    "data.validation_examples": 500,
    # Twice an epoch: from the second round on a curve has the four points that `foresight` extrapolates from.
    "training.validate_every_examples": 250,
    "training.weight_decay": 5e-4,
}
# For 36,000 GOP, many more than the two minutes of the preset have: networks grow in three short rounds to
# about the operations of `3x96`, in width and depth alike, and the last one is trained with all that is left.
LONG_TEXT: Mapping[str, Any] = {
    "training.step": "fused",
    "training.epochs": (4, 2, 2, 240),
    "search.bounds.growth_rounds": 3,
    "search.bounds.min_operations": 2.7,
    "search.bounds.max_operations": 3.0,
    "search.bounds.max_activations": 6.0,
    "search.bounds.max_layers": 0.0,
}
DATA: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "fashion": ("digits", "fashion-mnist", {**FILES, "data.name": "idx"}),
    "cifar10": ("digits", "cifar10", {**FILES, "data.name": "cifar10", "data.channels": 3}),
    "digits": (
        "digits",
        "",
        {**IMAGES, "training.epochs": (3, 6, 9, 12), "training.validate_every_examples": 300},
    ),
    TEXT: ("text", "", LONG_TEXT),
}
"""By set: the preset, the folder, and what differs from the preset."""
SIZES: Mapping[str, Mapping[str, int]] = {
    "2x64": {"blocks": 2, "heads": 2, "groups": 2, "width": 64, "hidden": 192},
    "3x96": {"blocks": 3, "heads": 3, "groups": 3, "width": 96, "hidden": 256},
    "4x128": {"blocks": 4, "heads": 4, "groups": 4, "width": 128, "hidden": 352},
    "4x192": {"blocks": 4, "heads": 6, "groups": 6, "width": 192, "hidden": 512},
}
"""Networks of text by blocks and width, of once to thirteen times the seed's operations; heads of 32 as the
seed's."""
ANEW, PREPARED = "-anew", "+prepared"
FIXED = ("continued", *SIZES)
"""Arms that search nothing: one group trains one network."""
FEWEST = 5
"""Fewest networks from new weights in one run, which limits the length of their trials."""
SLACK = 0.1
"""Largest deviation from the operations asked for, as a share of them. What the last trials had not validated
at the end is not credited, and a network that is trained once has whole epochs."""


@dataclass(frozen=True)
class Wanted:
    """One run."""

    data: str
    arm: str
    seed: int
    groups: int
    gops: float
    folder: Path

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.data, self.arm, self.seed, self.groups

    @property
    def folder_text(self) -> str:
        """--folder as it was given; empty for a set that needs none."""
        return str(self.folder) if DATA[self.data][1] else ""

    def config(self, changes: Mapping[str, Any] = MappingProxyType({})) -> Config:
        """The configuration of the run, with these changes. Raises ConfigError."""
        preset, folder, settings = DATA[self.data]
        path = {"data.path": str(self.folder / folder)} if folder else {}
        minutes = self.gops * 1e9 / (self.groups * RATE) / 60
        own = {"random_seed": self.seed, "training.format": "fp32", "limits.minutes": minutes}
        return with_overrides(load_preset(preset), {**settings, **path, **own, **changes})

    def searched(self) -> Result:
        """The result of a search. Raises AiperfError."""
        name = self.arm.removesuffix(PREPARED).removesuffix(UNPREPARED).removesuffix(ANEW)
        changes: dict[str, Any] = {"search.name": name}
        if self.arm.endswith((PREPARED, UNPREPARED)):
            changes["search.prepared"] = int(self.arm.endswith(PREPARED))
        if ANEW in self.arm:
            changes |= {"training.epochs": (self._longest,), "training.child_learning_rate": 0.0}
        return self._result(self.config(changes), ANEW in self.arm)

    @property
    def _longest(self) -> int:
        """Epochs of the longest trials of which the operations allow FEWEST of the seed."""
        config = self.config()
        epoch = starting_graph(config).cost.train.price(OPS) * config.data.training_examples / 1e9
        epochs = sorted(config.training.epochs)
        return max((each for each in epochs if FEWEST * each * epoch < self.gops), default=epochs[0])

    def alone(self, graph: Graph) -> Result:
        """The result of one network that is trained once, its schedule stretched over all operations."""
        config = self.config({"limits.max_trials": 1})
        training, data = config.training, config.data
        validation = graph.cost.evaluate.price(OPS) * data.validation_examples
        example = graph.cost.train.price(OPS) + validation / training.validate_every_examples
        epochs = max(1, int(self.gops * 1e9 / example / data.training_examples))
        with TemporaryDirectory() as directory:
            seed = Path(directory) / "seed.json"
            seed.write_text(json.dumps(graph_to_json(graph)), encoding="utf-8")
            changes = {"training.epochs": (epochs,), "seed_architecture": str(seed)}
            return self._result(with_overrides(config, changes))

    def _result(self, config: Config, new_weights: bool = False) -> Result:
        """Makes a run in a directory of its own."""
        began = time.process_time()
        command = ("python", "-m", "benchmarks.search", self.data, self.arm, str(self.seed))
        with TemporaryDirectory() as directory:
            world = TrainingWorld(config, self.groups, new_weights)
            replay = train_in(world, config, Path(directory) / "run", command)
        return result_of(replay, self, new_weights, time.process_time() - began)


def result_of(replay: Replay, wanted: Wanted, new_weights: bool, seconds: float) -> Result:
    """The figures of a run. `new_weights`: no trial has any from its parent."""
    counts, credited = recount(replay).counts, credit(replay)
    figures = score(replay, counts, credited)
    quality, best = figures.quality, replay.best
    if best is None or quality is None or quality.error is None:
        raise AiperfError("no network was validated and tested; give more --gops")
    lineage, number = [best.trial.number], best.trial.parent
    while number is not None and not new_weights:
        lineage.append(number)
        number = replay.trials[number].attempts[0].trial.parent
    closed = sorted(
        (
            validation.end,
            validation.segment.train_examples * counts[attempt.trial.number].train_price(OPS)
            + validation.segment.of * counts[attempt.trial.number].evaluate.price(OPS),
            validation.segment.unbounded,
        )
        for attempt in replay.attempts
        for validation in attempt.validations
        if credited.has(attempt, validation)
    )
    spent, curve = 0, list[tuple[int, float]]()
    for _, operations, error in closed:
        spent += operations
        if not curve or error < curve[-1][1]:
            curve.append((spent, error))
    seed = starting_graph(replay.opened.config)
    return Result(
        data=wanted.data,
        arm=wanted.arm,
        seed=wanted.seed,
        groups=wanted.groups,
        operations=figures.goodput.operations,
        trials=sum(bool(attempt.validations) for attempt in replay.attempts),
        validation_error=quality.validation_error,
        test_error=quality.error,
        regulated_score=figures.regulated_score,
        growth=counts[best.trial.number].train_price(OPS) / seed.cost.train.price(OPS),
        lineage_operations=work(replay, {each: counts[each] for each in lineage}, credited).operations,
        curve=curve,
        seconds=round(seconds, 1),
    )


def measured(wanted: Wanted) -> Result:
    """The result of one run. Raises AiperfError."""
    if wanted.arm not in FIXED:
        return wanted.searched()
    config = wanted.config()
    seed, data = starting_graph(config), config.data
    shape = SIZES.get(wanted.arm)
    graph = seed if shape is None else llama((data.size,), data.classes, **shape)
    return replace(wanted.alone(graph), growth=graph.operations / seed.operations)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=DATA, default=["fashion", "cifar10"])
    parser.add_argument(
        "--arms", nargs="+", help=f"default: {' '.join(ARMS)}; of text {', '.join(TEXT_ARMS)}"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--groups", type=int, default=32)
    parser.add_argument("--gops", type=float, default=1500.0)
    parser.add_argument("--folder", type=Path, default=Path("/usr/share/datasets"))
    parser.add_argument("--results", type=Path, default=Path("build/search.jsonl"))
    parser.add_argument("--table", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args(arguments)
    if options.groups < 1 or options.gops <= 0:
        parser.error("--groups and --gops must be above 0")
    path = options.table or options.results
    try:
        if not options.table:
            path.parent.mkdir(parents=True, exist_ok=True)
            _measure(options, path)
        results = read(path)
    except AiperfError as error:
        raise SystemExit(f"benchmarks.search: {error}") from None
    print("\n".join(table(results)))
    if options.figure:
        figure(results, options.figure)


def _measure(options: argparse.Namespace, path: Path) -> None:
    """Makes the runs that are not in the file, and appends each as soon as it is done."""
    every = [  # seed by seed, so that what is there at any time is even
        Wanted(data, arm, seed, 1 if arm in FIXED else options.groups, options.gops, options.folder)
        for seed in options.seeds
        for data in options.data
        for arm in options.arms or (TEXT_ARMS if data == TEXT else ARMS)
    ]
    for index, wanted in enumerate(every):
        done = {each.key: each for each in (read(path) if path.exists() else [])}
        if wanted.key in done:
            _refuse_other_run(done[wanted.key], wanted, f"{path}: ", "another file by --results")
            continue
        try:
            result = replace(measured(wanted), gops=wanted.gops, folder=wanted.folder_text)
        except AiperfError as error:
            raise AiperfError(f"{wanted.arm} on {wanted.data}, seed {wanted.seed}: {error}") from None
        _refuse_other_run(result, wanted, "", "more --gops, or fewer --groups")
        _append(path, json.dumps(asdict(result)))
        came_to = f"test error {result.test_error:.2%}, {result.trials} trials, {result.seconds:.0f} s of CPU"
        print(
            f"{index + 1}/{len(every)} {wanted.data} {wanted.arm} seed {wanted.seed}: {came_to}", flush=True
        )


def _append(path: Path, line: str) -> None:
    """Adds a line in one piece, so that two calls can write to one file."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def _refuse_other_run(result: Result, wanted: Wanted, where: str, remedy: str) -> None:
    """Refuses a result of other images or of another budget, because one table compares equal ones."""
    found, run = result.operations / 1e9, f"{where}{result.arm} on {result.data}, seed {result.seed}"
    if result.gops not in (None, gops := wanted.gops):
        raise AiperfError(f"{run}, was made with --gops {result.gops:g}, not {gops:g}; remedy: {remedy}")
    if result.folder not in (None, folder := wanted.folder_text):
        raise AiperfError(f"{run}, was made with --folder {result.folder}, not {folder}; remedy: {remedy}")
    if not 1 - SLACK < found / gops < 1 + SLACK:
        raise AiperfError(f"{run}, had {found:,.0f} GOP, not {gops:,.0f}; remedy: {remedy}")


if __name__ == "__main__":
    main()
