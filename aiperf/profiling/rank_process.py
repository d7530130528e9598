"""One rank of a profile: a process that reads its work from a file, and writes its record into another.

python -m aiperf.profiling.rank_process DIRECTORY POSITION
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from dataclasses import replace
from pathlib import Path

from aiperf.data import load
from aiperf.device import Device, choose
from aiperf.device.device import is_out_of_memory
from aiperf.errors import AiperfError, WorldError
from aiperf.host.child_process import die_with_parent
from aiperf.measuring.ceiling import measure_copy, measure_products
from aiperf.measuring.precision import format_rates
from aiperf.parallel.ddp import Ddp
from aiperf.parallel.parallel import Parallel, Solo, lead
from aiperf.profiling.steps import FirstBatch, TrialSteps, measure_memory, predict_memory, run_rounds
from aiperf.profiling.work import ANSWER, AUTO, MEETING, TRACE, WORK, ProfileWork
from aiperf.proposing.memory_model import PROCESSOR, step_parts
from aiperf.training.built_trial import Rank, build
from aiperf.training.evaluation import evaluate
from aiperf.training.kept_network import Kept
from aiperf.wire.layout import layout
from aiperf.wire.messages import Join, Meeting
from aiperf.wire.profile_records import Ceilings, Recorded
from aiperf.wire.trial import Trial
from aiperf.wording import bytes_text
from nas.graph import Graph
from nas.record import decode, encode, graph_from_json
from nas.weights import initial

CEILING_SECONDS = 0.5
"""Time in seconds for the products of one size, and for copies."""


def main() -> int:
    """Profiles the work and writes the answer. Returns the exit code: 1 for an error that the user can
    fix."""
    die_with_parent()
    directory, position = Path(sys.argv[1]), int(sys.argv[2])
    work = decode(ProfileWork, json.loads((directory / WORK).read_text(encoding="utf-8")))
    answer = directory / ANSWER.format(position)
    try:
        found = {"recorded": encode(_profiled(work, directory, position))}
    except AiperfError as error:
        found = {"refused": str(error)}
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        batch = work.hyper.batch_size
        found = {"refused": f"a step of {batch} examples does not fit into memory; use a smaller --batch"}
    answer.write_text(json.dumps(found), encoding="utf-8")
    return "refused" in found


def _profiled(work: ProfileWork, directory: Path, position: int) -> Recorded:
    """Profiles the work on this rank: ceilings first, then steps, a validation, and memory. Raises
    AiperfError for data or a network that cannot be profiled, and what torch raises."""
    device = _bound(work)
    graph = graph_from_json(dict(work.graph))
    refuse_too_large(graph, work, device.memory_bytes)
    parallel = _joined(work, device, directory, position)
    training = replace(work.training, format=_format(work, device, parallel))
    device.declare(training.format)
    ceilings = work.ceilings or _ceilings(device, training.format, parallel)
    # Nothing is staged: a few steps are too short to pay for a copy of the whole set.
    data = load(replace(work.data, stage=""), device.torch, work.random_seed, work.ranks)
    rank = Rank(device, data, training, parallel)
    trial = Trial(0, None, (), work.hyper, 1, 1, work.random_seed)
    attempt = build(rank, trial, 1, Kept(graph, initial(graph, work.random_seed), {}))
    steps = TrialSteps(rank, attempt)
    rounds = run_rounds(steps, work.rounds)
    if work.trace and position == 0:
        rounds.write_trace(directory / TRACE)
    part = FirstBatch(data.validation, work.hyper.batch_size)
    evaluate(rank, attempt.network, part)  # not counted: torch loads and compiles what it needs
    tally, seconds = evaluate(rank, attempt.network, part)
    # Last, because its profiler records every allocation and slows the steps down.
    memory = measure_memory(steps)
    examples = work.hyper.batch_size // work.ranks
    parallel.close()
    return Recorded(
        graph=work.graph,
        ranks=work.ranks,
        examples=examples,
        format=training.format,
        device=device.name,
        threads=device.threads,
        memory_bytes=device.memory_bytes,
        software=device.software(),
        plain_seconds=rounds.plain_seconds,
        profiled_seconds=rounds.profiled_seconds,
        chosen=rounds.chosen,
        steps=rounds.steps,
        validated=tally.of,
        validate_seconds=seconds,
        memory=memory,
        modelled=step_parts(graph, training, examples, work.ranks, device.kind) or {},
        predicted=predict_memory(graph, training, work.hyper, device, examples) if position == 0 else None,
        ceilings=ceilings,
        trace=TRACE if work.trace else "",
    )


def refuse_too_large(graph: Graph, work: ProfileWork, device_bytes: int) -> None:
    """Raises WorldError if the step is known to need more memory than the device has, by the model of `run
    --dry-run`. All ranks share the memory of a CPU. A network whose memory is unknown is tried."""
    format = "bf16" if work.training.format == AUTO else work.training.format
    own = work.hyper.batch_size // work.ranks
    parts = step_parts(graph, replace(work.training, format=format), own, work.ranks, PROCESSOR)
    if parts is None:
        return
    needed = work.ranks * sum(parts.values())
    if needed > device_bytes:
        examples = f"{work.hyper.batch_size} {graph.head.example}s"
        raise WorldError(
            f"a step of {examples} needs about {bytes_text(needed)} (modelled), and the device has "
            f"{bytes_text(device_bytes)}; use a smaller --batch"
        )


def _bound(work: ProfileWork) -> Device:
    """The CPU. Raises WorldError for other devices: their host runs ahead of them, so the times of the host's
    operations would be shown as those of the device. All ranks of the profile share its cores."""
    choice = choose(work.device)
    if choice.kind != PROCESSOR:
        raise WorldError(
            f"profile supports CPUs only, and this is a {choice.kind} device; use --device cpu, or the "
            f"vendor's profiler"
        )
    return choice.bind(0, work.ranks)


def _joined(work: ProfileWork, device: Device, directory: Path, position: int) -> Parallel:
    """The group of this rank. The leader writes its address into a file that the others wait for; it is
    renamed when it is whole."""
    if work.ranks == 1:
        return Solo()
    meeting = directory / MEETING

    def say(own: Meeting) -> None:
        unfinished = directory / f"{MEETING}.unfinished"
        unfinished.write_text(json.dumps([own.host, own.port, secrets.token_hex(16)]), encoding="utf-8")
        unfinished.replace(meeting)

    def hear() -> Join:
        while not meeting.exists():
            time.sleep(0.01)
        return Join(*json.loads(meeting.read_text(encoding="utf-8")))

    place = layout(("here",) * (work.ranks + 1))[position]
    return Ddp(device, place, work.training.compression, say, hear)


def _format(work: ProfileWork, device: Device, parallel: Parallel) -> str:
    """The number format; with auto, the leader's fastest one, on every rank."""
    if work.training.format != AUTO:
        return work.training.format
    # The leader decides, because ranks that measure by themselves could choose different formats.
    rates = format_rates(device)
    fastest = max(rates, key=lambda format: rates[format])
    return device.formats[lead(parallel, device.formats.index(fastest))]


def _ceilings(device: Device, format: str, parallel: Parallel) -> Ceilings:
    """Ceilings of this rank, measured by all ranks at once, so that each has its share of the cores and of
    the memory's bandwidth. The sums before each part let all ranks begin it together."""
    parallel.total(0)
    products = measure_products(device, format, CEILING_SECONDS)
    parallel.total(0)
    copied = measure_copy(device, CEILING_SECONDS)
    return Ceilings(max(product.rate.fastest for product in products), copied.fastest)


if __name__ == "__main__":
    sys.exit(main())
