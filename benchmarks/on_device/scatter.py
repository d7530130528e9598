"""Rates of grown networks: how far they lie from the speed model of simulations, whose spread they are."""

from __future__ import annotations

from aiperf.config import load_preset, with_overrides
from aiperf.device import bind
from aiperf.pretending.assumptions import assumed
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, figures, row
from benchmarks.scatter import PRESETS, by_kind, timed
from benchmarks.scatter import figures as shown
from nas.morphisms import MIX

CHILDREN, SMALL_CHILDREN = 30, 4
SECONDS, SMALL_SECONDS = 90.0, 4.0
MODELS = {False: "h100", True: "laptop"}
"""Machine model, by whether the device is a CPU."""


def measure(setting: Setting) -> Figures:
    """Nothing of it is a fault: what a machine model assumes is chosen, not required."""
    name, changes = PRESETS["digits"] if setting.is_small else ("ranked", {"training.batch_size": 64})
    config = with_overrides(load_preset(name), changes)
    count = setting.sized(CHILDREN, SMALL_CHILDREN)
    seconds = setting.sized(SECONDS, SMALL_SECONDS)
    found = timed(config, bind(setting.kind, 0), count, seconds, lambda text: print(text, flush=True))
    model = MODELS[setting.is_small]
    spread = assumed(model).spread
    rows = [row(what, text) for what, text in shown(found)]
    rows += [
        row("spread.network", found.own, "%", spread.network, f"{model}.toml", compared=False),
        row("spread.lineage", found.kept, "", spread.lineage, f"{model}.toml", compared=False),
    ]
    kinds = [(kind.__name__, by_kind(found, kind.__name__)) for kind in MIX]
    rows += [row(kind, text) for kind, text in kinds if any(one.kind == kind for one in found.networks)]
    smaller = f"{count} children of the digits' seed in place of {CHILDREN} of ResNet-50"
    note = (
        "Rate measured ÷ modelled, as robust standard deviations; below, what each kind of morphism changed."
    )
    return figures(
        rows, notes=[note], smaller=setting.sized("", smaller), seconds=[*map(float, found.seconds)]
    )
