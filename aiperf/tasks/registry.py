"""The tasks of this program, and installed ones: found by the data of a configuration, or by an
architecture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from aiperf.errors import ConfigError
from aiperf.tasks.data import DataConfig, installed, installed_names
from aiperf.tasks.images.task import IMAGES
from aiperf.tasks.language.task import LANGUAGE
from aiperf.tasks.task import Task
from nas.graph import Graph
from nas.head import Head

TASKS = (IMAGES, LANGUAGE)
"""Those of this program: only they are ranked."""


def task_of(data: DataConfig) -> Task:
    """The task whose examples a configuration names. Raises ConfigError for an installed package that has
    none."""
    own = next((task for task in TASKS if isinstance(data, task.data_class)), None)
    return own or _installed_task(data.name)


def task_of_graph(graph: Graph) -> Task:
    """The task for whose examples an architecture is, by its head. Raises ConfigError if no task has such a
    head."""
    head: Any = type(graph.head)  # mypy takes no type[T] for hashable
    return _task_of_head(head)


@cache
def _task_of_head(head: Any) -> Task:
    """A head of another package may also be that of a task of this program, asked in other words."""
    # The class itself first: a head that derives from one of these may have a task of its own.
    for task in (*TASKS, *_installed_tasks(head)):
        if task.head is head:
            return task
    for task in TASKS:
        if issubclass(head, task.head):
            return task
    raise ConfigError(f"no task asks the question {head.__name__}; install the package of its task")


def _installed_tasks(head: type[Head]) -> Iterator[Task]:
    """None of them is imported for a head of this program."""
    return iter(()) if head.__module__ == Head.__module__ else map(_installed_task, installed_names())


@cache
def _installed_task(name: str) -> Task:
    """The task of another package. It is never ranked, whatever it says of itself: only the tasks of this
    program have rules for it."""
    found = installed(name)
    if not isinstance(found, Task):
        raise ConfigError(
            f"data.name {name!r} stands for {found!r:.80}, which is not an aiperf.tasks.task.Task; correct "
            "or uninstall its package"
        )
    if found.error_law not in (laws := [task.error_law for task in TASKS]):
        raise ConfigError(
            f"the task {found.name}: error_law is {found.error_law!r:.80}; it must be one of "
            f"{', '.join(laws)}; correct its package"
        )
    return replace(found, ranked=None)
