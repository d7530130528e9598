"""What a network is trained to make small, by what its output is asked."""

from __future__ import annotations

from aiperf.data.training import NotFinite as NotFinite
from aiperf.data.training import Objective, training_of
from aiperf.tasks.registry import task_of_graph
from nas.graph import Graph


def objective_of(graph: Graph, label_smoothing: float = 0.0) -> Objective:
    """That of the task whose examples the graph is for."""
    return training_of(task_of_graph(graph)).objective(label_smoothing)
