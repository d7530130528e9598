"""Trials of the program itself on generated images: what a worker does between two messages of the master."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiperf.conduct.actions import Train
from aiperf.conduct.events import BlockDone, EngineFailed
from aiperf.config import Config, load_preset, with_overrides
from aiperf.data import load
from aiperf.device import Device
from aiperf.device.device import PREPARING
from aiperf.engines.registry import KINDS
from aiperf.parallel.parallel import Parallel, Solo, lead
from aiperf.training.built_trial import BuiltTrial, Rank, build
from aiperf.training.kept_network import Kept
from aiperf.training.train import TrainedTrial
from aiperf.wire.messages import Working
from aiperf.wire.trial import HyperParameters, Trial
from nas.graph import Graph
from nas.weights import initial

GENERATED: Mapping[str, Any] = {
    "data.training_examples": 4096,
    "data.validation_examples": 64,
    "data.test_examples": 64,
}
EPOCHS = 1 << 20
"""More than any of these trials reaches: its learning rate stays at the peak."""
RATE = 1e-3


def generated(side: int, classes: int, batch_size: int, format: str, **changes: Any) -> Config:
    """The configuration of trials on generated images of this side."""
    own = {"data.size": side, "data.classes": classes, "training.batch_size": batch_size}
    others = {"training.format": format, "training.warmup": 0.0}
    return with_overrides(load_preset("synthetic"), {**GENERATED, **own, **others, **changes})


@dataclass(frozen=True)
class Trials:
    """Prepares and trains trials one after the other, as a rank of a run does."""

    rank: Rank
    engine: str
    batch_size: int

    @classmethod
    def of(cls, config: Config, device: Device, engine: str, parallel: Parallel | None = None) -> Trials:
        """Loads the data of a configuration onto the device."""
        device.declare(config.training.format)
        group = parallel or Solo()
        data = load(config.data, device.torch, config.random_seed, group.ranks)
        return cls(Rank(device, data, config.training, group), engine, config.training.batch_size)

    def prepared(self, graph: Graph, number: int = 0) -> BuiltTrial:
        """A trial that is ready, as `Worker.start_of` prepares it, in whatever thread this is called."""
        device = self.rank.device
        device.enter_thread()
        hyper = HyperParameters(RATE, self.batch_size)
        trial = Trial(number, None, (), hyper, 1, EPOCHS, seed=number)
        queue = device.aside(PREPARING)
        with queue.begin():
            built = build(self.rank, trial, 1, Kept(graph, initial(graph, 0), {}))
        queue.finish()
        return built

    def begin(self, built: BuiltTrial) -> Running:
        """Makes the first steps, up to and with the first one that the engine makes."""
        self.rank.device.aside(PREPARING).join(*built.tensors)
        built.engine_name = self.engine
        reasons = list[str]()

        def report(event: EngineFailed | Working) -> None:
            if isinstance(event, EngineFailed):
                reasons.append(event.reason)

        running = Running(built, TrainedTrial(self.rank, built, report), reasons)
        running.make(1)  # the first step is a block of its own, as in a run
        if later := KINDS[self.engine].begins(self.rank.parallel.wraps_network):
            running.make(later)
        return running

    def rate(self, running: Running, seconds: float) -> float:
        """Examples per second over all ranks, in a block of steps that fills the time."""
        made = running.make(2)
        own = max(1, round(seconds * made.steps / made.seconds))
        made = running.make(lead(self.rank.parallel, own))
        return made.examples / made.seconds


@dataclass(frozen=True)
class Running:
    """A trial that has begun."""

    built: BuiltTrial
    trial: TrainedTrial
    reasons: list[str]
    """Reasons why its engine was replaced by the eager one; empty if it was not."""

    def make(self, steps: int) -> BlockDone:
        """Makes this many steps, and waits for the device."""
        done = self.trial.do(Train(0, steps, None))
        assert isinstance(done, BlockDone)
        return done

    def close(self) -> None:
        """Frees what the engine holds."""
        self.trial.close()
