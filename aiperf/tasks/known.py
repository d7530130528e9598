"""The tasks that there are, by the data of a configuration."""

from __future__ import annotations

from aiperf.config import DataConfig
from aiperf.tasks.images import IMAGES
from aiperf.tasks.language import LANGUAGE
from aiperf.tasks.task import Task

TASKS = (IMAGES, LANGUAGE)


def task_of(data: DataConfig) -> Task:
    return next(task for task in TASKS if data.name in task.data_sets)
