"""Simulated groups that really train, one after the other in this process: the test bed of searches.

Master, search, journal and conduct are those of a run, and so are the steps and validations of a trial. Only
the clock is virtual: a work takes as long as its operations at RATE, and a trial OVERHEAD_SECONDS more,
whatever this processor takes for it. So hundreds of groups fit into one process, its load changes nothing,
and a trial knows only the outcomes that its master had heard before, as on a machine with that many devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from aiperf.conduct.actions import Keep, Train, Validate
from aiperf.conduct.events import BlockDone, ValidationDone
from aiperf.config import AUTO_STEP, EAGER, Config
from aiperf.data import load
from aiperf.device import bind
from aiperf.engines.engine import placed
from aiperf.engines.registry import refuse_unusable
from aiperf.host.code import code_hash
from aiperf.journal.replay import Replay
from aiperf.parallel.parallel import Solo
from aiperf.pretending.assumptions import (
    NOT_READ,
    Assumptions,
    Failures,
    Messages,
    Speed,
    Spread,
    StartUp,
    Storage,
    Trials,
    assumed,
)
from aiperf.pretending.group_model import Learnt, Pretended, PretendedTrial
from aiperf.run.checks import starting_graph, virtual_config
from aiperf.run.run import play
from aiperf.simulation.simulated_machine import SimulatedFiles, SimulatedMachine
from aiperf.simulation.simulated_world import SimulatedWorld
from aiperf.tasks.tally import Tally
from aiperf.training.built_trial import Rank, build
from aiperf.training.evaluation import evaluate
from aiperf.training.kept_network import Kept
from aiperf.training.train import TrainedTrial
from aiperf.wire.layout import Place
from aiperf.wire.messages import Setup
from aiperf.wire.trial import Trial
from nas.graph import Graph
from nas.ops import OPS
from nas.weights import initial

RATE = 1e9
"""Credited operations per second of a group. It only scales the virtual clock: with trials of some GOP a
block of two seconds is a part of a trial, as in a run."""
OVERHEAD_SECONDS = 0.05
"""Time between two trials of a group, about a hundredth of a trial."""
AT_ONCE = 1e24
"""Bytes per second of a file system that takes no time."""
FORMAT = "fp32"
"""Number format, which every processor has."""
SILENCE_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class CarriedNetwork(Learnt):
    """An architecture with the weights that its lineage gave it."""

    kept: Kept = field(kw_only=True)

    def child(self, trial: Trial, spread: Spread) -> CarriedNetwork:
        kept = self.kept
        for morphism in trial.morphisms:
            kept = kept.grown(morphism)
        return replace(self, graph=kept.graph, kept=kept)


@dataclass(frozen=True)
class TrainingGroup(Pretended):
    """A group whose times follow from operations, and whose errors are those of its networks."""

    rank: Rank = field(kw_only=True)
    first: Kept = field(kw_only=True)
    """The seed with its initial weights."""
    new_weights: bool = field(kw_only=True)
    """Whether each trial begins with new weights instead of its parent's."""

    @property
    def untrained(self) -> CarriedNetwork:
        return CarriedNetwork(self.seed, kept=self.first)

    def step_seconds(self, learnt: Learnt, batch_size: int) -> float:
        return batch_size * learnt.graph.cost.train.price(OPS) / RATE

    def validate_seconds(self, learnt: Learnt, examples: int) -> float:
        return examples * learnt.graph.cost.evaluate.price(OPS) / RATE

    def begun(self, trial: Trial, attempt: int, start: Learnt) -> VirtualTrial:
        assert isinstance(start, CarriedNetwork), start
        graph = start.graph
        kept = Kept(graph, initial(graph, trial.seed), {}) if self.new_weights else start.kept
        return VirtualTrial(self, trial, attempt, replace(start, kept=kept))

    def tested(self, learnt: Learnt) -> Tally:
        assert isinstance(learnt, CarriedNetwork), learnt
        network = placed(learnt.graph, learnt.kept.weights, self.rank.device)
        return evaluate(self.rank, network, self.rank.data.test)[0]


