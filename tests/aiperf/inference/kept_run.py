"""A run directory whose tested network has weights: a simulated run's journal, real images, weights that
learnt nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aiperf.data import load
from aiperf.journal import events
from aiperf.journal.events import Closed, Ended, Event, RankReady
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.score.lineage import rebuild
from aiperf.tasks.tally import Tally
from aiperf.training.kept_network import Kept, write_kept
from aiperf.training.reevaluation import Reevaluation, reevaluate
from nas.weights import initial
from tests.journals import Scene, Timed, replayed, told, within, write_run

Change = Callable[[Event], Event | None]


@dataclass(frozen=True)
class Best:
    """The tested network of a simulated run, and what it answers on the images that are here."""

    files: RunFiles
    scene: Scene
    number: int
    digest: str
    test: Tally | None = None
    validation: Tally | None = None

    def told(self, change: Change = lambda event: event) -> list[Timed]:
        """The run as if it had kept and tested these."""
        manifest = dict(load(self.scene.config.data, torch.device("cpu"), 1).manifest)
        found = list[Timed]()
        for t, event in told(self.scene):
            if isinstance(event, Ended) and event.finished.trial == self.number:
                kept = 0 if self.validation else event.finished.kept
                event = within(event, weights=self.digest, kept=kept)
            elif isinstance(event, RankReady):
                event = replace(event, ready=replace(event.ready, data=manifest))
            elif self.test and isinstance(event, events.Tested):
                event = within(event, tally=self.test)
            elif self.validation and isinstance(event, Closed) and event.segment.trial == self.number:
                event = within(event, tally=self.validation)
            if (changed := change(event)) is not None:
                found.append((t, changed))
        return found

    def replay(self) -> Replay:
        return replayed(self.told())

    def again(self, change: Change = lambda event: event) -> Reevaluation:
        return reevaluate(replayed(self.told(change)), self.files, "cpu", "")


def best_of(files: RunFiles, scene: Scene) -> Best:
    """With weights in the directory."""
    run = replayed(told(scene))
    assert run.tested is not None
    graph = rebuild(run, run.tested.trial)
    files.directory.mkdir(parents=True, exist_ok=True)
    digest = write_kept(files.weights(run.tested.trial), Kept(graph, initial(graph, 1), {}))
    unknown = Best(files, scene, run.tested.trial, digest)
    seen = unknown.again()
    return replace(unknown, test=seen.test.found, validation=seen.validation.found)


def kept_run(directory: Path, scene: Scene) -> tuple[RunFiles, int]:
    """With the number of its tested trial, whose answers in the test are in the journal; by its validations,
    which are the simulated ones, it stays the best."""
    best = replace(best_of(RunFiles(directory), scene), validation=None)
    write_run(directory, best.told())
    return best.files, best.number
