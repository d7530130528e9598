"""Memory that must not grow: over thousands of steps of one trial, and over many trials one after the
other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import psutil
import torch

from aiperf.config import load_preset, with_overrides
from aiperf.device import Device, bind
from aiperf.engines.engine import Engine
from aiperf.engines.graphed import Graphed
from aiperf.engines.registry import KINDS
from benchmarks.on_device.engines import unused
from benchmarks.on_device.meter import Meter
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import UNKNOWN, Figures, Row, Use, figures, row
from benchmarks.on_device.trials import Trials, generated
from benchmarks.scatter import children
from nas.graph import Graph
from nas.seeds import residual

STEPS, SMALL_STEPS = 5000, 60
BLOCKS = 10
"""Memory is read after each of this many blocks of steps."""
SETTLED = 2
"""Blocks, or rounds of trials, after which it must stay: libraries allocate at their first uses."""
TRIALS, SMALL_TRIALS = 40, 4
NETWORKS, SMALL_NETWORKS = 8, 1
"""Different networks among the trials, which come again in each round."""
STEPS_OF_TRIAL = 20
MOST_GROWTH = 32 << 20
"""Bytes by which the device's memory may grow afterwards. Replays that leak take 8 to 16 MB each
(ROCm/rocm-libraries, issue 9505), a stream or a graph that is not freed some tens of MB each trial."""
MOST_CHANGE_SECONDS = 1.0
"""Change-over of a small network above which it is called slow."""
BATCH = 50
NOTES = [
    "Memory: of the whole device as its driver reports it, on a processor of this process.",
    "Change-over: to leave a trial, and to begin one that was prepared, with its capture and check.",
]


def measure(setting: Setting) -> Iterator[Figures]:
    """Memory that grows is a fault on an accelerator."""
    device = bind(setting.kind, 0)
    reasons = {name: why for name, why in unused(device, setting).items() if issubclass(KINDS[name], Graphed)}
    names = [name for name, reason in reasons.items() if not reason] or [Engine.name]
    rows = [row(name, f"not used: {reason}") for name, reason in reasons.items() if reason]
    config = generated(residual().input[1], 10, BATCH, device.formats[0], **{"data.channels": 1})
    trials, meter = Trials.of(config, device, names[0]), Meter(device)
    in_steps, faults = dict[str, list[int]](), list[str]()
    smaller = f"{SMALL_STEPS} steps and {SMALL_TRIALS} trials" if setting.is_small else ""
    found = figures(rows, faults=faults, notes=NOTES, smaller=smaller, steps=in_steps)
    for name in names:
        in_steps[name], fell_back = _over_steps(setting, replace(trials, engine=name), meter)
        rows.append(_grown(f"{name}: memory after the steps", in_steps[name], meter.use(name)))
        faults += [f"{name}: {reason}" for reason in fell_back]
        faults += [] if setting.is_small else _faults({f"{name} steps": in_steps[name]})
        yield found
    between, change, eager = _over_trials(setting, trials)
    rows += [
        row("steps", setting.sized(STEPS, SMALL_STEPS)),
        _grown(f"{names[0]}: memory after the trials", between),
        row("trials", setting.sized(TRIALS, SMALL_TRIALS)),
        row("change-over of trials", change, "s", eager, "eager"),
    ]
    if not setting.is_small:
        faults += _faults({"trials": between})
    slow = [f"to leave a trial and to make the first step of the next one: {change:.1f} s"]
    yield found | {"slow": slow if change > MOST_CHANGE_SECONDS else [], "trials": between}


def _faults(held: Mapping[str, Sequence[int]]) -> list[str]:
    """Where memory grew, by what was done."""
    growth = {what: max(each[SETTLED:], default=0) - _settled(each) for what, each in held.items()}
    return [
        f"memory grew by {bytes_more / 2**20:.0f} MiB over the {what}"
        for what, bytes_more in growth.items()
        if bytes_more > MOST_GROWTH
    ]


def _grown(what: str, held: Sequence[int], use: Use = UNKNOWN) -> Row:
    """The memory at the end beside that after a few blocks or rounds."""
    return row(what, held[-1], "GiB", _settled(held), "after a few", use=use)


def _settled(held: Sequence[int]) -> int:
    return held[min(SETTLED, len(held) - 1)]


def held_bytes(device: Device) -> int:
    """Memory of the device in use, as its driver reports it, with what libraries took without torch; on a
    processor the resident memory of this process."""
    if device.kind == "cpu":
        return int(psutil.Process().memory_info().rss)
    module: Any = getattr(torch, device.kind)
    free, total = module.mem_get_info(device.index)
    return int(total - free)


def _over_steps(setting: Setting, trials: Trials, meter: Meter) -> tuple[list[int], list[str]]:
    """Memory after each block of the steps of one trial, and why they were not made by its engine, if so."""
    running, held = trials.begin(trials.prepared(residual())), list[int]()
    with meter.during(trials.engine):
        for _ in range(BLOCKS):
            running.make(setting.sized(STEPS, SMALL_STEPS) // BLOCKS)
            held.append(held_bytes(trials.rank.device))
    running.close()
    return held, running.reasons


def _over_trials(setting: Setting, trials: Trials) -> tuple[list[int], float, float]:
    """Memory after each round of trials, the median change-over in seconds, and that of eager trials."""
    config = with_overrides(load_preset("digits"), {"seed_architecture": "residual-4-8-16"})
    networks = [each.graph for each in children(config, setting.sized(NETWORKS, SMALL_NETWORKS) - 1)]
    held, seconds = list[int](), list[float]()
    for number, change in enumerate(_change_overs(trials, networks, setting.sized(TRIALS, SMALL_TRIALS)), 1):
        seconds.append(change)
        if number % len(networks) == 0:
            held.append(held_bytes(trials.rank.device))
    eager = [*_change_overs(replace(trials, engine=Engine.name), networks, 2 * len(networks))]
    return held, *(median(each[len(networks) :]) for each in (seconds, eager))


def _change_overs(trials: Trials, networks: Sequence[Graph], count: int) -> Iterator[float]:
    """Trains so many trials, one after the other, and gives for each the seconds to leave it and to begin it,
    up to and with the first step that its engine makes.

    As in a worker, the next trial is prepared on a thread beside the steps, towards the end of a trial. One
    that ends at once begins while the next one is prepared, so a capture must bear that: this is made in the
    first round, whose seconds say nothing.
    """
    with ThreadPoolExecutor(1, "prepare") as threads:
        prepare = partial(threads.submit, trials.prepared)
        start = prepare(networks[0], 0)
        for number in range(count):
            built, following = start.result(), (networks[(number + 1) % len(networks)], number + 1)
            is_first_round = number < len(networks)
            if is_first_round:
                start = prepare(*following)
            began = perf_counter()
            running = trials.begin(built)
            seconds = perf_counter() - began
            if not is_first_round:
                start = prepare(*following)
            running.make(STEPS_OF_TRIAL)
            began = perf_counter()
            running.close()
            yield seconds + perf_counter() - began
        start.result()
