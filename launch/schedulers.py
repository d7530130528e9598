"""The schedulers that there are, by name."""

from __future__ import annotations

from collections.abc import Mapping

from launch.lsf import Lsf
from launch.pbs import Pbs
from launch.scheduler import Scheduler
from launch.slurm import Slurm

SCHEDULERS: Mapping[str, Scheduler] = {each.name: each for each in (Slurm(), Pbs(), Lsf())}
