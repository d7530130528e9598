"""The words of each scheduler's commands, how its answers are read, its whole batch scripts, and the job
around a process."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from aiperf.errors import ConfigError
from launch import FORMS, SCHEDULERS
from launch.current_job import job_name, job_seconds_left
from launch.job import Job
from launch.pbs import Pbs
from launch.scheduler import Scheduler
from launch.script import script_text
from launch.site import Mpi, Site
from tests.house.tree import ROOT
from tests.launch.golden import GOLDEN, HERE, SGE, SHIPPED, Golden
from tests.launch.stand_ins import install
from tests.tables import ComesTo

QSTAT, RUNNING, OPENPBS, TORQUE = (
    (Path(__file__).parent / "answers" / name).read_text(encoding="utf-8")
    for name in ("qstat.xml", "qstat_running.xml", "openpbs.txt", "torque.txt")
)
"""What schedulers print; the last three with gaps for a beginning, a limit and a task."""


def test_all_wait_for_others_but_kubernetes() -> None:
    assert [each.name for each in SCHEDULERS.values() if not each.waits] == ["Kubernetes"]


def test_states(comes_to_what_was_read: ComesTo) -> None:
    """The state of each job in an answer; behind them, what is no state of a job."""
    answered = set[str]()

    def states(word: str, answer: str, form: str = "") -> tuple[dict[str, str], tuple[str, ...]]:
        answered.add(word)
        found = (FORMS[word][form] if form else SCHEDULERS[word]).states(answer)
        return {job: state.name for job, state in found.known.items()}, found.skipped

    comes_to_what_was_read("states.txt", {"states": states, "QSTAT": QSTAT})
    assert answered == SCHEDULERS.keys()


def test_each_scheduler_has_a_place_in_the_pages() -> None:
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (SHIPPED / "README.md").read_text(encoding="utf-8")
    for word, scheduler in SCHEDULERS.items():
        assert scheduler.name in front
        assert f"launch {word}" in page


@pytest.mark.parametrize("golden", GOLDEN, ids=[golden.path.name for golden in GOLDEN])
def test_a_script_is_what_a_person_has_read_and_bash_can_read_it(golden: Golden) -> None:
    assert golden.text == golden.path.read_text(encoding="utf-8")
    checked = subprocess.run(["bash", "-n", golden.path], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_no_script_lies_there_unread() -> None:
    there = {
        path for folder in (HERE, SHIPPED) for path in folder.iterdir() if path.suffix not in (".md", ".def")
    }
    assert there == {golden.path for golden in GOLDEN}
    assert {golden.scheduler for golden in GOLDEN} == {*SCHEDULERS}


def test_repeats_need_arrays() -> None:
    class WithoutArrays(Pbs):
        element = array_id = ""

    site = Site(mpi=Mpi("mpiexec"))
    assert "ARRAY" not in script_text(WithoutArrays(), site, Job(2, 1))
    with pytest.raises(ConfigError, match="--repeats is 3, but PBS has no arrays of jobs; submit one job"):
        script_text(WithoutArrays(), site, Job(2, 1, repeat=3))


def test_a_scheduler_that_lacks_something_is_refused_by_name_when_its_file_is_imported() -> None:
    with pytest.raises(TypeError) as refused:
        type("Flux", (Scheduler,), {"__module__": "launch.flux", "name": "Flux", "mark": "#flux:"})
    assert str(refused.value) == (
        "the scheduler Flux (launch.flux) lacks title, ending, account, partition, job_id, hosts, nodes, "
        "running, pending, ask, options, seconds_left, states, submit, submitted; launch/scheduler.py says "
        "what they are"
    )


def test_slots_of_grid_engine_that_are_not_whole_nodes_end_the_job(comes_to_what_was_read: ComesTo) -> None:
    """Its parallel environment may spread them, or fill nodes of which other jobs have the rest. Without one,
    Grid Engine does not set $PE."""
    script = "\n".join(SCHEDULERS["sge"].cores(SGE))

    def given(**variables: str) -> tuple[int, str]:
        ran = subprocess.run(["bash", "-uc", script], env=variables, capture_output=True, text=True)
        return ran.returncode, ran.stderr

    comes_to_what_was_read("slots.txt", {"given": given})


@pytest.mark.parametrize("job", ["", " ", "\udcff", "7.head", "-5", "9" * 5000])
@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
def test_an_odd_job_id_is_shown_and_an_empty_one_is_none(
    scheduler: Scheduler, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    environment = {scheduler.job_id: job, scheduler.element: job}
    name = job.strip().replace("\udcff", "\ufffd")
    assert job_name(environment) == (f"{scheduler.name} {name}" if name else "")
    assert job_seconds_left(environment, 0.0) is None


def test_the_seconds_that_a_job_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """What a scheduler states, or else its command prints; behind them, what the command was asked."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    asked = tmp_path / "asked"

    def left(environment: dict[str, str], command: str = "", answer: str = "", now: float = 0.0) -> object:
        asked.write_text("")
        install(tmp_path, dict.fromkeys(("squeue", "qstat", "bjobs"), "#!/bin/sh\nexit 1\n"))
        if command:
            install(tmp_path, {command: f'#!/bin/sh\necho "$@" > {asked}\ncat {tmp_path}/answer\n'})
        (tmp_path / "answer").write_text(answer, encoding="utf-8")
        return job_seconds_left(environment, now), asked.read_text().strip()

    names = {**vars(time), **globals(), "left": left, "AT": 1_800_000_000.0}
    comes_to_what_was_read("seconds_left.txt", names)
