"""Three steps of one network: rank 0 alone with the whole batch, ranks 1 and 2 as a group by a backend.

    mpiexec -n 3 python -m tests.mpi.steps.three_steps ddp|horovod DIRECTORY "[KEY=VALUE of training …]" …

For each argument they begin again with these settings, because starting them takes longer than the steps.
Each writes the parameters and statistics that it has in the end: DIRECTORY/<number of argument>-<rank>.npz.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from aiperf.config import parse_setting
from aiperf.data import load
from aiperf.device import bind
from aiperf.parallel.ddp import Ddp
from aiperf.parallel.parallel import Parallel, Solo
from aiperf.proposing.pace import Pace
from aiperf.ranks.connect import connect, disconnect
from aiperf.ranks.launcher import LaunchedRank
from aiperf.ranks.link import Link
from aiperf.training.built_trial import Rank, build
from aiperf.training.kept_network import Kept
from aiperf.training.train import train
from aiperf.wire.layout import layout
from nas.weights import initial
from tests.aiperf.conduct.driven import meeting_in
from tests.aiperf.engines.recording import recording
from tests.aiperf.training.test_worker import CONFIG, SEED, trial


def main() -> None:
    backend, directory, *arguments = sys.argv[1:]
    link = connect(LaunchedRank(0, 3, "mpiexec", fault_tolerant=False))
    for number, settings in enumerate(arguments):
        (folder := Path(directory) / str(number)).mkdir(exist_ok=True)
        weights = stepped(link, backend, settings.split(), folder)
        np.savez(Path(directory) / f"{number}-{link.rank}.npz", **weights)
    disconnect(link)


def stepped(link: Link, backend: str, settings: list[str], folder: Path) -> Mapping[str, np.ndarray]:
    """What this rank has after three steps. Those of a group meet in this folder."""
    data = replace(CONFIG.data, training_examples=48)
    training = replace(CONFIG.training, batch_size=16, **dict(map(parse_setting, settings)))
    device = recording() if training.step == "graphed" else bind("cpu", 0)
    parallel: Parallel = Solo()
    if link.rank > 0:
        place = layout(("here",) * 3)[link.rank - 1]
        if backend == "horovod":
            from aiperf.parallel.hvd import Hvd

            comm = link.comm.Create_group(link.comm.Get_group().Incl([1, 2]))
            parallel = Hvd(device, training.compression, comm)
        else:
            parallel = Ddp(device, place, training.compression, *meeting_in(folder))
    rank = Rank(device, load(data, device.torch, 1), training, parallel)
    start = Kept(SEED, initial(SEED, 1), {})
    three = replace(trial(0, batch_size=16, momentum=0.9, weight_decay=1e-3), epochs=1)
    attempt = build(rank, three, 1, start)
    assert attempt.plan.steps == 3
    attempt.engine_name = training.step
    kept = train(rank, attempt, Pace(), lambda message: None).kept
    assert kept is not None
    parallel.close()
    return kept.weights


if __name__ == "__main__":
    main()
