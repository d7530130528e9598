"""From one process to a master and its ranks, where no launcher started them; and the world of one machine,
with a real worker in a child process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiperf.config import load_preset
from aiperf.errors import WorldError, installation
from aiperf.journal.run_files import RunFiles
from aiperf.ranks import ranks
from aiperf.ranks.rank_options import RankOptions
from aiperf.ranks.ranks import LocalWorld, Ranks, across
from aiperf.ranks.world import ALONE, Gone
from aiperf.wire.messages import Assign, Evaluate, Setup
from aiperf.wire.reports import Evaluated, Finished, FromGroup, Ready
from aiperf.wire.trial import State
from nas.record import graph_to_json
from tests.aiperf.training.test_worker import CONFIG, SEED, trial
from tests.tables import ComesTo

# Writes down how it was called, and ends as a run that its scheduler stopped.
MPIEXEC = """#!/bin/bash
printf '%s\\n' "$@" >"$LOG"
echo "$OMPI_ALLOW_RUN_AS_ROOT $PRTE_MCA_rmaps_default_mapping_policy" >>"$LOG"
exit 75
"""


def never(ranks: Ranks) -> int:
    raise AssertionError("nobody is to lead here")


@pytest.fixture(autouse=True)
def _command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["aiperf-hpc", "run", "--minutes", "1"])
    monkeypatch.setattr(ranks, "visible_devices", lambda kind: 4 if kind == "cuda" else 1)
    monkeypatch.setattr(ranks, "allowed_cores", lambda: 2)


def test_one_device_is_led_by_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    led: list[Ranks] = []

    def lead(ranks: Ranks) -> int:
        led.append(ranks)
        return 7

    assert across(RankOptions("cpu"), lead) == 7
    assert across(RankOptions("cuda", devices=1), lead) == 7
    assert [each.places(load_preset("digits")) for each in led] == [(ALONE,), (ALONE,)]
    assert [each.terminal for each in led] == [None, None]


@pytest.mark.parametrize(("hosts", "trains"), [((), True), (("a", "a", "b"), True), (("a", "b", "b"), False)])
def test_the_masters_host_trains_if_another_rank_is_there_or_none(
    hosts: tuple[str, ...], trains: bool
) -> None:
    assert Ranks(RankOptions("cpu"), hosts=hosts).masters_host_trains is trains


@pytest.mark.parametrize(("wanted", "number"), [(RankOptions("cuda"), 5), (RankOptions("cpu", devices=2), 3)])
def test_several_devices_are_several_ranks_of_the_same_command(
    wanted: RankOptions, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text(MPIEXEC, encoding="utf-8")
    mpiexec.chmod(0o755)
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setattr(ranks, "_mpiexec", lambda: str(mpiexec))
    assert across(wanted, never) == 75, "what the ranks end with"
    words = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert words[:5] == ["-n", str(number), "--bind-to", "none", sys.executable]
    assert words[-4:] == ["run", "--minutes", "1", "1 :oversubscribe"]


def test_ranks_that_cannot_be_started_are_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """Several devices without MPI, more ranks than devices or cores, and Horovod without MPI."""
    monkeypatch.setattr(ranks, "_mpiexec", lambda: None)

    def started(options: RankOptions, **environment: str) -> int:
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            try:
                return across(options, never)
            except WorldError as error:
                raise WorldError(str(error).replace(installation("mpi"), "INSTALL IT")) from None

    comes_to_what_was_read("unstarted.txt", {"started": started, "RankOptions": RankOptions})


def test_the_mpiexec_beside_this_python_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, beside = tmp_path / "elsewhere", tmp_path / "bin"
    for folder in (elsewhere, beside):
        folder.mkdir()
        (folder / "mpiexec").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(elsewhere))
    monkeypatch.setattr("sys.executable", str(beside / "python"))
    monkeypatch.setitem(sys.modules, "mpi4py", object())
    assert ranks._mpiexec() == str(beside / "mpiexec")
    (beside / "mpiexec").unlink()
    assert ranks._mpiexec() == str(elsewhere / "mpiexec")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert ranks._mpiexec() is None


# The world of one machine


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    world = LocalWorld(RunFiles(tmp_path).log("here"), "cpu")
    yield world
    world.close()


def wait(world: LocalWorld, kind: type[FromGroup] | type[Gone]) -> Any:
    until = time.monotonic() + 60.0
    while time.monotonic() < until:
        received = world.receive(0.5)
        if received is not None and isinstance(received[1], kind):
            assert received[0] == 0
            return received[1]
    raise AssertionError(f"no {kind.__name__} in 60 s")


def begin(world: LocalWorld, directory: Path) -> int:
    """The process of the worker, once it is ready."""
    world.send(0, Setup(CONFIG, graph_to_json(SEED), str(directory)))
    pid: int = wait(world, Ready).pid
    return pid


@pytest.mark.slow
def test_a_worker_that_is_killed_or_hangs_is_started_again(world: LocalWorld, tmp_path: Path) -> None:
    assert world.groups == ((1,),)
    pid = begin(world, tmp_path)
    assert pid != os.getpid()
    world.send(0, Assign(trial(0), 1))
    assert wait(world, Finished).state is State.COMPLETE

    os.kill(pid, signal.SIGKILL)
    assert wait(world, Gone).reason.startswith(f"the worker (process {pid}) was killed by signal 9; ")
    world.send(0, Assign(trial(1), 1))  # to nobody
    assert world.receive(0.1) is None

    assert world.restart(0)
    second = begin(world, tmp_path)
    assert second != pid
    world.send(0, Evaluate(0))
    assert wait(world, Evaluated).tally.of == 24

    os.kill(second, signal.SIGSTOP)
    assert world.receive(0.2) is None
    assert world.restart(0)
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)
    begin(world, tmp_path)


def test_what_a_worker_cannot_do_it_says_before_it_ends(world: LocalWorld, tmp_path: Path) -> None:
    (tmp_path / "logs").rename(tmp_path / "moved")
    (tmp_path / "logs").write_text("a file where its log should be")
    world.send(0, Setup(CONFIG, graph_to_json(SEED), str(tmp_path)))
    assert "ended with exit code 1; its error is unknown, for " in wait(world, Gone).reason
    (tmp_path / "logs").unlink()
    (tmp_path / "moved").rename(tmp_path / "logs")
