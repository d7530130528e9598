"""What bash makes of a script, on a Slurm whose commands are stand-ins that write down what is asked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import StoppedEarly
from aiperf.journal import events
from aiperf.tasks.images.tally import Classified
from aiperf.wire.reports import Evaluated
from launch import SCHEDULERS
from launch.job import Job
from launch.script import script_text
from launch.site import Container, Devices, Mpi, Scratch, Site
from nas.record import encode
from tests.launch.stand_ins import install
from tests.tables import ComesTo

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


def made(folder: Path) -> Machine:
    commands = {"aiperf-hpc": PROGRAM, "srun": SRUN, "scontrol": SCONTROL, "squeue": SQUEUE, "sleep": SLEEP}
    install(folder / "bin", commands)
    return Machine(folder)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return made(tmp_path)


SIMULATED = f"last '{TESTED}'; exit 4"
MINE = {"job": replace(JOB, directory="my runs/a"), "RUN": "exit 75", "STILL_RUNNING": "17"}
ARRAY = {"job": replace(JOB, repeat=3), "SLURM_ARRAY_JOB_ID": "5"}
MODULES = replace(SITE, modules=("gcc/13", "openmpi"))
NO_PROGRAM = replace(SITE, container=Container("x.sif", command="no-such-command"))


def test_how_a_job_ends(tmp_path: Path, comes_to_what_was_read: ComesTo) -> None:
    """Its exit code, what it does, and what it prints."""

    def ending(**given: Any) -> tuple[int, list[str], list[str]]:
        machine = made(Path(tempfile.mkdtemp(dir=tmp_path)))
        ran = machine.run(**given)
        asked = [" ".join(line.split()[:2]) for line in machine.asked]
        done = [line for line in asked if line.startswith(("aiperf-hpc", "requeue", "module"))]
        shown = re.sub(r"^.*slurm_script: line \d+: ", "", ran.stdout + ran.stderr, flags=re.MULTILINE)
        return ran.returncode, done, shown.splitlines()

    comes_to_what_was_read("ends.txt", {**globals(), "ending": ending})


@pytest.mark.parametrize("reason", ["terminated", f"error: {StoppedEarly('terminated')}"])
def test_a_warning_reaches_the_ranks_of_torchrun(reason: str, machine: Machine) -> None:
    """It would die of the warning itself, and turns every exit code into 1."""
    install(machine.folder / "bin", {"torchrun": TORCHRUN})
    (machine.folder / "rank.py").write_text(RANK, encoding="utf-8")
    site, job = replace(SITE, mpi=Mpi("torchrun"), setup=("export SCRIPT=$$",)), Job(1, 1)
    run = f'mkdir -p "$directory"; exec {sys.executable} rank.py "$directory/journal.jsonl"'
    ran = machine.run(site, job, RUN=run, TERMINATED=TERMINATED.replace("terminated", reason))
    assert ran.returncode == 75, ran.stderr
    assert "requeue 7" in machine.asked
    ran = machine.run(site, job, RUN="exit 3")
    assert ran.returncode == 1, "it was not warned: what its journal said before is of the leg before"


def test_devices_asked_for_by_any_option_have_ranks_with_whole_cores_of_the_smallest_node(
    tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    """With one core more, Slurm lets the step wait until the job's limit, or refuses it. Devices of another
    kind are counted by the script itself."""

    def placed(**given: Any) -> tuple[list[str], list[str]]:
        """Ranks of each node in both steps, and cores of a rank."""
        machine = made(Path(tempfile.mkdtemp(dir=tmp_path)))
        assert machine.run(**given).returncode == 0
        ranks = [line for line in machine.asked if line.endswith("node2")]
        return ranks, re.findall(r"--cpus-per-task=(\d+) ", machine.asked[0])

    def counted(asked: str) -> tuple[str, bool]:
        """Devices, and whether the script goes on."""
        text = script_text(SCHEDULERS["slurm"], Site(devices=Devices(1, request="npu")), Job(1, 1))
        text = text.replace("--gres=npu:1", f"--gres={asked}")
        lines = [line for line in text.splitlines() if line.startswith(("#SBATCH", "devices=", ": "))]
        script = tmp_path / "script"
        script.write_text("\n".join([*lines, "echo $devices"]), encoding="utf-8")
        shown = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
        return shown.stdout.strip(), shown.returncode == 0

    comes_to_what_was_read("placed.txt", {"placed": placed, "counted": counted})


def test_a_folder_on_each_node_is_the_jobs_own_and_goes_with_it(machine: Machine) -> None:
    disk = machine.folder / "disk"
    disk.mkdir()
    (disk / "of another").touch()
    site = replace(SITE, scratch=Scratch(str(disk), 'touch "$scratch/images"'))
    ran = machine.run(site, RUN=f"ls {disk}/*/images >>\"$LOG\"; last '{TESTED}'")
    assert ran.returncode == 0, ran.stderr
    assert f"{disk}/aiperf-hpc-7/images" in machine.asked
    assert [path.name for path in disk.iterdir()] == ["of another"]


@pytest.mark.parametrize("planted", ["link", "dangling", "file"])
def test_a_planted_folder_on_a_node_ends_the_job_and_nothing_outside_is_touched(
    planted: str, machine: Machine
) -> None:
    disk, outside = machine.folder / "disk", machine.folder / "outside"
    disk.mkdir()
    outside.mkdir()
    (outside / "precious").touch()
    scratch = disk / "aiperf-hpc-7"
    scratch.touch() if planted == "file" else scratch.symlink_to(outside if planted == "link" else "nowhere")
    ran = machine.run(replace(SITE, scratch=Scratch(str(disk), 'touch "$scratch/images"')))
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].endswith(
        f"{scratch} does not belong to this user; set scratch.directory"
    )
    assert [path.name for path in outside.iterdir()] == ["precious"]


def test_a_study_s_run_is_in_its_own_directory_whatever_is_set(machine: Machine) -> None:
    directory = machine.folder / "o'neil's $HOME" / "run"
    ran = machine.run(job=Job(2, 1, directory=str(directory)), AIPERF_DIRECTORY="elsewhere")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (directory / "journal.jsonl").exists()
    assert not (machine.folder / "elsewhere").exists()
