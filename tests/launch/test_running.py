"""What bash makes of a script, on a Slurm whose commands are stand-ins that write down what is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aiperf.errors import StoppedEarly
from aiperf.journal import events
from aiperf.tally import Classified
from aiperf.wire.messages import Evaluated
from launch import SCHEDULERS
from launch.job import Job
from launch.script import script_text
from launch.site import Container, Devices, Mpi, Scratch, Site
from nas.record import encode

SITE, JOB = Site(), Job(2, 1)
TWO_NODES = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_GPUS_PER_NODE": "2",
    "SLURM_JOB_CPUS_PER_NODE": "8(x2)",
    "SLURMD_NODENAME": "node1",
    "HOSTS": "node1 node2",
    "STILL_RUNNING": "17 7",
}
# `doctor` and `run` do what $DOCTOR and $RUN say; a run that says nothing is tested in the end.
PROGRAM = """#!/bin/bash
echo "aiperf-hpc $*" >>"$LOG"
command=$1
while (($#)); do
    [[ $1 == --directory ]] && directory=$2
    shift
done
last() { mkdir -p "$directory"; echo "$1" >>"$directory/journal.jsonl"; }
case $command in
doctor) eval "$DOCTOR" ;;
run) eval "${RUN:-last '$TESTED'}" ;;
esac
"""
SRUN = """#!/bin/bash
[[ $* == *arbitrary* ]] && { echo "srun $*"; uniq -c "$SLURM_HOSTFILE" | xargs; } >>"$LOG"
while [[ $1 == -* ]]; do shift; done
exec "$@"
"""
TORCHRUN = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
"$@" || exit 1
"""
RANK = """
import os, signal, sys, time
def stop(*_):
    with open(sys.argv[1], "a") as journal:
        print(os.environ["TERMINATED"], file=journal)
    sys.exit(75)
signal.signal(signal.SIGUSR1, stop)
for process in (os.getppid(), int(os.environ["SCRIPT"])):
    os.kill(process, signal.SIGUSR1)
time.sleep(30)
"""
SCONTROL = """#!/bin/bash
case $1 in
show)
    [[ $2 == node ]] && echo "   CoresPerSocket=5 Sockets=1 ThreadsPerCore=${THREADS:-1}"
    [[ $2 == job ]] && echo "   Requeue=1 Restarts=${RESTARTS:-0} BatchFlag=1"
    [[ $2 == hostnames ]] && printf '%s\\n' $HOSTS ;;
requeue) echo "requeue $2" >>"$LOG"; exit "${REQUEUE:-0}" ;;
esac
"""
SLEEP = "#!/bin/sh\n"
SQUEUE = "#!/bin/sh\n[ $3 = running ] && printf '%s\\n' $STILL_RUNNING\n"
TESTED, TERMINATED = (
    json.dumps({"t": 1.0, **encode(event)}, separators=(",", ":"))
    for event in (events.Tested(Evaluated(1, Classified(100, 90), 0.1)), events.LegEnded("terminated", 1.0))
)


