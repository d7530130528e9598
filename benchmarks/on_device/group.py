"""Ranks that train one trial together, as the program joins them: NCCL, RCCL, HCCL, XCCL, or Gloo on a
processor.

One rank alone shows whether DDP's steps can be captured; several show whether their all-reduces can, that all
fall back where one must, how rates scale, and that the group can be left.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from dataclasses import asdict, dataclass, field
from multiprocessing import connection
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

from torch import Tensor

from aiperf.device import Device, bind, count_devices
from aiperf.device.device import TRAINING
from aiperf.engines.engine import Engine
from aiperf.engines.registry import KINDS
from aiperf.parallel.ddp import Ddp
from aiperf.wire.layout import layout
from aiperf.wire.messages import Join, Meeting
from benchmarks.on_device.engines import usable
from benchmarks.on_device.meter import Meter
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, Use, figures, row
from benchmarks.on_device.trials import Trials, generated
from nas.graph import Graph
from nas.seeds import residual, resnet50

SECONDS, SMALL_SECONDS = 4.0, 0.2
BATCH, SMALL_BATCH = 128, 4
"""Images of each rank in a step."""
MOST_SECONDS, SMALL_MOST_SECONDS = 150.0, 100.0
"""Time for all ranks; those that are not over by then hang, and are ended."""
LEAST_SCALING = 0.9
"""Rate of the group relative to that of its ranks alone, below which it is called slow."""
SECRET = "of this part"
POLL_SECONDS = 0.05
FAILS = "this rank fails on purpose"


@dataclass
class Found:
    """What one rank found, by engine."""

    rates: dict[str, float] = field(default_factory=dict)
    """Images per second of the whole group."""
    uses: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """Power and clock of this rank's device meanwhile."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why an engine was replaced by the eager one."""
    fell_back: str = ""
    """The reason, where an engine failed on the last rank on purpose; empty if nobody noticed."""
    left_seconds: float | None = None
    """Time to leave the group; None if it was not left."""


def measure(setting: Setting, ranks: str) -> Figures:
    """An engine that can be used and cannot make a group's steps is a fault; a rank that falls back alone; a
    group that cannot be left."""
    device = bind(setting.kind, 0)
    count = 1 if ranks == "one" else 2 if setting.is_small else count_devices(setting.kind)
    if ranks != "one" and count < 2:
        return figures([], left_out=f"a group of several ranks needs two devices, and {count} is visible")
    names = [Engine.name, *usable(device, setting)]
    found, faults = _trained(setting, count, names)
    alone = None
    if count > 1:
        first, more = _trained(setting, 1, [Engine.name])
        faults += more
        alone = next((count * each.rates[Engine.name] for each in first if each.rates), None)
    rows, slow = [row("ranks", count), row("backend", device.backend)], list[str]()
    for name in names:
        rate = next((each.rates[name] for each in found if name in each.rates), None)
        use = next((Use(*each.uses[name]) for each in found if name in each.uses), Use())
        rows.append(
            row(f"{name}: rate", rate, "images/s", alone, "ranks alone, eager" if alone else "", use=use)
        )
        if rate and alone and rate < LEAST_SCALING * alone and not setting.is_small:
            slow.append(f"{name}: {count} ranks reach {rate / alone:.2f} of what they reach alone")
        reasons = dict.fromkeys(each.reasons[name] for each in found if name in each.reasons)
        rows += [row(name, f"fell back: {reason}") for reason in reasons]
        faults += [f"{name}: {reason}" for reason in reasons]
    if count > 1:
        fell = [each.fell_back for each in found]
        rows.append(row("one rank fails: the ranks", "; ".join(dict.fromkeys(fell)) or "unknown"))
        faults += [] if all(fell) else ["not all ranks fell back where one failed"]
    left = [each.left_seconds for each in found if each.left_seconds is not None]
    rows.append(row("the group was left in", max(left) if len(left) == count else None, "s"))
    notes = ["Trials of the program with DDP; captured after eleven eager steps. Power of one device."]
    smaller = "the digits' seed, and Gloo" if setting.is_small else ""
    return figures(rows, faults=faults, slow=slow, notes=notes, smaller=smaller, ranks=[*map(asdict, found)])


