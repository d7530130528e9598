"""The world of one machine, with a real worker in a child process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from aiperf.ranks.ranks import LocalWorld
from aiperf.ranks.world import Gone
from aiperf.wire.messages import Assign, Evaluate, Setup
from aiperf.wire.reports import Evaluated, Finished, FromGroup, Ready
from aiperf.wire.trial import State
from nas.record import graph_to_json
from tests.aiperf.training.test_worker import CONFIG, SEED, trial

SECONDS = 60.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    world = LocalWorld(RunFiles(tmp_path).log("here"), "cpu")
    yield world
    world.close()


def wait(world: LocalWorld, kind: type[FromGroup] | type[Gone]) -> FromGroup | Gone:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        received = world.receive(0.5)
        if received is not None and isinstance(received[1], kind):
            assert received[0] == 0
            return received[1]
    raise AssertionError(f"no {kind.__name__} in {SECONDS} s")


def ready(world: LocalWorld, directory: Path) -> Ready:
    world.send(0, Setup(CONFIG, graph_to_json(SEED), str(directory)))
    found = wait(world, Ready)
    assert isinstance(found, Ready)
    return found


@pytest.mark.slow
def test_a_worker_that_is_killed_or_hangs_is_started_again(world: LocalWorld, tmp_path: Path) -> None:
    assert world.groups == ((1,),)
    pid = ready(world, tmp_path).pid
    assert pid != os.getpid()
    world.send(0, Assign(trial(0), 1))
    assert wait(world, Finished).state is State.COMPLETE  # type: ignore[union-attr]

    os.kill(pid, signal.SIGKILL)
    gone = wait(world, Gone)
    assert isinstance(gone, Gone)
    assert gone.reason.startswith(f"the worker (process {pid}) was killed by signal 9; ")
    world.send(0, Assign(trial(1), 1))  # to nobody
    assert world.receive(0.1) is None

    assert world.restart(0)
    second = ready(world, tmp_path).pid
    assert second != pid
    world.send(0, Evaluate(0))
    assert wait(world, Evaluated).tally.of == 24  # type: ignore[union-attr]

    os.kill(second, signal.SIGSTOP)
    assert world.receive(0.2) is None
    assert world.restart(0)
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)
    ready(world, tmp_path)


def test_what_a_worker_cannot_do_it_says_before_it_ends(world: LocalWorld, tmp_path: Path) -> None:
    (tmp_path / "logs").rename(tmp_path / "moved")
    (tmp_path / "logs").write_text("a file where its log should be")
    world.send(0, Setup(CONFIG, graph_to_json(SEED), str(tmp_path)))
    gone = wait(world, Gone)
    assert isinstance(gone, Gone)
    assert "ended with exit code 1; its error is unknown, for " in gone.reason
    (tmp_path / "logs").unlink()
    (tmp_path / "moved").rename(tmp_path / "logs")
