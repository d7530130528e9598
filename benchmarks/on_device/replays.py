"""Memory that must not grow: over thousands of steps of one trial, and over many trials one after the
other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter
from typing import Any

import psutil
import torch

from aiperf.config import load_preset, with_overrides
from aiperf.device import Device, bind
from aiperf.engines.engine import Engine
from aiperf.engines.graphed import Graphed
from benchmarks.on_device.meter import Meter
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, figures, row
from benchmarks.on_device.trials import Trials, generated
from benchmarks.scatter import children
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


def measure(setting: Setting) -> Figures:
    """Memory that grows is a fault on an accelerator."""
    device = bind(setting.kind, 0)
    reason = Graphed.why_not(device)
    name = Engine.name if reason else Graphed.name
    side = residual().input[1]
    trials = Trials.of(generated(side, 10, BATCH, device.formats[0], **{"data.channels": 1}), device, name)
    meter = Meter(device)
    in_steps, grown = _over_steps(setting, trials, meter)
    between, change, eager = _over_trials(setting, trials)
    rows = [
        row("engine", f"eager: {reason}" if reason else name),
        row("memory after the steps", in_steps[-1], "GiB", in_steps[SETTLED], "after a few", use=grown),
        row("steps", setting.sized(STEPS, SMALL_STEPS)),
        row(
            "memory after the trials",
            between[-1],
            "GiB",
            between[min(SETTLED, len(between) - 1)],
            "after a few",
        ),
        row("trials", setting.sized(TRIALS, SMALL_TRIALS)),
        row("change-over of trials", change, "s", eager, "eager"),
    ]
    faults = []
    for what, held in (("steps", in_steps), ("trials", between)):
        growth = max(held[SETTLED:], default=0) - held[min(SETTLED, len(held) - 1)]
        if growth > MOST_GROWTH and not setting.is_small:
            faults.append(f"memory grew by {growth / 2**20:.0f} MiB over the {what}")
    slow = []
    if change > MOST_CHANGE_SECONDS:
        slow.append(f"from the last step of a trial to the second of the next one: {change:.1f} s")
    notes = [
        "Memory: of the whole device as its driver reports it, on a processor of this process.",
        "Change-over: to begin a trial that was prepared beside the one before, with its capture and check.",
    ]
    smaller = f"{SMALL_STEPS} steps and {SMALL_TRIALS} trials" if setting.is_small else ""
    return figures(
        rows, faults=faults, slow=slow, notes=notes, smaller=smaller, steps=in_steps, trials=between
    )


def held_bytes(device: Device) -> int:
    """Memory of the device in use, as its driver reports it, with what libraries took without torch; on a
    processor the resident memory of this process."""
    if device.kind == "cpu":
        return int(psutil.Process().memory_info().rss)
    module: Any = getattr(torch, device.kind)
    free, total = module.mem_get_info(device.index)
    return int(total - free)


def _over_steps(setting: Setting, trials: Trials, meter: Meter) -> tuple[list[int], Any]:
    """Memory after each block of the steps of one trial, and what the device used meanwhile."""
    device = trials.rank.device
    running, held = trials.begin(trials.prepared(residual())), list[int]()
    with meter.during("steps"):
        for _ in range(BLOCKS):
            running.make(setting.sized(STEPS, SMALL_STEPS) // BLOCKS)
            held.append(held_bytes(device))
    running.close()
    return held, meter.use("steps")


def _over_trials(setting: Setting, trials: Trials) -> tuple[list[int], float, float]:
    """Memory after each round of trials, the median change-over in seconds, and that of eager trials."""
    config = with_overrides(load_preset("digits"), {"seed_architecture": "residual-4-8-16"})
    networks = [each.graph for each in children(config, setting.sized(NETWORKS, SMALL_NETWORKS) - 1)]
    held, seconds = list[int](), dict[str, list[float]]({Engine.name: [], trials.engine: []})
    count = setting.sized(TRIALS, SMALL_TRIALS)
    with ThreadPoolExecutor(1, "prepare") as threads:  # as a worker prepares the next trial
        for name in dict.fromkeys((trials.engine, Engine.name)):
            of_engine = Trials(trials.rank, name, trials.batch_size)
            total = count if name == trials.engine else 1 + len(networks)
            start = threads.submit(of_engine.prepared, networks[0], 0)
            for number in range(total):
                built, following = start.result(), networks[(number + 1) % len(networks)]
                # Before the capture, beside which a worker prepares, too.
                start = threads.submit(of_engine.prepared, following, number + 1)
                began = perf_counter()
                running = of_engine.begin(built)
                seconds[name].append(perf_counter() - began)
                running.make(STEPS_OF_TRIAL)
                running.close()
                if name == trials.engine and (number + 1) % len(networks) == 0:
                    held.append(held_bytes(trials.rank.device))
            start.result()
    return held, *(median(seconds[name][1:]) for name in (trials.engine, Engine.name))
