"""From a request, "8 nodes, for an hour", to the text of a batch script: pure functions of data. `script.py`
puts the steps of a job together, which are the same everywhere; a file for each scheduler says how it words
them (`scheduler.py` has the interface). Nothing here submits a job or writes a file."""

from __future__ import annotations

from collections.abc import Mapping

from launch.indexed_job import IndexedJob
from launch.kubernetes import Kubernetes
from launch.lsf import Lsf
from launch.pbs import Pbs
from launch.scheduler import Scheduler
from launch.sge import Sge
from launch.slurm import Slurm
from launch.train_job import TrainJob

__all__ = ["FORMS", "SCHEDULERS"]

SCHEDULERS: Mapping[str, Scheduler] = {
    each.name.lower(): each for each in (Slurm(), Pbs(), Lsf(), Sge(), Kubernetes())
}
"""Schedulers, by the name of the sub-command of `launch`."""
FORMS: Mapping[str, Mapping[str, Scheduler]] = {
    "kubernetes": {"no-mpi": IndexedJob(), "trainjob": TrainJob()}
}
"""Other forms of the jobs of a scheduler, by the same name and the option that chooses them."""
