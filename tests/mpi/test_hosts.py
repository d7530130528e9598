"""Hosts with names of their own: what they do not share, a cable that is pulled, and one of four that
dies."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from aiperf.score.fabric import is_known
from aiperf.wire.trial import State
from analysis.readings.run_tables import devices_and_hosts
from tests.mpi.checked import checked, finished, seen_by_witnesses
from tests.mpi.jobs import BEGUN_SECONDS, FAULT_TOLERANT, Job, endings, started, tiny, told
from tests.mpi.switch import as_root, joined_hosts

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900), as_root]

CUT_SECONDS, SILENCE_SECONDS = 20.0, 30.0
EPOCHS = 40  # of a trial beside a cable that is pulled
MEASURE = "aiperf.measuring.fabric:measure"
"""The function of a process that measures the fabric, in its command line."""


@pytest.mark.slow
def test_weights_travel_between_hosts_that_share_no_directory(tmp_path: Path) -> None:
    """Before the span a cable is pulled in the coupled control, which costs that figure only."""
    runs = tmp_path / "runs"
    runs.mkdir()
    directory = runs / "run"
    words, output = tiny(directory, 0, "--max-trials", 16), tmp_path / "job.out"
    with joined_hosts(tmp_path, hidden=runs) as hosts, started(hosts.run(*words), directory, output) as job:
        measuring = both_in_the_coupled_control(job)
        hosts.switch.cut("beta")
        psutil.wait_procs(measuring, 2 * BEGUN_SECONDS)
        hosts.switch.repair("beta")
        replay = finished(job)
        text = job.text()
    fabric = replay.leg.fabric
    assert is_known(fabric)
    unknown = r"alpha: rank 1, .*: no answer in 10 s; beta: rank 2, .*: no answer in 10 s"
    assert re.fullmatch(unknown, fabric.coupled.reason)
    assert re.search(r"^coupled +unknown \(alpha: ", text, re.MULTILINE)
    sent = "weights, and at the end rank logs, are sent as messages"
    assert f"{directory} is not shared with beta: {sent}" in text
    (log,) = (tmp_path / "beta/run/logs").glob("*.rank2.steps.jsonl")
    assert (directory / "logs" / log.name).read_bytes() == log.read_bytes(), "it was handed over at the end"
    same = "2 rank logs agree with the journal and with the hash of each validation; none missing"
    assert seen_by_witnesses(directory) == same
    hosts_of = sorted((event.ready.rank, event.ready.host) for event in replay.ranks)
    assert hosts_of == [(1, "alpha"), (2, "beta")]
    # A child on one host of a parent on the other: its weights went over MPI.
    groups = {attempt.trial.number: attempt.group for attempt in replay.attempts}
    trained = [each for each in replay.attempts if each.state is State.COMPLETE]
    assert any(groups.get(each.trial.parent, each.group) != each.group for each in trained)
    assert not list((tmp_path / "beta/run/weights").glob("*")), (
        "what was sent, and parents without children, do not stay there"
    )


def both_in_the_coupled_control(job: Job) -> list[psutil.Process]:
    """The processes that measure the fabric, as soon as two of them make steps of the coupled control."""
    until, found = time.monotonic() + BEGUN_SECONDS, list[psutil.Process]()
    while len(found) < 2 or not all(" step" in coupled_part(each) for each in found):
        assert time.monotonic() < until, job.text()
        time.sleep(0.02)
        with suppress(psutil.NoSuchProcess):  # one that has ended: look again
            if len(found) < 2:
                found = [each for each in job.processes() if MEASURE in each.cmdline()]
    return found


def coupled_part(process: psutil.Process) -> str:
    """What the process does next of the coupled control, as it has written for its rank."""
    words = process.cmdline()
    number = words[words.index(MEASURE) + 1]
    part = json.loads(Path(f"/proc/{process.pid}/fd/{number}").read_text(encoding="utf-8"))
    return str((part.get("coupled") or {}).get("reason", ""))


def steps_of_beta(directory: Path) -> int:
    """Steps of the group on the second host that the master knows of."""
    return sum(attempt.steps for attempt in told(directory).attempts if attempt.group == 1)


def beta_is_training(directory: Path) -> bool:
    """Whether it trains and goes on for some seconds: before a trial's first step, a longer silence is
    allowed."""
    newest = [each for each in told(directory).attempts if each.group == 1 and each.began is not None][-1]
    return newest.ended is None and 0 < len(newest.validations) < EPOCHS / 2


@pytest.mark.slow
def test_a_cut_of_20_seconds_costs_nothing_and_one_for_good_costs_the_group(
    directory: Path, tmp_path: Path
) -> None:
    more = ("--silence-seconds", SILENCE_SECONDS, "--set", f"training.epochs=[{EPOCHS}]")
    with joined_hosts(tmp_path) as hosts, started(hosts.run(*tiny(directory, 1.75, *more)), directory) as job:
        job.wait_for('"Closed"', count=4)
        before = steps_of_beta(directory)
        hosts.switch.cut("beta")
        time.sleep(CUT_SECONDS)
        assert steps_of_beta(directory) <= before + 100, "what was on its way"
        hosts.switch.repair("beta")
        repaired = time.monotonic()
        while steps_of_beta(directory) <= before + 100 or not beta_is_training(directory):
            assert time.monotonic() < repaired + 30, job.text()
            time.sleep(0.2)
        assert '"GroupLost"' not in job.journal()
        hosts.switch.cut("beta")
        cut = time.monotonic()
        noticed = job.wait_for('"GroupLost"', 3 * SILENCE_SECONDS) - cut
        job.end()
        text = job.text()
        print(text)
    replay = checked(directory)
    (loss,) = replay.leg.losses
    assert loss.group == 1
    assert loss.reason.startswith("was silent for ")
    assert noticed < SILENCE_SECONDS + 10
    assert " VALID, class smoke" in text
    assert endings(replay) == ["deadline"]
    assert replay.tested is not None


def test_a_killed_host_costs_the_groups_on_it_and_no_more(directory: Path, tmp_path: Path) -> None:
    words = tiny(directory, 0.25, "--devices-per-trial", 2, "--spread")
    with (
        joined_hosts(tmp_path, 4) as hosts,
        started(hosts.run(*words, options=FAULT_TOLERANT), directory) as job,
    ):
        job.wait_for('"Closed"', count=2)
        hosts.kill("beta")
        job.wait_for('"GroupLost"', 10.0)
        job.end()
        assert " VALID, class smoke" in job.text()
    replay = checked(directory)
    assert replay.leg.began.groups == ((1, 3), (2, 4)), "hosts at half of the width"
    assert devices_and_hosts(replay).endswith(" on 4 hosts, each group over 2 of them")
    (loss,) = replay.leg.losses
    assert (loss.group, loss.reason.partition(" is ")[2]) == (1, "dead")
    kept = [each for each in replay.attempts if each.group == 0]
    assert any(each.validations and each.validations[-1].end > replay.leg.end - 5 for each in kept)