def _trained(setting: Setting, count: int, names: list[str]) -> tuple[list[Found], list[str]]:
    """What the ranks found, and which of them failed or were not over in time. Where one failed, the others
    wait for it in vain, and are ended."""
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        started = [
            context.Process(target=_rank, args=(setting, position, count, names, folder), daemon=True)
            for position in range(count)
        ]
        for process in started:
            process.start()
        most = setting.sized(MOST_SECONDS, SMALL_MOST_SECONDS)
        until = monotonic() + most
        codes = [process.exitcode for process in started]
        while None in codes and not any(codes) and monotonic() < until:
            connection.wait([process.sentinel for process in started if process.exitcode is None], 1.0)
            codes = [process.exitcode for process in started]
        for process in started:
            process.kill()
            process.join()
        faults = [
            f"rank {rank} ended with code {code}; see the part's log"
            for rank, code in enumerate(codes)
            if code
        ]
        if None in codes and not faults:
            faults = [f"rank {codes.index(None)} is not over after {most:.0f} s; see the part's log"]
        answers = [Path(folder) / f"{position}.json" for position in range(count)]
        found = [Found(**json.loads(path.read_text(encoding="utf-8"))) for path in answers if path.exists()]
        return found, faults


def _rank(setting: Setting, position: int, count: int, names: list[str], folder: str) -> None:
    """One rank, in a process of its own. What it has found so far is written after each engine."""
    device = bind(setting.kind, position % count_devices(setting.kind), count)
    with device.aside(TRAINING).begin():
        found = Found()
        answer = Path(folder) / f"{position}.json"
        group = _joined(device, position, count, Path(folder))
        large = not setting.is_small
        graph = resnet50() if large else residual()
        side, classes = (224, 1000) if large else (graph.input[1], graph.classes)
        batch_size = count * setting.sized(BATCH, SMALL_BATCH)
        changes: dict[str, Any] = {} if large else {"data.channels": graph.input[0]}
        config = generated(side, classes, batch_size, device.formats[0], **changes)
        for name in names:
            trials = Trials.of(config, device, name, group)
            _measured(trials, graph, setting.sized(SECONDS, SMALL_SECONDS), found)
            answer.write_text(json.dumps(asdict(found)), encoding="utf-8")
        if count > 1:
            found.fell_back = _failing(Trials.of(config, device, FAILING, group), graph)
        began = perf_counter()
        group.close()
        found.left_seconds = perf_counter() - began
        answer.write_text(json.dumps(asdict(found)), encoding="utf-8")


def _measured(trials: Trials, graph: Graph, seconds: float, found: Found) -> None:
    """Trains a trial, and adds its rate or the reason why its engine was not used."""
    running = trials.begin(trials.prepared(graph))
    if running.reasons:
        found.reasons[trials.engine] = running.reasons[0]
    else:
        meter = Meter(trials.rank.device)
        with meter.during(trials.engine):
            found.rates[trials.engine] = trials.rate(running, seconds)
        use = meter.use(trials.engine)
        found.uses[trials.engine] = use.watts, use.hertz
    running.close()


FAILING = "failing"


class Failing(Engine):
    """The eager engine, which the last rank of a group cannot prepare."""

    name = FAILING
    is_made_anew = True
    is_last = False

    def prepare(self, examples: Tensor, labels: Tensor) -> None:
        if self.is_last:
            raise RuntimeError(FAILS)


def _failing(trials: Trials, graph: Graph) -> str:
    """The reason that this rank gives for its fall back, after which it has made one more step with the
    others."""
    group = trials.rank.parallel
    Failing.is_last = group.rank == group.ranks - 1
    kinds: Any = KINDS
    kinds[FAILING] = Failing
    try:
        running = trials.begin(trials.prepared(graph))
        running.make(1)
        running.close()
    finally:
        del kinds[FAILING]
    return running.reasons[0] if running.reasons else ""


def _joined(device: Device, position: int, count: int, folder: Path) -> Ddp:
    """The group of this rank, which meets where its leader has written."""
    meeting = folder / "meeting"

    def say(own: Meeting) -> None:
        unfinished = folder / "meeting.unfinished"
        unfinished.write_text(json.dumps([own.host, own.port, SECRET]), encoding="utf-8")
        unfinished.replace(meeting)

    def hear() -> Join:
        while not meeting.exists():
            sleep(POLL_SECONDS)
        return Join(*json.loads(meeting.read_text(encoding="utf-8")))

    return Ddp(device, layout(("here",) * (count + 1))[position], "none", say, hear)
