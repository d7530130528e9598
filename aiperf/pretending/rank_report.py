"""What a rank that pretends says of itself, its data and its speed, before the clock starts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from math import exp
from typing import Any

from aiperf.config import Config
from aiperf.errors import ConfigError
from aiperf.pretending.assumptions import Assumptions
from aiperf.pretending.group_model import Learnt, Pretended, device_speed
from aiperf.tasks.data import refuse_incomplete
from aiperf.tasks.registry import task_of
from aiperf.tasks.task import ControlNetwork
from aiperf.wire.formats import PRODUCTS
from aiperf.wire.layout import Described, Place
from aiperf.wire.reports import Ceiling, Control, Rate, Ready
from nas.graph import Graph
from nas.ops import TENSOR_OPS

PRETENDED = "pretended"
"""Kind of a device that is not there."""
ASSUMPTIONS = "assumptions"
"""Among the settings of a rank that pretends: the name of its assumptions."""
CONTROL_STEPS = 20
"""Steps of the pretended control: as few as an accelerator times at once (`measuring.control`)."""
COUNTED = ("training_examples", "validation_examples", "test_examples")
"""Numbers of a manifest without which no epoch, validation or test has a length."""
COPIED = 2.0
"""Bytes copied within a device for each 100 operations: about what accelerators have."""


def pretended_manifest(config: Config) -> dict[str, Any]:
    """The manifest of the data that a configuration names, as a rank would find it; no data is read. Raises
    ConfigError if the task of another package leaves out a key."""
    manifest = task_of(config.data).data.foreseen(config.data)
    refuse_incomplete(config.data.name, manifest)
    return manifest


def refuse_no_examples(config: Config) -> None:
    """Raises ConfigError for a configuration whose examples only files would tell: nobody looks into one."""
    found = pretended_manifest(config)
    if lacking := [key for key in COUNTED if found[key] < 1]:
        needed = " ".join(f"--set data.{key}=N" for key in lacking)
        raise ConfigError(
            f"preset {config.preset} does not say how many {task_of(config.data).example}s there are, and "
            f"none are read; give {needed}"
        )


def refuse_notary(config: Config) -> None:
    """Raises ConfigError if a run that measures nothing is to be notarised: there is nothing to vouch for."""
    if config.notary:
        raise ConfigError("a notary signs measured runs only; omit --notary, or set notary = false")


def pretended_group(assumptions: Assumptions, config: Config, seed: Graph, ranks: Sequence[int]) -> Pretended:
    """The group of these ranks. `spread.node` is drawn for each group, the same in every leg: the ranks of a
    pretended machine share one host. So is `spread.device` for each rank."""
    draws, spread = random.Random(f"speed of rank {ranks[0]} {config.random_seed}"), assumptions.spread
    slowest = min(device_speed(config.random_seed, f"rank {rank}", spread.device) for rank in ranks)
    speed = exp(draws.gauss(0.0, spread.node)) * slowest
    return Pretended(assumptions, config, seed, pretended_manifest(config), len(ranks), speed)


def pretending_notice(assumptions: Assumptions) -> str:
    """The first line that a person reads of such a run."""
    return (
        f'NOTHING IS TRAINED: each worker waits as long as the machine model "{assumptions.name}" predicts; '
        "times, errors and score follow from the model and are not measured"
    )


def pretended_device(place: Place, assumptions: Assumptions) -> Described:
    """What a rank at this place would say of its device; no process is started to look for one."""
    return Described(
        rank=place.rank,
        device=assumptions.device,
        kind=PRETENDED,
        memory_bytes=assumptions.memory_bytes,
        formats={assumptions.format: assumptions.speed.ops_per_second},
    )


def pretended_ready(
    pretended: Pretended,
    rank: int,
    host: str,
    pid: int,
    code_hash: str,
    sees_run: bool,
    seconds: float,
    wall_seconds: float,
    device_id: str,
    visible_devices: int,
) -> Ready:
    """The first message of a rank whose group pretends to train."""
    assumptions = pretended.assumptions
    return Ready(
        rank=rank,
        host=host,
        pid=pid,
        device=assumptions.device,
        memory_bytes=assumptions.memory_bytes,
        software={},
        code_hash=code_hash,
        data=pretended.manifest,
        initial_weights="",
        wall_seconds=wall_seconds,
        seconds=seconds,
        visible_devices=visible_devices,
        multiplies=dict.fromkeys(PRODUCTS, pretended.config.training.format),
        settings={ASSUMPTIONS: assumptions.name},
        device_id=device_id,
        sees_run=sees_run,
    )


def pretended_ceiling(pretended: Pretended, rank: int, host: str) -> Ceiling:
    """The ceiling that the machine model implies: products run at the rate of an endlessly large network, the
    seed at its own, and all of this group by its own speed."""
    rate = pretended.assumptions.speed.ops_per_second * pretended.speed
    seed, batch = pretended.seed, pretended.config.training.batch_size
    operations = seed.cost.train.price(TENSOR_OPS) * batch / pretended.ranks
    of_seed = operations / pretended.step_seconds(Learnt(seed), batch)
    return Ceiling(
        rank=rank,
        host=host,
        device=pretended.assumptions.device,
        format=pretended.config.training.format,
        side=4096,
        product=Rate(rate, rate, 0.0),
        copy=Rate(rate * COPIED / 100, rate * COPIED / 100, 0.0),
        seed=Rate(of_seed, of_seed, 0.0),
    )


def pretended_control(pretended: Pretended, rank: int, host: str) -> Control:
    """The control as one device would train it, because each rank times it by itself."""
    network = task_of(pretended.config.data).control
    graph = _control(network)
    alone = Pretended(pretended.assumptions, pretended.config, pretended.seed, pretended.manifest, 1)
    seconds = alone.step_seconds(Learnt(graph), network.batch_size) / pretended.speed
    return Control(
        rank=rank,
        host=host,
        device=pretended.assumptions.device,
        batch_size=network.batch_size,
        steps=CONTROL_STEPS,
        seconds=CONTROL_STEPS * seconds,
        examples_per_second=network.batch_size / seconds,
        size=network.sizes[-1],
    )


@cache
def _control(network: ControlNetwork) -> Graph:
    """The largest graph of a control, made once: thousands of pretended ranks ask for it."""
    return network.graph(network.sizes[-1])