class VirtualTrial(PretendedTrial):
    """A trial that is trained as on a rank, between those of other groups; its times are virtual."""

    def __init__(self, group: TrainingGroup, trial: Trial, attempt: int, start: CarriedNetwork) -> None:
        super().__init__(group, trial, attempt, start)
        self._rank, self._begin, self._network = group.rank, (trial, attempt, start.kept), start
        self._engine = group.engine
        self._course: TrainedTrial | None = None
        self._random = torch.empty(0)
        """State of the generator, from which dropout draws: other trials use it in between."""

    def trained(self, work: Train, seconds: float, ended: float) -> BlockDone:
        done = self._do(work)
        assert isinstance(done, BlockDone), done
        return replace(done, seconds=seconds, ended=ended)

    def validated(self, work: Validate, seconds: float, ended: float) -> ValidationDone:
        done = self._do(work)
        assert isinstance(done, ValidationDone), done
        return replace(done, seconds=seconds, ended=ended)

    def keep(self, work: Keep) -> None:
        self._do(work)
        assert self._course
        kept = self._course.kept()
        assert kept, work
        self.kept = replace(self._network, kept=kept)

    def _do(self, work: Train | Validate | Keep) -> BlockDone | ValidationDone | None:
        """Raises NotFinite."""
        if self._course is None:  # built as late as this, so that only what trains takes memory
            trial, attempt, kept = self._begin
            built = build(self._rank, trial, attempt, kept)
            built.engine_name = self._engine
            self._course = TrainedTrial(self._rank, built, lambda event: None)
        else:
            torch.set_rng_state(self._random)
        done = self._course.do(work)
        self._random = torch.get_rng_state()
        return done


class TrainingWorld(SimulatedWorld):
    """As many groups as wanted, of one device each, all alike, and a master that takes no time."""

    def __init__(self, config: Config, groups: int, new_weights: bool = False) -> None:
        """Reads the data. Raises DataError, and WorldError for an engine that cannot be used here."""
        super().__init__(SimulatedMachine(groups, 1), machine_model(), config.random_seed, code_hash())
        device = bind("cpu", 0)
        data = load(config.data, device.torch, config.random_seed)
        device.use_threads(1)  # after both, which set the number that a rank would use
        self.rank = Rank(device, data, config.training, Solo())
        refuse_unusable(starting_graph(config), device, config.training, 1)
        # "auto" is the engine that a rank measures to be the fastest, and nothing is measured here.
        self._engine = EAGER if config.training.step == AUTO_STEP else config.training.step
        self._new_weights, self._first = new_weights, dict[str, Kept]()

    def group_of(self, setup: Setup, places: Sequence[Place], speed: float) -> TrainingGroup:
        config, seed = setup.config, self.seed_of(setup)
        return TrainingGroup(
            self.assumptions,
            config,
            seed,
            self.rank.data.manifest,
            len(places),
            speed,
            rank=self.rank,
            first=self._initial(seed, config.random_seed),
            new_weights=self._new_weights,
            engine=self._engine,
        )

    def _initial(self, seed: Graph, random_seed: int) -> Kept:
        """The seed with its initial weights, made once for all groups."""
        if seed.key not in self._first:
            self._first[seed.key] = Kept(seed, initial(seed, random_seed), {})
        return self._first[seed.key]


def machine_model() -> Assumptions:
    """Where a trial takes OVERHEAD_SECONDS more than its operations at RATE, and nothing else takes time."""
    return replace(
        assumed("laptop"),
        name="operations",
        source=f"{RATE:g} credited operations per second and {OVERHEAD_SECONDS:g} s for each trial",
        device="virtual",
        speed=Speed(RATE),
        data=NOT_READ,
        trials=Trials(gap_seconds=OVERHEAD_SECONDS, prepare_seconds=0.0),
        spread=Spread(0.0, 0.0),
        failures=Failures(0.0, 0.0, 0.0),
        startup=StartUp(0.0, 0.0, 0.0, 0.0),
        storage=Storage(AT_ONCE, AT_ONCE, 0.0),
        messages=Messages(0.0, 0.0, 0.0),
        format=FORMAT,
    )


def train_in(world: TrainingWorld, config: Config, directory: Path, command: Sequence[str]) -> Replay:
    """A run in this world, whose journal is written to the directory. Raises AiperfError."""
    files = SimulatedFiles(directory, world.storage)
    config = virtual_config(config, 1, FORMAT)
    return play(config, files, world, world.clock, _unheard, SILENCE_SECONDS, tuple(command))


def _unheard(note: str) -> None:
    """Notes are for a user who waits; here the table says what came of it."""
