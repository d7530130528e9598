"""Torch's compiler is loaded only for groups and for kernels in Triton, and without a folder in TMPDIR,
whatever another user has put there."""

from __future__ import annotations

import os
import sys
import tempfile
from inspect import unwrap
from pathlib import Path

import pytest
import torch
from torch._inductor.runtime.cache_dir_utils import cache_dir, default_cache_dir

from aiperf.device import bind, dynamo
from aiperf.engines.fused.triton_backend import IN_TRITON
from aiperf.measuring.training_step import place_network, training_steps
from aiperf.training.optimizers import make_optimizer
from aiperf.wire.trial import HyperParameters
from nas.seeds import residual

HYPER = HyperParameters(learning_rate=0.02, batch_size=4, momentum=0.9, weight_decay=0.1)


def stepped(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """What two steps with gradients of ones make of the parameters, which are then as before."""
    tensors = [each for group in optimizer.param_groups for each in group["params"]]
    before = [each.detach().clone() for each in tensors]
    for each in tensors:
        each.grad = torch.ones_like(each)
    for _ in range(2):
        optimizer.step()
    after = [each.detach().clone() for each in tensors]
    for each, values in zip(tensors, before):
        each.data.copy_(values)
    return after


@pytest.mark.parametrize("name", ["sgd", "adamw", "muon"])
def test_an_optimizer_makes_the_steps_of_torch_and_does_not_import_the_compiler(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = bind("cpu", 0)
    network = place_network(residual((1, 8, 8), 3), device)
    made = make_optimizer(name, network, HYPER, device, "fp32")
    kinds = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
    wanted = stepped(kinds[name](made.param_groups)) if name in kinds else []
    # As in a process that has not imported it: now it cannot be.
    monkeypatch.delattr(unwrap(torch.optim.Optimizer.add_param_group), "__dynamo_disable", raising=False)
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    found = stepped(make_optimizer(name, network, HYPER, device, "fp32"))
    training_steps(network, device, "fp32")(2, (1, 8, 8))()
    assert not wanted or all(map(torch.equal, found, wanted))


def test_it_is_loaded_before_the_first_operator_in_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = list[str]()
    monkeypatch.setattr(dynamo, "import_module", imported.append)
    IN_TRITON.begin()
    assert imported == ["torch._dynamo"]


@pytest.mark.parametrize("stated", [None, "/proc/nowhere/cache"])
@pytest.mark.parametrize("planted", ["nothing", "file", "link"])
def test_its_import_makes_no_folder_whose_name_others_can_guess(
    planted: str, stated: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an import of torch's compiler does first is done here."""
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
    dynamo.load_dynamo()
    assert imported == ["torch._dynamo /"]
    assert list(tmp_path.iterdir()) == before
    assert os.environ.get(dynamo.CACHE) == stated
