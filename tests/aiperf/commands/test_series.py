"""`run --repeats`: which commands it starts, where it stops, how it goes on, and what it shows; `spread`."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.commands import series
from aiperf.host import scheduler_warning
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from aiperf.ranks.launcher import LaunchedRank
from aiperf.ranks.ranks import PROGRAM, Ranks
from tests.aiperf.commands.typed import Typed
from tests.journals import Scene, told, write_run
from tests.mpi.jobs import environ
from tests.tables import ComesTo

Codes = Callable[[list[int]], list[list[str]]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Codes:
    """Runs that never happened: each ends with the next of the codes, with a journal where the code is 0. The
    words of their commands."""

    def codes(left: list[int]) -> list[list[str]]:
        commands: list[list[str]] = []

        def run(command: list[str], *_: object) -> tuple[int, bool]:
            words = command[len(PROGRAM) :]
            commands.append(words)
            code = left.pop(0)  # below 0: Ctrl-C was pressed
            directory = Path(words[words.index("--directory") + 1])
            if code == 0 and not directory.exists():
                seed = int(words[words.index("--directory") - 1].partition("=")[2])
                write_run(directory, told(Scene(groups=1, changes=(("random_seed", seed),))))
            return abs(code), code < 0

        monkeypatch.setattr(series, "run_for_this", run)
        return commands

    return codes


def expected(directory: Path, number: int, seed: int, *words: str) -> list[str]:
    own = ("--set", f"random_seed={seed}", "--directory", str(directory / str(number)), "--resume")
    return ["run", *words, *own]


def test_a_series_stops_goes_on_and_ends_with_its_spread(
    started: Codes, typed: Typed, tmp_path: Path
) -> None:
    words = ("--preset", "digits", "--minutes", "0.5")
    command = ("run", *words, "--random-seed", 7, "--repeats", 3, "--device", "cpu", "--directory", tmp_path)
    passed = (*words, "--set", "random_seed=7", "--device", "cpu")
    commands = started([0, 130])
    assert typed(*command) == 130
    assert commands == [expected(tmp_path, 1, 7, *passed), expected(tmp_path, 2, 8, *passed)]
    again = shlex.join(["aiperf-hpc", *map(str, command), "--resume"])
    first = f"aiperf-hpc: run 1 of 3, random seed 7, in {tmp_path}/1\n"
    second = f"aiperf-hpc: run 2 of 3, random seed 8, in {tmp_path}/2\n"
    assert typed.err == (
        f"{first}{second}aiperf-hpc: stopped at run 2 of 3, exit code 130; to continue: {again}\n"
    )
    assert typed(*command) == 1
    remedy = "add --resume to continue them, or choose another --directory"
    assert typed.err == f"aiperf-hpc: {tmp_path} has runs already; {remedy}\n"
    commands = started([0, 0, 0])
    assert typed(*command, "--resume") == 0
    assert [words[-4] for words in commands] == [f"random_seed={seed}" for seed in (7, 8, 9)]
    assert typed.out.startswith("\n3 runs of simulated, 0.5 minutes, 1 device, 3 random seeds: ")
    assert "other seeds, the same choices     3      3 " in typed.out
    assert typed("spread", tmp_path, "--json") == 0
    assert [run["random_seed"] for run in json.loads(typed.out)["spread"]["runs"]] == [7, 8, 9]
    (tmp_path / "spread.json").write_text(typed.out)
    compare = ("compare", tmp_path / "1", tmp_path / "2", "--spread", tmp_path / "spread.json")
    assert typed(*compare) == 0
    assert "spread: two runs of simulated, 0.5 minutes, 1 device differ by up to " in typed.out
    write_run(tmp_path / "4", told(Scene(groups=1))[:40])
    assert typed("spread", tmp_path) == 0
    assert typed.err.startswith(f"aiperf-hpc: {tmp_path}/4 is INCOMPLETE: the run is in progress, or ")
    assert typed.err.endswith("; left out of the spread\n")
    for words_, why in (
        (("spread", tmp_path / "4", tmp_path / "1"), f"{tmp_path}/4 is INCOMPLETE: "),
        (("spread", tmp_path / "1"), "1 run to compare; a spread needs 2: aiperf-hpc run --repeats 5"),
        (("spread", tmp_path / "5"), f"{tmp_path}/5 does not exist; give a run directory or a package"),
        ((*compare[:-1], tmp_path / "no.json"), f"{tmp_path}/no.json: No such file or directory; `"),
    ):
        assert typed(*words_) == 1
        assert typed.err.startswith(f"aiperf-hpc: {why}")
        assert typed.err.count("\n") == 1


def test_which_runs_are_started_and_what_is_said_of_the_rest(
    started: Codes, typed: Typed, here: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """Only what was stopped is to be continued, and after Ctrl-C or a warning none starts. Simulated ones, as
    pretended ones, end with a code of their own; runs that are to be ranked have one seed. A series is
    neither of a batch job without the length of its runs, nor of several ranks."""
    write_run(here / "like", told(Scene(groups=1, changes=(("random_seed", 5),))))

    def ran(
        codes: list[int],
        words: str,
        warned: bool = False,
        job_seconds: float | None = None,
        rank: LaunchedRank | None = None,
    ) -> tuple[int, list[str], str]:
        """The exit code, the commands of the runs, and the end of what is said."""
        commands = started(codes)
        with monkeypatch.context() as patched:
            patched.setattr(series, "job_seconds_left", lambda environment, now: job_seconds)
            patched.setattr("aiperf.ranks.launcher.launched_rank", lambda environment: rank)
            patched.setattr("aiperf.ranks.ranks.across", lambda wanted, lead: lead(Ranks(wanted)))
            patched.setattr(scheduler_warning, "_noted", [signal.SIGTERM] * warned)
            code = typed("run", *words.split())
        assert codes == []
        said = [*map(shlex.join, commands), typed.err.splitlines()[-1].removeprefix("aiperf-hpc: ")]
        *own, last = [re.sub(r"runs/\d[^/ ]*", "runs/ID", each).replace(str(here), "…") for each in said]
        return code, own, last

    comes_to_what_was_read("series.txt", {"ran": ran, "LaunchedRank": LaunchedRank})
    assert not Path("g").exists()


CHILD = """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
print("ready", flush=True)
time.sleep(60)
"""
PARENT = """
import os, signal, sys
from aiperf.host import scheduler_warning
from aiperf.ranks.ranks import run_for_this
scheduler_warning.note()
found = run_for_this([sys.executable, "-c", sys.argv[1]], os.environ, (signal.SIGUSR1, signal.SIGINT))
print(*found, *scheduler_warning.noted())
"""


@pytest.mark.parametrize(
    ("number", "answer"), [(signal.SIGINT, "75 True"), (signal.SIGUSR1, f"75 False {int(signal.SIGUSR1)}")]
)
def test_a_signal_reaches_the_run_by_its_series(number: signal.Signals, answer: str) -> None:
    words = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == f"{answer}\n"


@pytest.mark.slow
def test_two_real_runs_differ_and_it_is_shown_by_how_much(typed: Typed, tmp_path: Path) -> None:
    words = ("--minutes", "0.1", "--device", "cpu", "--set", "training.validate_every_examples=500")
    command = [*PROGRAM, "run", *words, "--repeats", "2", "--directory", str(tmp_path / "series")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environ())
    assert ran.returncode == 0, ran.stderr
    runs = [replay(read_journal(RunFiles(tmp_path / "series" / name).journal)) for name in ("1", "2")]
    assert [run.opened.config.random_seed for run in runs] == [1, 2]
    assert typed("spread", tmp_path / "series") == 0
    assert ran.stdout.endswith(f"\n{typed.out}")
    assert "2 runs of digits, 0.1 minutes, 1 device, 2 random seeds: 1 × " in typed.out
