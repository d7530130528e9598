"""A run directory whose tested network has weights: a simulated run's journal, real images, weights that
learnt nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from aiperf.data import load
from aiperf.journal import events
from aiperf.journal.events import Ended, Event, RankReady
from aiperf.journal.run_files import RunFiles
from aiperf.score.lineage import rebuild
from aiperf.tasks.tally import Tally
from aiperf.training.kept_network import Kept, write_kept
from aiperf.training.reevaluation import reevaluate
from nas.weights import initial
from tests.journals import Scene, replayed, told, within, write_run


def kept_run(directory: Path, scene: Scene) -> tuple[RunFiles, int]:
    """With the number of its tested trial, whose answers are in the journal."""
    files, run = RunFiles(directory), replayed(told(scene))
    assert run.tested is not None
    number, graph = run.tested.trial, rebuild(run, run.tested.trial)
    files.directory.mkdir(parents=True, exist_ok=True)
    digest = write_kept(files.weights(number), Kept(graph, initial(graph, 1), {}))
    manifest = dict(load(scene.config.data, torch.device("cpu"), 1).manifest)

    def changed(event: Event, tally: Tally | None) -> Event:
        if isinstance(event, Ended) and event.finished.trial == number:
            return within(event, weights=digest)
        if isinstance(event, RankReady):
            return replace(event, ready=replace(event.ready, data=manifest))
        if isinstance(event, events.Tested) and tally is not None:
            return within(event, tally=tally)
        return event

    first = [(t, changed(event, None)) for t, event in told(scene)]
    found = reevaluate(replayed(first), files, "cpu", "").test.found
    write_run(directory, [(t, changed(event, found)) for t, event in told(scene)])
    return files, number
