"""The batch scripts that a person has read, and the sites and jobs that they are for.

`python -m tests.launch.golden` writes them again; read what changed before it is committed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from launch import FORMS, SCHEDULERS
from launch.job import Job
from launch.script import script_text, table_text
from launch.site import Container, Devices, Mpi, Pods, Queue, Scratch, Site
from tests.house.tree import ROOT

SHIPPED = ROOT / "slurm"
HERE = Path(__file__).parent / "golden"

ACTIVATE = 'source "$HOME/aiperf-hpc/.venv/bin/activate"'
SITE = Site(Queue("ACCOUNT", "PARTITION"), Devices(per_node=8), setup=(ACTIVATE,))
ASCEND = replace(
    SITE,
    devices=Devices(per_node=8, request="npu"),
    setup=("source /usr/local/Ascend/ascend-toolkit/set_env.sh", ACTIVATE),
    # Seconds that ranks wait for each other's first connection; large jobs come one after another.
    environment={"HCCL_CONNECT_TIMEOUT": "1200"},
)
CONTAINER = replace(
    SITE, setup=(), container=Container(image="aiperf-hpc.sif", options=("--nv", "--bind", '"$PWD"'))
)
FULL = Site(
    Queue("physics", "gpu", ("--constraint=h100", "--qos=long")),
    Devices(per_node=4, cores_per_node=128),
    Mpi("mpiexec", options=("--with-ft ulfm",)),
    scratch=Scratch("/local/$USER", 'tar -xf /data/imagenet.tar -C "$scratch"'),
    modules=("gcc/13", "openmpi/5.0"),
    setup=("source ~/venv/bin/activate",),
    environment={"NCCL_SOCKET_IFNAME": "hsn0", "NAME": "with a space"},
    doctor_seconds=300.0,
)
PBS = Site(
    Queue("physics", "gpuq"),
    Devices(per_node=4, cores_per_node=64),
    Mpi("mpiexec"),
    modules=("openmpi",),
    setup=("source ~/venv/bin/activate",),
)
LSF = replace(PBS, mpi=Mpi("mpirun"), scratch=Scratch("/tmp", 'cp -r /data/set "$scratch"'))
SGE = replace(
    PBS, queue=Queue("physics", "gpu.q", parallel_environment="mpi"), devices=Devices(4, "none", 64)
)
KUBERNETES = Site(
    Queue(partition="team-queue"),
    Devices(per_node=8, cores_per_node=96),
    Mpi("mpiexec", options=("--with-ft ulfm",)),
    kubernetes=Pods("registry.example.org/aiperf-hpc:0.1", "aiperf-data", rdma="rdma/hca_shared_devices_a"),
    environment={"NCCL_IB_HCA": "mlx5", "NAME": 'with "quotes"'},
)
PLAIN_PODS = Site(
    devices=Devices(request="none"), mpi=Mpi("mpiexec"), kubernetes=Pods("aiperf-hpc:0.1", "data", "/data")
)
TORCHRUN = replace(SITE, mpi=Mpi("torchrun"))

SYNTHETIC = ("--preset", "synthetic")
RANKED = ("--preset", "ranked", "--data", "/data/image net")
SECRET = "known-to-the-ranks-of-this-run-alone"


@dataclass(frozen=True)
class Golden:
    """One script: where it lies, and what it was made from."""

    path: Path
    scheduler: str
    site: Site
    job: Job
    form: str = ""

    @property
    def text(self) -> str:
        scheduler = FORMS[self.scheduler][self.form] if self.form else SCHEDULERS[self.scheduler]
        if not self.job.alone:
            return table_text(scheduler, self.site, self.job, Path("/work/study"))
        return script_text(scheduler, self.site, self.job)


GOLDEN = (
    Golden(SHIPPED / "one_node.sbatch", "slurm", SITE, Job(1, 1, options=SYNTHETIC)),
    Golden(SHIPPED / "multi_node.sbatch", "slurm", SITE, Job(4, 1, options=SYNTHETIC)),
    Golden(SHIPPED / "weak_scaling.sbatch", "slurm", SITE, Job(4, 0.25, options=SYNTHETIC, sizes=(1, 2, 4))),
    Golden(SHIPPED / "ascend.sbatch", "slurm", ASCEND, Job(2, 1, options=SYNTHETIC)),
    Golden(SHIPPED / "container.sbatch", "slurm", CONTAINER, Job(4, 1, options=SYNTHETIC)),
    Golden(HERE / "full.sbatch", "slurm", FULL, Job(64, 1.5, "spread", RANKED, repeat=5, ranked=True)),
    Golden(HERE / "torchrun.sbatch", "slurm", TORCHRUN, Job(1, 0.5)),
    Golden(HERE / "table.sbatch", "slurm", SITE, Job(1, 0, "study-table", alone=False)),
    Golden(HERE / "one_node.pbs", "pbs", PBS, Job(1, 1, options=SYNTHETIC)),
    Golden(HERE / "multi_node.pbs", "pbs", PBS, Job(8, 1, options=RANKED)),
    Golden(HERE / "repeated.pbs", "pbs", PBS, Job(2, 1, repeat=3)),
    Golden(HERE / "table.pbs", "pbs", PBS, Job(1, 0, "study-table", alone=False)),
    Golden(HERE / "multi_node.lsf", "lsf", LSF, Job(8, 1, options=RANKED)),
    Golden(HERE / "repeated.lsf", "lsf", LSF, Job(2, 1, repeat=3)),
    Golden(HERE / "multi_node.sge", "sge", SGE, Job(8, 1, options=RANKED)),
    Golden(HERE / "repeated.sge", "sge", replace(SGE, devices=Devices(4, "gpus", 64)), Job(2, 1, repeat=3)),
    Golden(HERE / "table.sge", "sge", SGE, Job(1, 0, "study-table", alone=False)),
    Golden(HERE / "queued.yaml", "kubernetes", KUBERNETES, Job(4, 1, options=RANKED)),
    Golden(HERE / "plain.yaml", "kubernetes", PLAIN_PODS, Job(1, 0.5, "Small_Run", options=SYNTHETIC)),
    Golden(
        HERE / "indexed.yaml", "kubernetes", KUBERNETES, Job(4, 1, options=RANKED, secret=SECRET), "no-mpi"
    ),
    Golden(HERE / "trainjob.yaml", "kubernetes", KUBERNETES, Job(4, 1, options=RANKED), "trainjob"),
    Golden(HERE / "table.lsf", "lsf", LSF, Job(1, 0, "study-table", alone=False)),
)


def documents(manifest: str) -> dict[str, Any]:
    """The objects of a manifest, by their kinds."""
    return {each["kind"]: each for each in yaml.safe_load_all(manifest)}


if __name__ == "__main__":
    for golden in GOLDEN:
        golden.path.write_text(golden.text, encoding="utf-8")
