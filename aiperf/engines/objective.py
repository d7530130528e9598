"""The objective of a network, by the task whose examples its graph is for."""

from __future__ import annotations

from aiperf.data.training import Objective, training_of
from aiperf.tasks.registry import task_of_graph
from nas.graph import Graph


def objective_of(graph: Graph, label_smoothing: float = 0.0) -> Objective:
    """What a network is trained to make small. `label_smoothing` is the share of the label that is spread
    over all classes. Raises ConfigError if no task has such examples."""
    return training_of(task_of_graph(graph)).objective(label_smoothing)
