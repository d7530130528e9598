"""The compiled engine: the step of the eager one, compiled once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from aiperf.device.dynamo import CACHE
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
SEED = residual((1, 8, 8), 3, (4,))
"""With one stage, because each further one would be compiled, too."""


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


def test_compiled_code_is_not_loaded_from_a_folder_that_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor's own folder in /tmp could be made by anybody first."""
    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    device, planted = passes_of(SEED).device, tmp_path / f"aiperf-hpc-{os.getuid()}"
    Compiled(passes_of(SEED))
    assert Path(os.environ[CACHE]) == planted / "torchinductor"
    assert Compiled.why_not(device) == ""
    monkeypatch.delenv(CACHE)
    planted.chmod(0o777)
    remedy = f"set {CACHE} to a folder of your own"
    assert (
        Compiled.why_not(device)
        == f"{planted} can be changed by other users (mode 777; `chmod go-w` corrects it); {remedy}"
    )
    monkeypatch.setenv(CACHE, str(tmp_path / "link"))
    (tmp_path / "link").symlink_to(tmp_path)
    assert Compiled.why_not(device) == f"{tmp_path / 'link'} is a symbolic link; {remedy}"
