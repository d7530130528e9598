"""A processor whose captures do their work again: what a graph would replay, over the same lines of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from aiperf.device.cpu import Cpu
from aiperf.engines.engine import Passes
from aiperf.engines.objective import objective_of
from nas.graph import Graph
from nas.modules import Network
from nas.text_seeds import _gpt, llama
from nas.weights import initial

TEXTS = {
    "gpt": _gpt((12,), 256, blocks=3, heads=2, width=16),
    "llama": llama((12,), 256, blocks=3, heads=4, groups=2, width=16, hidden=24),
}


@dataclass
class Again:
    """Work that is done at each replay, not when it is recorded, and reads what memory holds then."""

    done: list[str] = field(default_factory=list)
    work: Callable[[], None] | None = None

    def warm_up(self, work: Callable[[], None]) -> None:
        self.done.append("warm up")
        work()

    def record(self, work: Callable[[], None]) -> None:
        self.done.append("record")
        self.work = work

    def replay(self) -> None:
        assert self.work is not None
        self.done.append("replay")
        self.work()

    def free(self) -> None:
        self.done.append("free")
        self.work = None


@dataclass(frozen=True)
class Recording(Cpu):
    captured: list[Again] = field(default_factory=list)

    @property
    def why_not_captured(self) -> str:
        return ""

    def capture(self) -> Again:
        self.captured.append(Again())
        return self.captured[-1]


class Averaging(nn.Module):
    """What averages gradients over a group: around the network, by hooks on its parameters."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.heard = network, 0
        for parameter in network.parameters():
            parameter.register_post_accumulate_grad_hook(self._hear)

    def _hear(self, parameter: torch.Tensor) -> None:
        self.heard += 1

    def forward(self, examples: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.network(examples)
        return answer


def recording() -> Recording:
    cpu = Cpu.bind(0)
    return Recording(cpu.index, cpu.name, cpu.memory_bytes)


def passes_of(
    graph: Graph, device: Cpu | None = None, format: str = "fp32", label_smoothing: float = 0.0
) -> Passes:
    network = Network(graph)
    network.load(initial(graph, 1))
    device = device or recording()
    network.place(device.torch, device.layout)
    scaler = torch.amp.GradScaler("cpu", enabled=format == "fp16")
    return Passes(network, device, format, scaler, objective_of(graph, label_smoothing))


def batch_of(graph: Graph, examples: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shown = torch.randn(examples, *graph.input, generator=generator).to(memory_format=torch.channels_last)
    return shown, torch.randint(graph.classes, (examples,), generator=generator)


def steps_of(network: Network) -> str:
    """How many steps of each kind a network makes."""
    counts = Counter(type(run).__name__ for run, *_ in network.plan)
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if kind != "_Pick")
