"""Real runs on this machine: a whole one, interrupted ones, killed ones and their resumption."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.config import to_toml
from aiperf.errors import ConfigError, JournalError
from aiperf.journal.events import LegBegan, Opened
from aiperf.journal.file import JournalReader, read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.ranks.rank_options import RankOptions
from aiperf.ranks.ranks import Ranks
from aiperf.rules.verdict import judge
from aiperf.run.run import resume
from aiperf.wire.trial import State
from analysis.readings.telemetry import HostClock, read_telemetry
from tests import journals
from tests.aiperf.commands.typed import Typed
from tests.aiperf.groups import reason
from tests.mpi.jobs import environ

pytestmark = [
    pytest.mark.torch,  # in the processes that it starts
    pytest.mark.timeout(600),  # the control comes first: ten seconds, on a busy machine minutes
]

# Trials of a second or two, so that a short span sees several of them begin and end.
QUICK = ("--device=cpu", "--set=training.epochs=[10, 5]", "--set=training.validate_every_examples=500")
SHORT = ("--minutes=0.1", *QUICK)
BEGUN_SECONDS = 240.0  # for the first lines of a run on a busy machine, the control included


@pytest.fixture
def short_control(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control that takes no ten seconds."""
    monkeypatch.setenv("PYTHONPATH", environ()["PYTHONPATH"])


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "aiperf", *map(str, words)]


def finished(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=600)


@contextmanager
def begun(directory: Path, minutes: float) -> Iterator[subprocess.Popen[str]]:
    """A run in the background, ended at the end whatever happens."""
    words = command("run", "--directory", directory, "--minutes", minutes, *QUICK)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(directory: Path, words: str) -> None:
    """Until a line of the journal holds these words."""
    until = time.monotonic() + BEGUN_SECONDS
    journal = RunFiles(directory).journal
    while not (journal.exists() and words in journal.read_text(encoding="utf-8")):
        assert time.monotonic() < until, f"no line with {words} in {journal}"
        time.sleep(0.1)


