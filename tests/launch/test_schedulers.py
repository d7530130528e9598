"""The words of each scheduler's commands, how its answers are read, and its whole batch scripts."""

from __future__ import annotations

import json
import subprocess

import pytest

from aiperf.errors import ConfigError
from launch import FORMS, SCHEDULERS
from launch.job import Job
from launch.pbs import Pbs
from launch.scheduler import JobState, JobStates, Scheduler
from launch.script import script_text
from launch.site import Mpi, Site
from launch.slurm import SRUN
from tests.house.tree import ROOT
from tests.launch.golden import GOLDEN, HERE, SGE, SHIPPED, Golden

PENDING, RUNNING, GONE = JobState.PENDING, JobState.RUNNING, JobState.GONE


def test_all_wait_for_others_but_kubernetes() -> None:
    assert [each.name for each in SCHEDULERS.values() if not each.waits] == ["Kubernetes"]


SLURM_STATES = "CLUSTER: big\n1 PENDING\n2 RUNNING\n3 COMPLETED\n4 REQUEUE_HOLD\n5 CONFIGURING\n6 NODE_FAIL\n"
PBS_JOBS: dict[str, object] = {
    "1.s": {"job_state": "Q"},
    "2.s": {"job_state": "R"},
    "3.s": {"job_state": "F"},
}
PBS_JOBS |= {"4.s": {}, "5.s": 1}
MPIJOBS = (
    "a Created,Running\nb  Created,Succeeded\nc Created,Suspended\nd <none>\ne Created,Failed\nWarning: old\n"
)
LSF_RECORDS = [{"JOBID": "1", "STAT": "PEND"}, {"JOBID": "2", "STAT": "RUN"}, {"JOBID": "3", "STAT": "EXIT"}]
LSF_RECORDS += [{"JOBID": "4", "ERROR": "Job <4> is not found"}, {"STAT": "RUN"}]
QSTAT = """A notice
<?xml version='1.0'?>
<job_info  xmlns:xsd="http://site/schemas/qstat/qstat.xsd">
  <queue_info>
    <job_list state="running"><JB_job_number>2</JB_job_number><state>r</state><tasks>1</tasks></job_list>
    <job_list state="running"><JB_job_number>3</JB_job_number><state>s</state></job_list>
  </queue_info>
  <job_info>
    <job_list state="pending"><JB_job_number>1</JB_job_number><state>hqw</state></job_list>
    <job_list state="pending"><JB_job_number>2</JB_job_number><state>qw</state><tasks>2-5:1</tasks></job_list>
    <job_list state="zombie"><JB_job_number>4</JB_job_number><state>z</state></job_list>
    <job_list state="pending"><state>qw</state></job_list>
  </job_info>
</job_info>
bye"""
STATES = {
    "slurm": (
        SLURM_STATES,
        dict(zip("123456", (PENDING, RUNNING, GONE, PENDING, PENDING, GONE))),
        ("CLUSTER: big",),
    ),
    "pbs": (
        "A notice\n" + json.dumps({"Jobs": PBS_JOBS}),
        {"1.s": PENDING, "2.s": RUNNING, "3.s": GONE},
        ("4.s: {}", "5.s: 1"),
    ),
    "lsf": (
        json.dumps({"RECORDS": LSF_RECORDS}),
        {"1": PENDING, "2": RUNNING, "3": GONE, "4": GONE},
        ("{'STAT': 'RUN'}",),
    ),
    "sge": (QSTAT, {"1": PENDING, "2": RUNNING, "3": RUNNING, "4": GONE}, ("a job without a number",)),
    "kubernetes": (
        MPIJOBS,
        dict(zip("abcde", (RUNNING, GONE, PENDING, PENDING, GONE))),
        ("Warning: old",),
    ),
}
"""What `ask` prints, the states in it, and what is none."""


@pytest.mark.parametrize("scheduler", STATES)
def test_states(scheduler: str) -> None:
    answer, known, skipped = STATES[scheduler]
    assert SCHEDULERS[scheduler].states(answer) == JobStates(known, skipped)


@pytest.mark.parametrize(
    ("form", "resource", "created", "ended"),
    [
        ("no-mpi", "jobs.batch", "secret/a\nservice/a\njob.batch/a", "SuccessCriteriaMet,Complete"),
        (
            *("trainjob", "trainjobs.trainer.kubeflow.org"),
            *("trainingruntime.trainer.kubeflow.org/a\ntrainjob.trainer.kubeflow.org/a", "Complete"),
        ),
    ],
)
def test_a_job_of_kubernetes_alone_has_no_condition_until_it_ends(
    form: str, resource: str, created: str, ended: str
) -> None:
    kubernetes = FORMS["kubernetes"][form]
    assert kubernetes.submitted(created.replace("/a", "/a created")) == "a"
    assert resource in kubernetes.ask([])
    states = kubernetes.states(f"a <none>\nb Suspended\nc {ended}\nd Failed\n").known
    assert states == {"a": RUNNING, "b": PENDING, "c": GONE, "d": GONE}


def test_each_scheduler_has_answers_here_and_a_place_in_the_pages() -> None:
    assert STATES.keys() == SCHEDULERS.keys()
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (SHIPPED / "README.md").read_text(encoding="utf-8")
    for word, scheduler in SCHEDULERS.items():
        assert scheduler.name in front
        assert f"launch {word}" in page


@pytest.mark.parametrize("answer", ["", "qstat: cannot connect", '{"Jobs": {', "[]"])
@pytest.mark.parametrize(("scheduler", "form"), [("pbs", "JSON"), ("lsf", "JSON"), ("sge", "XML")])
def test_an_answer_without_states_is_no_absence_of_jobs(scheduler: str, form: str, answer: str) -> None:
    with pytest.raises(ValueError, match=rf"^not valid {form}: "):
        SCHEDULERS[scheduler].states(answer)


def test_srun_has_the_plugin_of_the_site() -> None:
    assert "--mpi=pmi2" in SRUN.ranks(Mpi(plugin="pmi2"))


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


@pytest.mark.parametrize(
    ("slots", "hosts", "environment", "code"),
    [(128, 2, "mpi", 0), (128, 3, "mpi", 1), (128, 1, "mpi", 1), (8, 2, "mpi", 1), (1, 1, "", 1)],
)
def test_slots_of_grid_engine_that_are_not_whole_nodes_end_the_job(
    slots: int, hosts: int, environment: str, code: int
) -> None:
    """Its parallel environment may spread them, or fill nodes of which other jobs have the rest. Without one,
    Grid Engine does not set $PE."""
    script = "\n".join(SCHEDULERS["sge"].cores(SGE))
    variables = {"NSLOTS": str(slots), "NHOSTS": str(hosts)} | ({"PE": environment} if environment else {})
    ran = subprocess.run(["bash", "-uc", script], env=variables, capture_output=True, text=True)
    told = (
        f"-pe {environment or '(none)'} gave {slots} slots on {hosts} nodes, not 64 on each; see qconf -spl\n"
    )
    assert (ran.returncode, ran.stderr) == (code, told * code)


@pytest.mark.parametrize(
    ("job", "seconds", "clock"),
    [
        (Job(1, 0.01), 1860, "00:31:00"),
        (Job(1, 48), 174600, "48:30:00"),
    ],
)
def test_a_job_asks_for_more_than_its_span(job: Job, seconds: int, clock: str) -> None:
    assert (job.limit_seconds, job.clock) == (seconds, clock)
