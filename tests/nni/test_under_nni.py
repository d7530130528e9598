"""A real NNI: `nnictl` starts its manager, which runs three trials of ours and shows them, and is stopped."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from aiperf.errors import WorldError
from aiperf.journal.events import TERMINATED
from aiperf.journal.run_files import RunFiles
from aiperf.on_nni.trial_messages import call
from aiperf.rules.ending import ERROR
from aiperf.wire.trial import State
from tests.mpi.jobs import told as replayed

pytestmark = [pytest.mark.nni, pytest.mark.torch, pytest.mark.timeout(1500)]

TRIALS = 3
BEGUN_SECONDS = 240  # for the journal; NNI's manager gives up its tuner if that does not answer in ten
SECONDS = 1200  # on a busy machine; a quiet one needs a minute and a half
STOP_SECONDS = 300  # likewise; a quiet one needs seconds
COMMAND = str(Path(sys.executable).parent / "aiperf-hpc")
# `nnictl` itself, with more patience than its own four seconds for its manager to answer.
NNICTL = """
import sys
from nni.experiment import launcher
launcher._check_rest_server.__defaults__ = (120, None)
from nni.tools.nnictl.nnictl import parse_args
sys.exit(parse_args())
"""


class Nni:
    """NNI with a home of its own."""

    def __init__(self, folder: Path) -> None:
        beside = str(Path(sys.executable).parent)
        self.folder, self.port = folder, _free_port()
        path = f"{beside}{os.pathsep}{os.environ['PATH']}"
        self.environment = os.environ | {"HOME": str(folder), "OMP_NUM_THREADS": "1", "PATH": path}

    def ctl(self, *words: str) -> str:
        return self.run(sys.executable, "-c", NNICTL, *words)

    def run(self, *words: str) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done.stdout

    def begin(self, *options: str) -> RunFiles:
        """Starts a run with these options; where its journal will be."""
        files = RunFiles(self.folder / "run")
        where = ("--minutes", "60", "--device", "cpu", "--directory", str(files.directory))
        config = self.folder / "config.yml"
        config.write_text(self.run(COMMAND, "nni", "config", *options, *where), encoding="utf-8")
        self.ctl("create", "--config", str(config), "--port", str(self.port))
        self.wait(files.journal.exists, BEGUN_SECONDS)
        return files

    def wait(self, holds: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Fails as soon as NNI has given up, as where its tuner came too late."""
        until = time.monotonic() + seconds
        while not holds():
            assert self.shown("check-status")["status"] != "ERROR", self.logs()
            assert time.monotonic() < until, self.logs()
            time.sleep(0.5)

    def is_gone(self) -> bool:
        """Whether no process of it is left some time after it was stopped."""
        self.ctl("stop", "--all")
        until = time.monotonic() + STOP_SECONDS
        while self.processes() and time.monotonic() < until:
            time.sleep(0.5)
        return not self.processes()

    def shown(self, what: str) -> Any:
        """An answer of the manager to its web page."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/nni/{what}", timeout=60) as page:
            return json.load(page)

    def logs(self) -> str:
        found = self.folder.glob("nni-experiments/*/log/*.log")
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-3000:]}" for path in found)

    def processes(self) -> list[psutil.Process]:
        """Processes of this NNI: those with its folder in their command lines."""
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if process.pid != os.getpid() and any(str(self.folder) in word for word in words):
                found.append(process)
        return found


@pytest.fixture
def nni(tmp_path: Path) -> Iterator[Nni]:
    started = Nni(tmp_path)
    try:
        yield started
    finally:
        # However the test ended: nothing of it stays.
        subprocess.run(
            [sys.executable, "-c", NNICTL, "stop", "--all"], env=started.environment, timeout=120, check=False
        )
        for process in started.processes():
            process.kill()


def test_its_trials_are_those_of_the_journal(nni: Nni) -> None:
    files = nni.begin("--set", "training.epochs=[1]", "--max-trials", str(TRIALS))
    nni.wait(lambda: nni.shown("check-status")["status"] == "DONE")
    jobs = nni.shown("trial-jobs")
    assert [job["status"] for job in jobs] == ["SUCCEEDED"] * TRIALS
    told = {
        json.loads(job["hyperParameters"][0])["parameters"]["trial"]: float(
            json.loads(json.loads(job["finalMetricData"][0]["data"]))
        )
        for job in jobs
    }
    nni.wait(lambda: not files.socket_address.exists())  # the best network is tested after the last trial
    found = replayed(files.directory)
    assert found.leg.ended is not None
    assert found.leg.ended.reason == "trials"
    assert found.tested is not None
    assert {number: story.state for number, story in found.trials.items()} == dict.fromkeys(
        range(TRIALS), State.COMPLETE
    )
    # What NNI's page shows is what the journal says.
    assert told == {number: pytest.approx(1 - (s.error or 0)) for number, s in found.trials.items()}

    assert "VALID" in nni.run(COMMAND, "validate", str(files.directory))
    assert "sustained OPS" in nni.run(COMMAND, "score", str(files.directory))
    assert nni.is_gone()


LONG = ("--set", "training.epochs=[1000]", "--set", "training.step=eager")
BEFORE = f"{ERROR}{TERMINATED} before the clock started"


@pytest.mark.parametrize(
    ("word", "options", "reason", "state"),
    [
        ("RankReady", (), BEFORE, None),
        ("Stepped", LONG, TERMINATED, State.STOPPED),
        ("Closed", (), TERMINATED, State.COMPLETE),
    ],
    ids=["before the clock", "within a trial", "between trials"],
)
def test_stopped_it_has_what_was_done(
    word: str, options: tuple[str, ...], reason: str, state: State | None, nni: Nni
) -> None:
    """`state`: of the first trial, if it began. The master outlives NNI's manager where it is slow."""
    files = nni.begin(*options)
    nni.wait(lambda: f'"{word}"' in files.journal.read_text("utf-8"))
    assert nni.is_gone(), nni.logs()
    found = replayed(files.directory)
    assert found.leg.ended is not None, nni.logs()
    assert found.leg.ended.reason == reason
    if state is None:
        assert not found.trials
    else:
        assert found.trials[0].state is state
        assert found.best is not None


def test_without_a_run_a_trial_says_so(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="no run under NNI is active here"):
        call(RunFiles(tmp_path))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


if shutil.which("nnictl", path=str(Path(sys.executable).parent)) is None:
    pytestmark.append(pytest.mark.skip(reason="nni is not installed here; make test-nni"))