def told(directory: Path) -> Replay:
    return replay(read_journal(RunFiles(directory).journal))


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run as a user starts it, and what it printed."""
    directory = tmp_path_factory.mktemp("runs") / "complete"
    answer = finished("run", "--directory", directory, *SHORT)
    assert answer.returncode == 0, answer.stderr
    return directory, answer.stdout


@pytest.mark.contract
def test_a_run_trains_tests_and_is_valid(complete: tuple[Path, str]) -> None:
    """It measures its ceiling and stays below, and its host is recorded over the whole span."""
    directory, output = complete
    run, files = told(directory), RunFiles(directory)
    for words in ("VALID, class smoke", "of the ceiling", "energy                  unknown (no supported"):
        assert words in output
    assert (reason(run), run.faults) == ("deadline", [])
    assert run.span_seconds == pytest.approx(6.0, abs=1e-6)
    assert run.tested is not None
    assert run.tested.tally.of == 1197
    (ceiling,) = run.leg.ceilings.values()
    format = run.opened.config.training.format  # which "auto" came to on this processor
    assert ceiling.format == format
    assert run.ranks[0].ready.multiplies == {"matrix product": format, "convolution": format}
    worked = run.worked()
    assert worked.seconds[0] > 0
    for attempt, examples, seconds in zip(run.attempts, worked.examples, worked.seconds):
        if seconds > 0:
            dispatched = attempt.dispatched
            products = 2 * (dispatched.forward[0] + dispatched.backward[0])
            assert products * examples / seconds < ceiling.product.fastest
    found = read_telemetry(files, run)
    assert found is not None
    assert {"host.utilisation", "host.memory_bytes"} <= {quantity.name for quantity in found.quantities}
    (path,) = files.telemetry_directory.iterdir()
    times = [json.loads(line)["wall_seconds"] for line in path.read_text().splitlines()]
    host = run.ranks[0].ready.host
    assert host not in path.name  # it may be published
    ((begin, end),) = HostClock(run, host).spans("")
    assert times[0] < begin < end < times[-1]
    assert sum(begin <= at <= end for at in times) >= 0.8 * run.span_seconds


def test_its_best_network_does_again_what_the_journal_says(complete: tuple[Path, str], typed: Typed) -> None:
    assert typed("validate", complete[0], "--reevaluate", "--device", "cpu") == 0, typed.out
    assert "agrees" in typed.out


@pytest.mark.parametrize("words", [("score",), ("resume",), ("run", *SHORT, "--resume", "--directory")])
def test_its_result_is_shown_again(words: tuple[str, ...], complete: tuple[Path, str], typed: Typed) -> None:
    """From the journal alone: by a command that reads it, and by those that would go on."""
    directory, output = complete
    before = RunFiles(directory).journal.read_bytes()
    assert typed(*words, directory) == 0
    assert typed.out in output
    note = (
        f"aiperf-hpc: the run in {directory} is complete; this is its result\n"
        f"Next: aiperf-hpc report {directory}\n"
    )
    assert typed.err == ("" if words == ("score",) else note)
    assert RunFiles(directory).journal.read_bytes() == before


def first_leg(directory: Path, *changes: tuple[str, object], **opened: object) -> RunFiles:
    """A run that was killed in its first leg, with another first line."""
    lines = journals.told(journals.Scene(killed_at=20.0, changes=changes))
    (second,) = (i for i, (_, e) in enumerate(lines) if isinstance(e, LegBegan) and e.index == 1)
    (t, first), *others = lines[:second]
    assert isinstance(first, Opened)
    return journals.write_run(directory, [(t, replace(first, **opened)), *others])  # type: ignore[arg-type]


def test_a_run_is_not_resumed_with_another_version_of_what_its_proposals_rest_on(tmp_path: Path) -> None:
    """`validate` would find the later proposals to be other ones, and call the run INVALID."""
    other = {"scikit-learn": "0.1", "numpy": "0.2"}
    files = first_leg(tmp_path / "run", ("search.name", "bayesian"), libraries=other)
    before = files.journal.read_bytes()
    with pytest.raises(JournalError, match=r"depend on scikit-learn 0\.1, numpy 0\.2; here it is"):
        resume(files, Ranks(RankOptions(device="cpu")), lambda replay, t: None)
    assert files.journal.read_bytes() == before


@pytest.mark.parametrize("edit", [("batch_size = 50", "batch_size = 100"), ("[training]", "[training")])
def test_a_run_whose_configuration_was_edited_is_not_resumed(edit: tuple[str, str], tmp_path: Path) -> None:
    """Nothing reads the file again: the change would be passed over."""
    files = first_leg(tmp_path / "run")
    before = files.journal.read_bytes()
    files.config.write_text(to_toml(told(files.directory).opened.config).replace(*edit))
    with pytest.raises(ConfigError, match=r"config\.toml"):
        resume(files, Ranks(RankOptions(device="cpu")), lambda replay, t: None)
    assert files.journal.read_bytes() == before


@pytest.mark.slow
@pytest.mark.usefixtures("short_control")
def test_ctrl_c_ends_a_run_with_its_result(typed: Typed, tmp_path: Path) -> None:
    directory = tmp_path / "interrupted"
    with begun(directory, minutes=10) as process:
        wait_for(directory, '"type":"Ended"')
        refused = typed("run", "--directory", directory, *QUICK)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert refused == 1
    assert "belongs to a run in progress" in typed.err
    assert process.returncode == 130
    assert "VALID, class smoke" in output
    run = told(directory)
    assert reason(run) == "interrupted"
    assert run.tested is not None


@pytest.mark.slow
@pytest.mark.usefixtures("short_control")
def test_a_failing_trial_ends_itself_and_three_that_fail_alike_the_run(tmp_path: Path) -> None:
    directory = tmp_path / "failing"
    words = ["--set", "training.learning_rate=1e9", "--set", "training.warmup=0.0", "--max-trials", "3"]
    answer = finished("run", "--directory", directory, "--minutes", 1, *QUICK, *words)
    assert answer.returncode == 3, answer.stderr
    reason = "rank 1 on .*: the loss is .*; lower training.learning_rate"
    line = f"NO RESULT: every trial fails for the same reason: {reason}; fix this, then start a new run"
    assert len(re.findall(f"^verdict +{line}$", answer.stdout, re.MULTILINE)) == 1
    assert "NO RESULT" not in answer.stderr
    assert [story.state for story in told(directory).trials.values()] == [State.FAILED] * 3


def test_a_run_killed_before_its_test_is_tested_by_resume(
    complete: tuple[Path, str], typed: Typed, tmp_path: Path
) -> None:
    directory = tmp_path / "untested"
    shutil.copytree(complete[0], directory)
    journal = RunFiles(directory).journal
    told_of_all = journal.read_bytes()
    cut = told_of_all.rindex(b"\n", 0, told_of_all.index(b'"type":"Tested"')) + 1  # a heartbeat may follow
    journal.write_bytes(told_of_all[:cut])
    assert typed("resume", directory, "--device", "cpu") == 0, typed.err
    run = told(directory)
    assert run.tested is not None
    assert run.span_seconds == pytest.approx(6, abs=0.1)
    verdict = judge(run, RunFiles(directory))
    assert verdict.valid, [finding for finding in verdict.findings if finding.outcome.value == "failed"]


@pytest.mark.slow
@pytest.mark.usefixtures("short_control")
def test_a_run_whose_workers_all_die_has_no_result(tmp_path: Path) -> None:
    """Each is started three times more."""
    directory = tmp_path / "lost"
    with begun(directory, minutes=10) as process:
        wait_for(directory, '"type":"Released"')
        dead = set[int]()
        while process.poll() is None:
            lines = JournalReader(RunFiles(directory).journal).new_lines()
            for ready in [event.ready for leg in replay(lines).legs for event in leg.ranks]:
                if ready.pid not in dead:
                    os.kill(ready.pid, signal.SIGKILL)
                    dead.add(ready.pid)
            time.sleep(0.2)
    assert process.returncode == 3
    cause = "NO RESULT: every group was lost; the first, group 0: the worker"
    for command, words in (("validate", ""), ("score", "verdict                 ")):
        answer = finished(command, directory)
        assert answer.returncode == 3
        assert f"\n{words}{cause}" in answer.stdout
