"""Runs whose workers pretend: the whole path but for the training, and the worker by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.config import Config, load_preset, with_overrides
from aiperf.errors import ConfigError
from aiperf.journal.events import LegBegan, Opened, Origin
from aiperf.journal.run_files import RunFiles
from aiperf.pretending.assumptions import assumed, assumptions_toml
from aiperf.ranks.pretender import Pretender
from aiperf.ranks.rank_options import RankOptions
from aiperf.ranks.ranks import Ranks
from aiperf.ranks.world import ALONE
from aiperf.rules.ending import Answer
from aiperf.run.checks import starting_graph
from aiperf.run.run import resume
from aiperf.training.pretending_worker import read_learnt
from aiperf.wire.layout import Place
from aiperf.wire.messages import Assign, Evaluate, Quit, Refused, Release, Setup, ToGroup, pack, unpack
from aiperf.wire.reports import Evaluated, Finished, FromGroup, Ready, Started
from aiperf.wire.trial import HyperParameters, State, Trial
from nas.morphisms import Widen
from nas.record import graph_to_json
from tests import journals
from tests.aiperf.commands.typed import Typed
from tests.mpi.checked import checked
from tests.mpi.jobs import environ, started

DIGITS = with_overrides(load_preset("digits"), {"training.format": "fp32"})
PROGRAM = (
    "import sys; from aiperf.start import main; code = main(); print('torch' in sys.modules); sys.exit(code)"
)


def command(*words: object) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *map(str, words)]


def test_a_pretended_run_goes_the_whole_path_without_torch_and_goes_on_as_it_began(
    typed: Typed, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    words = ("run", "--pretend", "laptop", "--minutes", "0.15", "--directory", directory)
    with started(command(*words), directory) as job:
        job.wait_for('"COMPLETE"')
        job.process.kill()
        job.process.wait()
    changed = tmp_path / "changed.toml"
    laptop = assumed("laptop")
    changed.write_text(assumptions_toml(replace(laptop, speed=replace(laptop.speed, validation=2.0))))
    another = "its workers pretended with another machine model"
    for model, why in (("", "its workers pretended to train"), ("h100", another), (changed, another)):
        assert typed("resume", directory, *(("--pretend", model) if model else ())) == 1
        go_on = f"resume it with --pretend {directory}/assumptions.toml"
        assert typed.err == f"aiperf-hpc: {directory}/journal.jsonl: {why}; {go_on}\n"
    resume = command("resume", directory, "--pretend", directory / "assumptions.toml")
    again = subprocess.run(resume, env=environ(), capture_output=True, text=True, timeout=100)
    assert again.returncode == Answer.SIMULATED.exit_code, again.stderr
    assert again.stdout.splitlines()[-1] == "False"
    notice = 'NOTHING IS TRAINED: each worker waits as long as the machine model "laptops" predicts'
    assert notice in again.stderr
    replay = checked(directory)
    assert (replay.opened.origin, replay.num_legs) == (Origin.PRETENDED, 2)
    assert replay.attempts[0].state is State.COMPLETE
    assert replay.tested is not None
    assert replay.best is not None
    assert read_learnt(RunFiles(directory).weights(replay.best.number)).examples > 0
    typed("validate", directory)
    (ranks,) = [line for line in typed.out.splitlines() if " ranks  " in line]
    assert ranks.split(None, 2)[2] == "all ranks were ready"  # there were no weights to begin with
    typed("resume", directory, "--pretend", "laptop")
    assert "is complete; this is its result" in typed.err


def test_a_measured_run_is_not_pretended_on(tmp_path: Path) -> None:
    """Which leaves the journal as it was."""
    lines = journals.told(journals.Scene(killed_at=20.0))
    leg = [line for line in lines if isinstance(line[1], (Opened, LegBegan))]
    files = journals.write_run(tmp_path / "run", leg)
    before = files.journal.read_bytes()
    with pytest.raises(ConfigError, match="belongs to a run that was measured; resume it without --pretend"):
        resume(files, Ranks(RankOptions(pretend=assumed("laptop"))), lambda replay, t: None)
    assert files.journal.read_bytes() == before


def test_a_rehearsal_asks_no_device_and_horovod_cannot_be_pretended(typed: Typed, tmp_path: Path) -> None:
    words = ("--pretend", "h100", "--preset", "ranked", "--dry-run", "--directory", tmp_path / "run")
    assert typed("run", *words) == 0, typed.err
    assert "pretending ............... NOTHING IS TRAINED" in typed.out
    assert "1 × modelled H100 (pretended), 80 GiB" in typed.out
    assert "images per second of the seed by a group (assumed)" in typed.out
    assert not (tmp_path / "run").exists()
    assert typed("run", "--pretend", "laptop", "--backend", "horovod") == 1
    assert typed.err == "aiperf-hpc: --pretend averages no gradients; omit --backend horovod\n"


class Asked:
    """A worker and what it says, as a relay would hear it."""

    def __init__(self, directory: Path, config: Config = DIGITS, place: Place = ALONE) -> None:
        directory.mkdir(exist_ok=True)
        self.files, self.seed = RunFiles(directory), starting_graph(config)
        self.worker = Pretender(place, assumed("laptop"), directory / "rank.log")
        self.say(Setup(config, graph_to_json(self.seed), str(directory)))

    def ready(self) -> Asked:
        """Before that nothing is assigned."""
        self.hear(Ready)
        return self

    def say(self, *messages: ToGroup) -> None:
        for message in messages:
            self.worker.send(pack(message))

    def hear(self, kind: type[FromGroup]) -> Any:
        """The first of this kind; what comes before is passed over, but for a refusal."""
        until = time.monotonic() + 10.0
        while time.monotonic() < until:
            data = self.worker.receive(0.1)
            message = data and unpack(FromGroup, data)
            if isinstance(message, kind):
                return message
            assert not isinstance(message, Refused), message
        raise AssertionError(f"no {kind} in 10 s")


def trial(number: int, parent: int | None = None, epochs: int = 1) -> Trial:
    return Trial(number, parent, (), HyperParameters(0.1, 50), 1, epochs, number)


def test_a_child_goes_on_from_the_file_of_its_parent(tmp_path: Path) -> None:
    first, second = Asked(tmp_path), Asked(tmp_path, place=Place(2, (2,), 1, 2))
    first.ready(), second.ready()
    first.say(Release(None), Assign(trial(0), 0))
    finished = first.hear(Finished)
    assert finished.state is State.COMPLETE
    assert read_learnt(first.files.weights(0)).examples == 200
    child = replace(trial(1, parent=0), morphisms=(Widen("stage1.block1.1.conv", 16, 1),))
    second.say(Release(None), Assign(child, 0))
    second.hear(Finished)
    grown = read_learnt(first.files.weights(0)).child(child, assumed("laptop").spread)
    assert read_learnt(first.files.weights(1)) == replace(grown, examples=400)
    assert grown.rate_offset != 0
    second.say(Evaluate(0))
    evaluated = second.hear(Evaluated)
    assert (evaluated.trial, evaluated.tally.of) == (0, 1197)
    for each in (first, second):
        each.say(Quit())
        each.worker.end()


def test_a_trial_that_fails_ends_by_itself(tmp_path: Path) -> None:
    asked = Asked(tmp_path).ready()
    asked.say(Release(None), Assign(trial(1, parent=0), 0), Assign(trial(2), 0))
    failed = asked.hear(Finished)
    assert failed.state is State.FAILED
    assert "0.safetensors: No such file or directory; put the file back" in failed.reason
    assert "read_learnt" in failed.traceback
    done = asked.hear(Finished)
    assert (done.trial, done.state) == (2, State.COMPLETE)
    asked.worker.kill()


@pytest.mark.parametrize("told_to_quit", [False, True])
def test_its_end_is_waited_for_by_nobody(tmp_path: Path, told_to_quit: bool) -> None:
    asked = Asked(tmp_path).ready()
    asked.say(Release(None), Assign(trial(0, epochs=1000), 0), Assign(trial(1), 0))
    asked.hear(Started)
    began = time.monotonic()
    if told_to_quit:
        asked.say(Quit())
        asked.worker.end()
    else:
        asked.worker.kill()
    assert time.monotonic() - began < 1.0
    with pytest.raises(EOFError):
        asked.hear(Evaluated)
    assert asked.worker.obituary().startswith("the pretending worker of rank 1 ended")
    asked.say(Assign(trial(3), 0))  # which nobody takes any more


def test_a_worker_that_cannot_begin_says_why(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("no folder")
    refused = Asked(tmp_path).hear(Refused)
    assert re.fullmatch(
        f"{tmp_path}/logs/.*.jsonl cannot be written: File exists; choose another directory", refused.reason
    )


def test_of_a_group_of_several_the_leader_works(tmp_path: Path) -> None:
    leader, other = (Asked(tmp_path, place=Place(rank, (1, 2), rank - 1, 2)) for rank in (1, 2))
    for each in (leader, other):
        each.ready().say(Release(None), Assign(trial(0), 0))
    leader.hear(Finished)
    assert other.worker.receive(0.2) is None
    leader.worker.kill()
    other.worker.kill()
    assert [path.name for path in leader.files.witnesses()] == [f"{os.uname().nodename}.rank1.steps.jsonl"]
