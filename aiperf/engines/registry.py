"""The engines by name, and which of them this process can use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from aiperf.config import AUTO_STEP, TrainingConfig
from aiperf.device import Device
from aiperf.engines.compiled import Compiled
from aiperf.engines.engine import Engine, Passes
from aiperf.engines.fused import BACKENDS, Fused, compile_answers
from aiperf.engines.graphed import Graphed
from aiperf.errors import WorldError
from nas.graph import Graph
from nas.layers import Experts
from nas.modules import Network


class FusedGraphed(Graphed):
    """Captures the step of the fused network. What is eager in a graphed step, such as one of another shape,
    is fused here, unless the network is wrapped."""

    name: ClassVar[str] = "fused-graphed"

    def __init__(self, passes: Passes) -> None:
        super().__init__(passes)
        self.bare = self.module = self.answers

    @classmethod
    def answering(cls, network: Network) -> Network:
        return Fused.answering(network)

    @classmethod
    def why_not(cls, device: Device) -> str:
        """Reason why the fused steps, or the capture, cannot be used."""
        return Fused.why_not(device) or super().why_not(device)

    def prepare(self, examples: Tensor, labels: Tensor) -> None:
        """Captures the fused step, whose kernels are compiled in the passes before it."""
        compile_answers(self.passes, self.answers, examples)
        super().prepare(examples, labels)

    def _with_hooks(self) -> None:
        """What is wrapped is the network as it was, so the fused plan is lent to it while it is captured."""
        network, fused = self.passes.network, self.answers
        plan, network.plan = network.plan, fused.plan
        try:
            super()._with_hooks()
        finally:
            network.plan = plan


KINDS: Mapping[str, type[Engine]] = {
    kind.name: kind for kind in (Engine, Fused, Graphed, FusedGraphed, Compiled)
}
"""The engines by the name that `training.step` has for them; "auto" is none of them, but a choice among
them."""


OVER_GROUP = "batch norms that take their statistics over a group are in eager steps only"
OF_EXPERTS = "the host waits for how many rows each expert gets, so steps with experts are eager"
"""A number that the host must know ends a capture, and fixed shapes are what a compiler needs."""
NOTHING_FUSED = "this network has none of the layers whose steps are fused on such a device"


def why_not(name: str, graph: Graph, device: Device, training: TrainingConfig, ranks: int) -> str:
    """Reason why a group of `ranks` cannot use that engine for such networks; empty if it can."""
    if name != Engine.name and training.normalises_over(ranks):
        return OVER_GROUP
    backend = BACKENDS.get(device.kind) if issubclass(KINDS[name], Fused | FusedGraphed) else None
    if backend and not any(isinstance(node.layer, backend.layers) for node in graph.nodes):
        return NOTHING_FUSED
    if name != Engine.name and any(isinstance(node.layer, Experts) for node in graph.nodes):
        return OF_EXPERTS
    return KINDS[name].why_not(device)


def refuse_unusable(
    seed: Graph, device: Device, training: TrainingConfig, ranks: int, measured: str = ""
) -> None:
    """Raises WorldError if `training.step` names an engine that cannot be used. `measured` is a reason that
    was found by trying it. "auto" never raises: it leaves out what cannot be used."""
    step = training.step
    if step != AUTO_STEP and (reason := why_not(step, seed, device, training, ranks) or measured):
        raise WorldError(f"training.step is {step}, but {reason}; use --step auto")
