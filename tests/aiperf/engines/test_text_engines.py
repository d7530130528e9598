"""Steps of text by every engine: the same as the eager one, or none and why."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
import torch
from torch import Tensor

from aiperf.engines.agreement import difference
from aiperf.engines.compiled import Compiled
from aiperf.engines.engine import Engine
from aiperf.engines.graphed import Graphed
from aiperf.engines.registry import NOTHING_FUSED
from aiperf.measuring.step_times import Timing, measure_steps
from aiperf.measuring.training_step import RankWork, batch
from aiperf.parallel.parallel import Solo
from aiperf.wire.reports import Rate
from nas.graph import Graph
from nas.text_seeds import _gpt, llama
from tests.aiperf.engines.recording import passes_of, recording
from tests.aiperf.training.text_trials import TRAINING

WINDOW = 12
GRAPHS = {
    "gpt": _gpt((WINDOW,), 256, blocks=3, heads=2, width=16),
    "llama": llama((WINDOW,), 256, blocks=3, heads=4, groups=2, width=16, hidden=24),
}
FAST = Rate(1e12, 1e12, 0.1)
every_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
every_format = pytest.mark.parametrize("format", ["fp32", "bf16"])


def examples(graph: Graph, windows: int = 4) -> tuple[Tensor, Tensor]:
    return batch(graph, recording(), windows)


@every_graph
def test_random_windows_are_bytes_and_what_follows_them(graph: Graph) -> None:
    symbols, targets = examples(graph, 64)
    assert symbols.dtype == targets.dtype == torch.int64
    assert symbols.shape == targets.shape == (64, WINDOW)
    assert torch.equal(symbols[:, 1:], targets[:, :-1])
    assert (int(symbols.min()), int(symbols.max())) == (0, 255)


@every_format
@every_graph
def test_a_captured_step_of_text_is_the_eager_one(graph: Graph, format: str) -> None:
    passes = passes_of(graph, format=format, label_smoothing=0.1)
    assert difference(Engine(passes), Graphed(passes), *examples(graph)) == ""


def test_steps_of_text_are_timed_by_every_engine_that_can_make_them() -> None:
    """`training.step = auto`: layer norms have no fused step."""
    timing = Timing(replace(TRAINING, step="auto"), 100, inf, Solo(), 0.1)
    for name, own in (("llama", {"fused", "fused-graphed"}), ("gpt", set[str]())):
        found = measure_steps(recording(), RankWork(GRAPHS[name], "fp32", 4), FAST, timing)
        assert {name for name, time in found.items() if time.seconds > 0} == {"eager", "graphed", *own}
    assert found["fused"].why_not == NOTHING_FUSED
    assert found["compiled"].why_not.startswith("no trial is long enough to compile for")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")  # those of inductor itself
def test_a_compiled_step_of_text_is_the_eager_one() -> None:
    graph = llama((WINDOW,), 256, blocks=1, heads=2, groups=1, width=16, hidden=24)
    passes = passes_of(graph, format="fp32", label_smoothing=0.1)
    assert difference(Engine(passes), Compiled(passes), *examples(graph)) == ""
