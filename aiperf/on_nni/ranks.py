"""The ranks of a run under NNI: one for each concurrent trial of NNI, all on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.config import Config
from aiperf.files import RunFiles
from aiperf.on_nni.world import NniWorld
from aiperf.ranks.process import describe_device
from aiperf.ranks.ranks import Ranks
from aiperf.ranks.world import World
from aiperf.wire.layout import Described, Place


@dataclass(frozen=True)
class NniRanks(Ranks):
    concurrency: int = 1

    def places(self, config: Config) -> tuple[Place, ...]:
        ranks = range(1, self.concurrency + 1)
        return tuple(
            Place(rank=rank, group=(rank,), device_index=rank - 1, ranks_on_host=self.concurrency)
            for rank in ranks
        )

    def devices(self, config: Config) -> tuple[Described, ...]:
        return self.found(tuple(describe_device(place, self.wanted.device) for place in self.places(config)))

    def world(self, config: Config, files: RunFiles) -> World:
        return NniWorld(files, self.places(config), self.wanted.device)
