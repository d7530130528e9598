"""A real Slurm for the tests of this folder: its nodes, its jobs, and what becomes of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from tests.house.tree import ROOT
from tests.mpi.jobs import QUICK, told
from tests.packaging.recipes import said

SCRIPT = Path(__file__).parent / "cluster.sh"
BIN = Path(sys.executable).parent
WAIT_SECONDS = 400.0  # for one thing to happen, on a machine with other things to do
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL")


@dataclass(frozen=True)
class Cluster:
    """One that runs; commands and jobs are started in `work`."""

    work: Path
    environment: Mapping[str, str]

    def run(self, *words: object) -> str:
        """What a command prints. Fails with what it said."""
        return said(*words, cwd=self.work, environment=self.environment, seconds=300)

    def lose(self, node: str) -> None:
        """Its jobs end at once, as far as Slurm goes; the node serves again by its administrator's word."""
        self.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")

    def restore(self) -> None:
        """No job, and every node idle."""
        self.run("scancel", "--me")
        until = time.monotonic() + WAIT_SECONDS
        while left := [line.split() for line in self.run("sinfo", "-hN", "-o", "%n %T").splitlines()]:
            if all(state == "idle" for _, state in left) and not self.run("squeue", "-h"):
                return
            for node, state in left:
                if state.startswith("down"):
                    self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
            assert time.monotonic() < until, f"{left}; {self.run('squeue')}"
            time.sleep(0.5)

    def aiperf(self, *words: object) -> str:
        return self.run(BIN / "aiperf-hpc", *words)

    def submit(self, script: Path, *words: object) -> Job:
        return Job(self, self.run("sbatch", "--parsable", script, *words).strip())

    def edited(self, name: str, nodes: int, devices: int) -> Path:
        """A shipped script, changed below its three marks and nowhere else."""
        lines = (ROOT / "slurm" / name).read_text(encoding="utf-8").splitlines()
        size = f"#SBATCH --nodes={nodes} --gpus-per-node={devices} --time=00:30:00"
        below = {"1": "#SBATCH --partition=main", "2": size, "3": f'export PATH="{BIN}:$PATH"'}
        for number, line in enumerate(lines):
            if mark := re.match(r"# EDIT (\d)", line):
                lines[number + 1] = below.pop(mark[1])
        assert not below
        path = self.work / f"{nodes}x{devices}-{name}"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


@dataclass(frozen=True)
class Job:
    """A job, and the run in its directory."""

    cluster: Cluster
    id: str

    @property
    def directory(self) -> Path:
        return self.cluster.work / "runs" / f"aiperf-hpc-{self.id}"

    @property
    def output(self) -> str:
        path = self.cluster.work / f"aiperf-hpc-{self.id}.out"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def told(self) -> Replay:
        return told(self.directory)

    def field(self, name: str) -> str:
        """The value of a field in the output of `scontrol show job`."""
        told = self.cluster.run("scontrol", "--oneliner", "show", "job", self.id)
        found = re.search(rf"\b{name}=(\S*)", told)
        assert found is not None, told
        return found[1]

    def told_so_far(self) -> str:
        """The output of Slurm and of the job, to find out why it waits."""
        nodes = self.cluster.run("sinfo", "-hN", "-o", "%n %T %E")
        log = (self.cluster.work / "slurm/log/slurmctld.log").read_text(encoding="utf-8", errors="replace")
        job = self.cluster.run("scontrol", "show", "job", self.id)
        return "\n".join([self.output, job, nodes, *log.splitlines()[-30:]])

    def wait_for(self, words: str, count: int = 1) -> None:
        """Waits until these words are in the journal `count` times. Fails if the job ends before."""
        journal, until = RunFiles(self.directory).journal, time.monotonic() + WAIT_SECONDS
        while not journal.exists() or journal.read_text(encoding="utf-8").count(words) < count:
            assert time.monotonic() < until, f"no {words}; {self.told_so_far()}"
            assert self.field("JobState") not in ENDED, f"it ended before {words}; {self.told_so_far()}"
            time.sleep(0.5)

    def wait_for_state(self, *states: str) -> str:
        until, hastened = time.monotonic() + WAIT_SECONDS, False
        while (state := self.field("JobState")) not in (states or ENDED):
            assert time.monotonic() < until, f"{state}, never {states}; {self.told_so_far()}"
            waits = state == "PENDING" and self.field("Reason") == "BeginTime"
            if waits and not hastened:  # for two minutes, because it was requeued
                # Not at once: a node refuses a credential of the second in which it revoked the last one.
                self.cluster.run("scontrol", "update", f"JobId={self.id}", "StartTime=now+3seconds")
            hastened = state == "PENDING" and (hastened or waits)
            time.sleep(0.5)
        return state

    def end(self) -> str:
        """Its last state."""
        return self.wait_for_state()


@contextmanager
def cluster_of(nodes: int, work: Path, tracking: str = "linuxproc") -> Iterator[Cluster]:
    """A Slurm of this many nodes, of which nothing is left afterwards."""
    home = work / "slurm"
    began = time.monotonic()
    start = [SCRIPT, "start", home, str(nodes), tracking]
    started = subprocess.run(start, capture_output=True, text=True, timeout=120)
    assert started.returncode == 0, f"{started.stdout}{started.stderr}; try: {SCRIPT} install"
    print(f"{nodes} idle nodes in {time.monotonic() - began:.1f} s")
    environment = os.environ | {
        "SLURM_CONF": str(home / "slurm.conf"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(QUICK)]),
        "OMP_NUM_THREADS": "1",
        "AIPERF_DOCTOR_SECONDS": "400",
    }
    try:
        yield Cluster(work, environment)
    finally:
        subprocess.run([SCRIPT, "stop", home], check=True, timeout=120)
