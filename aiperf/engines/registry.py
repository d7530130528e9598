"""The engines by name, and which of them this process can use."""

from __future__ import annotations

from collections.abc import Mapping

from aiperf.config import AUTO_STEP, TrainingConfig
from aiperf.device import Device
from aiperf.engines.compiled import Compiled
from aiperf.engines.engine import Engine
from aiperf.engines.fused import Fused
from aiperf.engines.graphed import Graphed
from aiperf.errors import WorldError
from nas.graph import Graph
from nas.layers import BatchNorm, Conv2d, Experts, Product, RMSNorm

KINDS: Mapping[str, type[Engine]] = {kind.name: kind for kind in (Engine, Fused, Graphed, Compiled)}


OVER_GROUP = "batch norms that take their statistics over a group are in eager steps only"
OF_EXPERTS = "the host waits for how many rows each expert gets, so steps with experts are eager"
"""A number that the host must know ends a capture, and fixed shapes are what a compiler needs."""
FUSED = (BatchNorm, Conv2d, RMSNorm, Product)
"""Layers of which a network must have one for its fused steps to differ from eager ones."""
NOTHING_FUSED = "fused steps are of batch norms, convolutions, RMS norms and gates, and this network has none"


def why_not(name: str, graph: Graph, device: Device, training: TrainingConfig, ranks: int) -> str:
    """Reason why a group of `ranks` cannot use that engine for such networks; empty if it can."""
    if name != Engine.name and training.normalises_over(ranks):
        return OVER_GROUP
    if name == Fused.name and not any(isinstance(node.layer, FUSED) for node in graph.nodes):
        return NOTHING_FUSED
    if name != Engine.name and any(isinstance(node.layer, Experts) for node in graph.nodes):
        return OF_EXPERTS
    return KINDS[name].why_not(device)


def refuse_unusable(
    seed: Graph, device: Device, training: TrainingConfig, ranks: int, measured: str = ""
) -> None:
    """Raises WorldError if `training.step` names an engine that cannot be used. `measured` is a reason that
    was found by trying it."""
    step = training.step
    if step != AUTO_STEP and (reason := why_not(step, seed, device, training, ranks) or measured):
        raise WorldError(f"training.step is {step}, but {reason}; use --step auto")
