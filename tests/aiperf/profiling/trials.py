"""Trials to be profiled in the tests' own process, on generated examples."""

from __future__ import annotations

from dataclasses import replace

import torch

from aiperf.data import load
from aiperf.device import bind
from aiperf.parallel.parallel import Solo
from aiperf.profiling.steps import TrialSteps
from aiperf.profiling.work import ProfileWork, of_seed
from aiperf.tasks.registry import task_of_graph
from aiperf.training.built_trial import Rank, build
from aiperf.training.kept_network import Kept
from aiperf.wire.trial import Trial
from nas.graph import Graph
from nas.record import graph_from_json
from nas.seeds import residual
from nas.text_seeds import llama_2x64
from nas.weights import initial

IMAGES = residual((1, 16, 16))
TEXT = llama_2x64((16,))
NETWORKS = {"images": IMAGES, "text": TEXT}
BATCH = 4


def work_of(graph: Graph, format: str = "fp32", ranks: int = 1, examples: int = BATCH) -> ProfileWork:
    """`examples`: of each rank."""
    work = of_seed(task_of_graph(graph), graph, examples * ranks)
    return replace(work, training=replace(work.training, format=format), device="cpu", ranks=ranks, rounds=2)


def steps_of(graph: Graph, format: str = "fp32", examples: int = BATCH) -> TrialSteps:
    work = work_of(graph, format, examples=examples)
    device = bind("cpu", 0)
    torch.manual_seed(1)
    data = load(work.data, device.torch, work.random_seed)
    rank = Rank(device, data, work.training, Solo())
    own = graph_from_json(dict(work.graph))
    trial = Trial(0, None, (), work.hyper, round=1, epochs=1, seed=1)
    return TrialSteps(rank, build(rank, trial, 1, Kept(own, initial(own, 1), {})))
