"""The bare loop that a run is compared with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nas.record import graph_to_json
from nas.seeds import resolve_seed
from tests.house.tree import ROOT


@pytest.mark.torch
def test_it_trains_the_digits_seed_where_vectors_are_short(tmp_path: Path) -> None:
    """oneDNN on AVX2 had killed it: `nas.layers.convolutions.TOO_FEW_CHANNELS`."""
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(graph_to_json(resolve_seed("residual-4-8-16"))))
    command = [sys.executable, "benchmarks/bare.py", str(graph), "50", "fp32", "0.2", "100"]
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    rates = json.loads(ended.stdout)
    assert [len(rates[kind]) for kind in ("train", "evaluate")] == [5, 5]
    assert all(rate > 0 for kind in rates.values() for rate in kind)
