"""A profile of one rank and of two, in processes of their own; what keeps one from its steps is one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from aiperf.profiling import local_ranks, rank_process
from aiperf.profiling.local_ranks import profile_locally
from aiperf.profiling.work import ANSWER, MEETING, WORK, ProfileWork
from aiperf.wire.profile_records import Ceilings, Recorded
from analysis.readings.profile import Profile
from analysis.readings.profile_spans import BESIDE
from nas.record import decode, encode
from tests.aiperf.profiling.test_step_memory import BATCH, IMAGES, TEXT, work_of
from tests.launch.stand_ins import install
from tests.tables import ComesTo

pytestmark = pytest.mark.torch
CEILINGS = Ceilings(1e11, 1e10)
PASSES = {"load", "forward", "loss", "backward", "optimizer", "between phases"}


def test_a_group_of_two_waits_for_its_all_reduce(tmp_path: Path) -> None:
    work = replace(work_of(IMAGES, ranks=2), ceilings=CEILINGS, trace=True)
    found = Profile.of(profile_locally(work, tmp_path))
    assert (found.recorded.ranks, found.recorded.examples) == (2, BATCH)
    phases = {part.name: part.seconds for part in found.phases}
    # Gloo's thread ends its event a moment after the backward pass goes on, on a busy host in a later phase.
    assert {name.removesuffix(BESIDE) for name in phases} == PASSES | {"all-reduce"}
    assert sum(phases.values()) == pytest.approx(found.step_seconds)
    assert found.stopwatch_share == pytest.approx(1, abs=0.02)
    assert found.slowdown > 0
    assert '"gloo:all_reduce"' in (tmp_path / found.recorded.trace).read_text()


def in_this_process(work: ProfileWork, directory: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """What the process of the only rank does."""
    (directory / WORK).write_text(json.dumps(encode(work)), encoding="utf-8")
    monkeypatch.setattr(rank_process, "die_with_parent", lambda: None)
    monkeypatch.setattr(rank_process, "CEILING_SECONDS", 0.02)
    monkeypatch.setattr(sys, "argv", ["rank_process", str(directory), "0"])
    return rank_process.main()


def test_one_rank_of_text_measures_its_ceilings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_this_process(work_of(TEXT), tmp_path, monkeypatch) == 0
    answer = json.loads((tmp_path / ANSWER.format(0)).read_text(encoding="utf-8"))
    found = Profile.of(decode(Recorded, answer["recorded"]))
    assert {part.name for part in found.phases} == PASSES
    assert found.recorded.trace == ""
    assert found.limits is not None
    nodes = {node.name: node for node in found.nodes}
    times = nodes["block1.attention"].times_roofline
    assert times is not None
    assert times > 0
    assert found.recorded.predicted is not None


def test_a_batch_that_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_this_process(work_of(IMAGES, examples=1 << 30), tmp_path, monkeypatch) == 1
    said = local_ranks._reason(tmp_path, 0, 1)
    assert re.match(r"a step of 1073741824 images needs about .* use a smaller --batch", said)


def test_what_keeps_a_profile_from_its_steps_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """A batch that ranks cannot share; a process that dies, for which a script stands."""

    def shared(batch: int, ranks: int) -> None:
        work = work_of(IMAGES)
        replace(work, ranks=ranks, hyper=replace(work.hyper, batch_size=batch))

    def ends(end: str) -> None:
        install(tmp_path, {"program": f"#!/bin/sh\necho first\necho last words\necho\n{end}\n"})
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", str(tmp_path / "program"))
            profile_locally(work_of(IMAGES), tmp_path)

    comes_to_what_was_read("refused_profiles.txt", {"shared": shared, "ends": ends})


def test_no_rank_outlives_the_command(tmp_path: Path) -> None:
    """However that ends. The first of two ranks waits here for another one, which is never started."""
    (tmp_path / WORK).write_text(json.dumps(encode(work_of(IMAGES, ranks=2))), encoding="utf-8")
    program = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    first = [sys.executable, "-m", "aiperf.profiling.rank_process", str(tmp_path), "0"]
    command = subprocess.Popen([sys.executable, "-c", program, *first])
    try:
        while not (tmp_path / MEETING).exists():
            assert command.poll() is None
            time.sleep(0.05)
        (waiting,) = psutil.Process(command.pid).children()
    finally:
        command.kill()
        command.wait()
    _, alive = psutil.wait_procs([waiting], timeout=30)
    for one in alive:
        one.kill()
    assert alive == []
