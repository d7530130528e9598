"""The compiled engine: the step of the eager one, and equal blocks compiled once."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

from aiperf.engines.agreement import difference
from aiperf.engines.compiled import Compiled
from aiperf.engines.engine import Engine
from nas.seeds import residual
from tests.aiperf.engines.recording import batch_of, passes_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),  # those of inductor itself
]
SEED = residual((1, 8, 8), 3)


def test_a_compiled_step_is_the_eager_one_and_a_last_smaller_step_is_eager() -> None:
    """In bf16; that of text is compared in fp32."""
    passes = passes_of(SEED, format="bf16", label_smoothing=0.1)
    eager, engine = Engine(passes), Compiled(passes)
    assert difference(eager, engine, *batch_of(SEED, 8)) == ""
    graphs = counters["stats"]["unique_graphs"]
    assert graphs > 0
    engine.step(*batch_of(SEED, 8, seed=3))
    small = batch_of(SEED, 5)
    assert torch.equal(engine.step(*small), eager.step(*small))
    assert counters["stats"]["unique_graphs"] == graphs