@dataclass(frozen=True)
class Machine:
    """A folder to submit from, and commands that are found there."""

    folder: Path

    def run(
        self, site: Site = SITE, job: Job = JOB, drop: Iterable[str] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """What the script of a job prints, with these variables beside those of Slurm."""
        script = self.folder / "slurm_script"
        script.write_text(script_text(SCHEDULERS["slurm"], site, job), encoding="utf-8")
        environment = {
            **TWO_NODES,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "LOG": str(self.folder / "log"),
            "TESTED": TESTED,
            **variables,
        }
        for name in drop:
            del environment[name]
        return subprocess.run(
            ["bash", script], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60
        )

    @property
    def asked(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def asked_for(self, word: str) -> bool:
        return any(line.startswith(word) for line in self.asked)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bin").mkdir()
    commands = {"aiperf-hpc": PROGRAM, "srun": SRUN, "scontrol": SCONTROL, "squeue": SQUEUE, "sleep": SLEEP}
    for name, text in commands.items():
        (tmp_path / "bin" / name).write_text(text, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    return Machine(tmp_path)


def test_a_run_that_was_tested_is_done(machine: Machine) -> None:
    ran = machine.run()
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done: runs/aiperf-hpc-7\n", "")
    placed = [line for line in machine.asked if line.endswith("node2")]
    assert placed == ["3 node1 2 node2"] * 2
    assert "--ntasks=5 " in machine.asked[0]
    assert not machine.asked_for("requeue")


@pytest.mark.parametrize("options", [("--pretend", "h100"), ("--pretend=h100",), ()])
def test_the_verdict_simulated_is_done_where_it_was_asked_for(
    options: tuple[str, ...], machine: Machine
) -> None:
    ran = machine.run(job=replace(JOB, options=options), RUN=f"last '{TESTED}'; exit 4")
    assert ran.returncode == (0 if options else 4)
    assert ("done: " in ran.stdout) is bool(options)


def test_a_launcher_that_ends_well_without_a_result_is_not_believed(machine: Machine) -> None:
    """As srun does when Slurm takes the batch host away."""
    ran = machine.run(RUN='last \'{"type":"Beat"}\'')
    assert ran.returncode == 75
    assert "done" not in ran.stdout
    assert machine.asked_for("requeue 7")


def test_a_stopped_run_is_queued_again(machine: Machine) -> None:
    ran = machine.run(RUN=f"last '{TERMINATED}'; exit 75")
    assert (ran.returncode, ran.stdout) == (75, "stopped, to be continued: runs/aiperf-hpc-7\n")
    assert machine.asked_for("requeue 7")


@pytest.mark.parametrize(
    "variables", [{"REQUEUE": "1"}, {"SLURM_RESTART_COUNT": "20"}, {"STILL_RUNNING": "17"}]
)
def test_where_it_is_not_queued_again_it_says_how_to_go_on(
    variables: dict[str, str], machine: Machine
) -> None:
    """Slurm would take a job back that was cancelled."""
    ran = machine.run(RUN="exit 75", **variables)
    assert ran.returncode == 75
    assert "to go on: AIPERF_DIRECTORY=runs/aiperf-hpc-7 sbatch" in ran.stdout
    assert machine.asked_for("requeue") is ("REQUEUE" in variables)


@pytest.mark.parametrize(("before", "after", "again"), [("0", "1", True), ("2", "2", False)])
def test_a_job_that_slurm_queues_again_itself_is_not_to_be_submitted_as_well(
    before: str, after: str, again: bool, machine: Machine
) -> None:
    """As after `scontrol requeue`, or for a job of a higher priority."""
    variables = {"SLURM_RESTART_COUNT": before, "RESTARTS": after, "STILL_RUNNING": "17"}
    ran = machine.run(job=replace(JOB, directory="my runs/a"), RUN="exit 75", **variables)
    assert ran.returncode == 75
    told = "Slurm queues this job again itself; it goes on there"
    by_hand = "to go on: AIPERF_DIRECTORY=my\\ runs/a sbatch, with this script"
    assert ran.stdout.splitlines()[1:] == [told if again else by_hand]


def test_who_is_warned_while_doctor_looks_is_queued_again(machine: Machine) -> None:
    """$PPID of the stand-in is the script's: srun becomes the program."""
    ran = machine.run(DOCTOR="kill -USR1 $PPID; exit 1")
    assert ran.returncode == 75, ran.stderr
    assert machine.asked_for("requeue 7")
    assert not machine.asked_for("aiperf-hpc run"), "its time is over"


def test_a_doctor_that_fails_ends_the_job(machine: Machine) -> None:
    assert machine.run(DOCTOR="exit 1").returncode == 1
    assert not machine.asked_for("aiperf-hpc run")


def test_a_warning_reaches_the_run(machine: Machine) -> None:
    ran = machine.run(RUN="trap 'exit 75' USR1; kill -USR1 $PPID; while :; do /bin/sleep 0.1; done")
    assert ran.returncode == 75
    assert machine.asked_for("requeue 7")


@pytest.mark.parametrize("reason", ["terminated", f"error: {StoppedEarly('terminated')}"])
def test_a_warning_reaches_the_ranks_of_torchrun(reason: str, machine: Machine) -> None:
    """It would die of the warning itself, and turns every exit code into 1."""
    (machine.folder / "bin" / "torchrun").write_text(TORCHRUN, encoding="utf-8")
    (machine.folder / "bin" / "torchrun").chmod(0o755)
    (machine.folder / "rank.py").write_text(RANK, encoding="utf-8")
    site, job = replace(SITE, mpi=Mpi("torchrun"), setup=("export SCRIPT=$$",)), Job(1, 1)
    run = f'mkdir -p "$directory"; exec {sys.executable} rank.py "$directory/journal.jsonl"'
    ran = machine.run(site, job, RUN=run, TERMINATED=TERMINATED.replace("terminated", reason))
    assert ran.returncode == 75, ran.stderr
    assert machine.asked_for("requeue 7")
    ran = machine.run(site, job, RUN="exit 3")
    assert ran.returncode == 1, "it was not warned: what its journal said before is of the leg before"


def test_what_a_site_brings_may_read_variables_that_are_not_set(machine: Machine) -> None:
    """As Ascend's set_env.sh and activation scripts of conda do."""
    site = replace(SITE, setup=("export LD_LIBRARY_PATH=/opt/lib:$NEVER_SET",))
    assert machine.run(site).returncode == 0


def test_a_program_that_is_not_there_is_told_once(machine: Machine) -> None:
    (machine.folder / "bin" / "aiperf-hpc").unlink()
    ran = machine.run(PATH=f"{machine.folder / 'bin'}:/usr/bin:/bin")
    assert ran.returncode == 1
    assert ran.stderr == "there is no aiperf-hpc here; edit what stands below EDIT 3\n"
    ran = machine.run(replace(SITE, container=Container("x.sif", command="no-such-command")))
    assert ran.stderr == "there is no no-such-command here; edit what stands below EDIT 3\n"
    assert machine.asked == []


@pytest.mark.parametrize("modules", ["exit() { :; }; module() { return 1; }", ""])
def test_modules_that_cannot_be_loaded_end_the_job(modules: str, machine: Machine) -> None:
    site = replace(SITE, modules=("openmpi",))
    known = {"BASH_FUNC_module%%": "() { [[ $1 == purge ]]; }"} if modules else {}
    assert machine.run(site, **known).returncode == 1
    assert machine.asked == []


def test_modules_are_loaded(machine: Machine) -> None:
    known = {"BASH_FUNC_module%%": '() { echo "module $*" >>"$LOG"; }'}
    assert machine.run(replace(SITE, modules=("gcc/13", "openmpi")), **known).returncode == 0
    assert machine.asked[:2] == ["module purge", "module load gcc/13 openmpi"]


def test_devices_asked_for_by_another_option_are_counted(machine: Machine) -> None:
    """--gres=gpu:2 sets SLURM_GPUS_ON_NODE alone."""
    assert machine.run(drop=["SLURM_GPUS_PER_NODE"], SLURM_GPUS_ON_NODE="2").returncode == 0
    assert "3 node1 2 node2" in machine.asked
    assert machine.run(SLURM_GPUS_PER_NODE="a100:1").returncode == 0
    assert "2 node1 1 node2" in machine.asked


def test_without_devices_one_line_says_where_to_write_them(machine: Machine) -> None:
    ran = machine.run(drop=["SLURM_GPUS_PER_NODE"])
    assert ran.returncode != 0
    assert "request devices below EDIT 2, such as --gpus-per-node=1" in ran.stderr
    assert machine.asked == []


@pytest.mark.parametrize(
    ("asked", "devices"), [("npu:6", 6), ("npu:ascend910b:6", 6), ("npu:910b:6,nvme:1", 6), ("npu", None)]
)
def test_devices_of_another_kind_are_counted_in_the_script_itself(
    asked: str, devices: int | None, machine: Machine
) -> None:
    site = Site(devices=Devices(1, request="npu"))
    text = script_text(SCHEDULERS["slurm"], site, Job(1, 1)).replace("--gres=npu:1", f"--gres={asked}")
    lines = [line for line in text.splitlines() if line.startswith(("#SBATCH", "devices=", ": "))]
    script = machine.folder / "script"
    script.write_text("\n".join([*lines, "echo $devices"]), encoding="utf-8")
    shown = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    assert shown.stdout.strip() == ("" if devices is None else str(devices)), shown.stderr
    assert (shown.returncode == 0) is (devices is not None)


def test_a_folder_on_each_node_is_the_jobs_own_and_goes_with_it(machine: Machine) -> None:
    disk = machine.folder / "disk"
    disk.mkdir()
    (disk / "of another").touch()
    site = replace(SITE, scratch=Scratch(str(disk), 'touch "$scratch/images"'))
    ran = machine.run(site, RUN=f"ls {disk}/*/images >>\"$LOG\"; last '{TESTED}'")
    assert ran.returncode == 0, ran.stderr
    assert f"{disk}/aiperf-hpc-7/images" in machine.asked
    assert [path.name for path in disk.iterdir()] == ["of another"]


def test_a_study_s_run_is_in_its_own_directory_whatever_is_set(machine: Machine) -> None:
    directory = machine.folder / "o'neil's $HOME" / "run"
    ran = machine.run(job=Job(2, 1, directory=str(directory)), AIPERF_DIRECTORY="elsewhere")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (directory / "journal.jsonl").exists()
    assert not (machine.folder / "elsewhere").exists()


def test_a_warning_ends_weak_scaling_between_two_sizes(machine: Machine) -> None:
    job = Job(2, 1, sizes=(1, 2))
    ran = machine.run(job=job, DOCTOR="[[ -e runs/aiperf-hpc-7/1 ]] && kill -USR1 $PPID; exit 0")
    assert ran.returncode == 75, ran.stderr
    assert [line.split()[2:4] for line in machine.asked if line.startswith("aiperf-hpc run")] == [
        ["--resume", "--hours"]
    ]


@pytest.mark.parametrize(
    ("cpus", "threads", "cores"),
    [
        ("8(x2)", 1, 2),
        ("16,8", 1, 2),
        ("128(x3),96,128", 1, 32),
        ("10(x2)", 2, 2),
        ("24,12", 2, 4),
        ("64", 4, 20),
    ],
)
def test_a_rank_has_whole_cores_of_the_smallest_node(
    cpus: str, threads: int, cores: int, machine: Machine
) -> None:
    """With one core more, Slurm lets the step wait until the job's limit, or refuses it."""
    assert machine.run(SLURM_JOB_CPUS_PER_NODE=cpus, THREADS=str(threads)).returncode == 0
    assert f"--cpus-per-task={cores} " in machine.asked[0]


def test_too_few_cores_are_told(machine: Machine) -> None:
    ran = machine.run(SLURM_JOB_CPUS_PER_NODE="2(x2)")
    assert (ran.returncode, ran.stderr) == (1, "2 CPUs per node are too few for 3 ranks\n")
