"""The tasks that there are: those of this program, and installed ones by the data of a configuration."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from aiperf.errors import ConfigError
from aiperf.tasks.data import DataConfig
from aiperf.tasks.images.task import IMAGES
from aiperf.tasks.installed import installed
from aiperf.tasks.language.task import LANGUAGE
from aiperf.tasks.task import Task
from nas.graph import Graph

TASKS = (IMAGES, LANGUAGE)
"""Those of this program: only they are ranked."""
_INSTALLED: dict[str, Task] = {}
"""Those of other packages that were asked for in this process, by `data.name`."""


def task_of(data: DataConfig) -> Task:
    """Whose examples a configuration names. Raises ConfigError for an installed package that has none."""
    own = next((task for task in TASKS if isinstance(data, task.data_class)), None)
    return own or _installed_task(data.name)


def task_of_graph(graph: Graph) -> Task:
    """For whose examples an architecture is, by what its output is asked. An installed task is known once a
    configuration has named its data."""
    tasks = (*_INSTALLED.values(), *TASKS)
    exact = (task for task in tasks if type(graph.head) is task.head)
    return next(exact, None) or next(task for task in tasks if isinstance(graph.head, task.head))


@cache
def _installed_task(name: str) -> Task:
    found = installed(name)
    if not isinstance(found, Task):
        raise ConfigError(
            f"data.name {name!r} stands for {found!r:.80}, which is not an aiperf.tasks.task.Task; correct "
            "or uninstall its package"
        )
    _INSTALLED[name] = task = replace(found, ranked=None)
    return task
