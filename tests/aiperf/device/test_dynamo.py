"""Torch's compiler is loaded without a folder in TMPDIR, whatever another user has put there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import torch
from torch._inductor.runtime.cache_dir_utils import cache_dir, default_cache_dir

from aiperf.device import bind, dynamo
from aiperf.measuring.training_step import training_steps
from aiperf.training.optimizers import make_optimizer
from aiperf.wire.trial import HyperParameters
from nas.modules import Network
from nas.seeds import residual

HYPER = HyperParameters(learning_rate=0.02, batch_size=4, momentum=0.9, weight_decay=0.1)


@pytest.mark.parametrize("stated", [None, "/proc/nowhere/cache"])
@pytest.mark.parametrize("planted", ["nothing", "file", "link"])
def test_the_first_optimizer_makes_no_folder_whose_name_others_can_guess(
    planted: str, stated: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what an import of torch's compiler does first that is done here, once for each optimizer."""
    if stated is None:
        monkeypatch.delenv(dynamo.CACHE, raising=False)
    else:
        monkeypatch.setenv(dynamo.CACHE, stated)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = Path(default_cache_dir())
    if planted == "file":
        folder.touch()
    elif planted == "link":
        folder.symlink_to("nowhere")
    before, imported = list(tmp_path.iterdir()), list[str]()
    monkeypatch.setattr(dynamo, "import_module", lambda name: imported.append(f"{name} {cache_dir()}"))
    network, device = Network(residual((1, 8, 8), 3)), bind("cpu", 0)
    training_steps(network, device, "fp32")
    assert isinstance(make_optimizer("sgd", network, HYPER, device, "fp32"), torch.optim.SGD)
    assert imported == ["torch._dynamo /"] * 2
    assert list(tmp_path.iterdir()) == before
    assert os.environ.get(dynamo.CACHE) == stated
