"""The coupled control: blocks of steps, by themselves and with averaged gradients, in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from aiperf.device import Device, bind
from aiperf.errors import WorldError
from aiperf.host.child_process import answer_file
from aiperf.measuring import coupled, fabric
from aiperf.measuring.coupled import CPU_BLOCKS, MOST_BLOCKS, measure_coupled
from aiperf.parallel.ddp import averaging
from aiperf.tasks.language.task import LANGUAGE
from aiperf.tasks.task import ControlNetwork
from aiperf.wire.fabric import assembled
from aiperf.wire.layout import layout
from aiperf.wire.reports import CoupledPart
from tests.aiperf.measuring.test_control import IMAGES, SMALLER

CONTROL = replace(IMAGES, climb=((16, 4), (32, 4)))


@pytest.fixture(scope="module", autouse=True)
def _world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A world of this process alone, which makes its all-reduces all the same."""
    store = dist.FileStore(str(tmp_path_factory.mktemp("world") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Others:
    """Ranks that do as this one, but lack memory so often."""

    def __init__(self, left: float = 0.0, lack: int = 0) -> None:
        self.part, self._left, self._lack = CoupledPart(), left, lack
        self.said = list[float]()
        """What this rank has said."""

    def slowest(self, seconds: float) -> float:
        self.said.append(seconds)
        self._lack -= 1
        return 1.0 if self._lack >= 0 else seconds

    def left(self) -> float:
        return self._left

    def couples(self, what: str, **found: object) -> None:
        self.part = replace(self.part, reason=what, **found)  # type: ignore[arg-type]


def coupled_with(all_ranks: Others, of: ControlNetwork = CONTROL) -> CoupledPart:
    measure_coupled(of, bind("cpu", 0), "fp32", all_ranks)
    return all_ranks.part


@pytest.mark.parametrize(("left", "steps"), [(0.0, CPU_BLOCKS), (inf, MOST_BLOCKS)])
def test_only_coupled_steps_send_gradients(left: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = list[int]()

    def count(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        sent.append(bucket.buffer().numel())
        return allreduce_hook(dist.group.WORLD, bucket)  # type: ignore[arg-type]

    def counted(network: nn.Module, device: Device, equal: bool) -> DistributedDataParallel:
        wrapped = averaging(network, device, equal)
        count.__annotations__.clear()  # torch wants classes there, which are texts in this file
        wrapped.register_comm_hook(None, count)
        return wrapped

    monkeypatch.setattr(coupled, "averaging", counted)
    found = coupled_with(Others(left))
    assert (found.network, found.size, found.batch_size, found.steps, found.reason) == ("", 16, 4, steps, "")
    assert min(found.seconds, found.alone_seconds) > 0
    assert sum(sent) == (1 + steps) * CONTROL.graph(16).num_parameters


def test_the_batch_is_halved_on_all_ranks_if_one_lacks_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """This rank lacks it at a batch of 4, though its step by itself fits, and another one at a batch of 2.
    Nothing is sent before a batch fits on all: they would wait for what a rank without memory never sends."""

    class Lacking(DistributedDataParallel):
        def forward(self, examples: torch.Tensor) -> torch.Tensor:
            if len(examples) == 4:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            sizes.append((len(examples), self.require_backward_grad_sync))
            return super().forward(examples)  # type: ignore[no-any-return]

    def lacking(network: nn.Module, device: Device, equal: bool) -> DistributedDataParallel:
        return Lacking(network, init_sync=not equal, gradient_as_bucket_view=True)

    sizes = list[tuple[int, bool]]()
    monkeypatch.setattr(coupled, "averaging", lacking)
    all_ranks = Others(lack=2)
    found = coupled_with(all_ranks)
    assert (found.batch_size, found.reason) == (1, "")
    assert all_ranks.said[:3] == [1.0, 0.0, 0.0]
    assert sizes == [(2, False), (1, False), *[(1, True)] * (1 + CPU_BLOCKS)]
    with pytest.raises(WorldError, match="not one example of the control fits"):
        coupled_with(Others(lack=3))


def test_a_cpu_takes_the_smaller_network_of_text() -> None:
    found = coupled_with(Others(), replace(LANGUAGE.control, smaller=SMALLER))
    assert (found.network, found.size, found.batch_size) == ("small", 8, 2)


def test_a_process_that_ends_between_the_fabric_and_the_coupled_control_leaves_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a reason it would count as timed, with figures that nobody can measure, and so INVALID."""
    for name in ("all_gather_object", "all_reduce", "broadcast"):
        monkeypatch.setattr(f"torch.distributed.{name}", lambda *words, **named: None)
    with answer_file() as file:
        rank = fabric._Rank(str(file.fileno()), layout("aa")[0], until=0.0)
        rank.device = bind("cpu", 0)
        rank.measure()
    whole = assembled([rank.part], [1])
    assert (rank.part.reason, whole.impossible) == ("", False)
    assert whole.coupled
    assert whole.coupled.reason
