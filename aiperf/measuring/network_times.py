"""What a rank measures with the networks of a run before the span: their rate, the best threads and engine.

On a CPU that has a choice of threads, all of these are timed together with the engines, on the seed and on
the run's typical network, in the same rounds: threads that are best for eager steps need not be best for
fused ones, nor those of a small network for a large one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter

from aiperf.device import Device
from aiperf.engines.agreement import prepare_only
from aiperf.engines.engine import Engine
from aiperf.engines.registry import KINDS
from aiperf.measuring.before_span import (
    CLIMBING,
    SLOWER,
    NetworkTimes,
    RankWork,
    Timed,
    largest_batch,
    network_rate,
)
from aiperf.measuring.ceiling import Multiply, rate_of
from aiperf.measuring.step_times import (
    Asked,
    PreparedEngine,
    StepBench,
    agreed,
    bench_of,
    in_turn,
    measure_steps,
    prepared_engines,
    shared,
    times_of,
)
from aiperf.measuring.threads import Contender, Times, chosen, of_typical, time_in_turn
from aiperf.parallel.parallel import Solo
from aiperf.proposing.engine_choice import Expected, Sizes, choose
from aiperf.proposing.thread_choice import LEAST_ROUNDS, Threads, fewest_near_best, reliability
from aiperf.wire.messages import SEED, TYPICAL, Rate, StepTime, TimedStep
from nas.graph import Graph

WARM_UP = 2
"""Steps of each contender in addition to LEAST_ROUNDS that must fit into the time: those before the first
round."""
SMALL = 256
"""Side of the square product by which numbers of threads are compared if one pass of the network takes too
long."""


def measure_network(
    device: Device, work: RankWork, seed: Graph, rate: float, seconds: float, asked: Asked | None = None
) -> NetworkTimes:
    """Measures the steps of the typical network `work` and of the seed, and uses the best number of threads
    from now on. It takes about `seconds`, and those of `asked`. If engines are asked for, all ranks of a
    group must call it at once.

    `rate` is that of a small product on one thread in operations per second, by which the time of the first
    pass is estimated. If a step takes too long on some rank, all ranks time a smaller batch; if even the
    smallest takes too long, no engines are timed, and the number of threads is chosen by small products. An
    engine whose step differs from the eager one's is not timed.
    """
    device.declare(work.format)
    if len(device.thread_counts) > 1:
        return _with_threads(device, work, seed, rate, seconds, asked)
    found = network_rate(device, work, rate, seconds)
    steps = measure_steps(device, work, found, asked) if asked else {}
    if asked and steps:  # another rank may have a choice of threads, and shares its times of the seed
        shared({name: StepTime(0.0) for name in asked.names}, 1.0, asked.parallel)
    return NetworkTimes(found, steps=steps)


def examples_per_second(device: Device, work: RankWork, rate: float, seconds: float) -> tuple[float, bool]:
    """The training rate of one device, measured in about `seconds`, and whether it was measured. If one pass
    takes longer, it is estimated from `rate`, that of a small product on one thread in operations per
    second."""
    found = measure_network(device, work, work.network, rate, seconds).rate
    operations = found.typical if found else rate / SLOWER
    return operations / work.operations(1), found is not None


def _with_threads(
    device: Device, work: RankWork, seed: Graph, rate: float, seconds: float, asked: Asked | None
) -> NetworkTimes:
    """As `measure_network`, on a CPU that has a choice of threads. First the largest batch is sought on the
    fewest threads: then it is known how large a batch can be, of which all contenders get LEAST_ROUNDS."""
    counts, seconds = device.thread_counts, seconds + (asked.seconds if asked else 0.0)
    until = perf_counter() + seconds
    device.use_threads(counts[0])
    largest = largest_batch(device, work, rate, CLIMBING * seconds)
    size = Sizes(seed, work.network, work.batch_size).seed_size
    names = [name for name in (asked.names if asked else (Engine.name,)) if not KINDS[name].is_made_anew]
    own = 0.0
    if largest:
        each = len(names) * sum(1 / count for count in counts) * (1 + (size if size < 1 else 0))
        one = largest.seconds / largest.batch_size
        own = min(largest.batch_size, (until - perf_counter()) / ((LEAST_ROUNDS + WARM_UP) * each * one))
    left = until - perf_counter()
    if fitting := agreed(own, work, asked):
        return _jointly(device, counts, work, seed, names, fitting, left, asked)
    return _by_pieces(device, counts, work, rate, largest, left)


def _by_pieces(
    device: Device, counts: Sequence[int], work: RankWork, rate: float, largest: Timed | None, seconds: float
) -> NetworkTimes:
    """The number of threads that is best for the largest batch that fits, or for small products if none
    does."""
    until = perf_counter() + seconds
    once = largest.once if largest else Multiply(device, work.format, SMALL, SMALL, SMALL)

    def step(contender: Contender) -> float:
        device.use_threads(contender.threads)
        began = perf_counter()
        once()
        return perf_counter() - began

    contenders = [Contender(TYPICAL, count, Engine.name) for count in counts]
    times = time_in_turn(contenders, step, seconds if largest else (1 - CLIMBING) * seconds, least=1)
    count, _ = chosen(times)
    device.use_threads(count)
    if largest:
        operations = work.operations(largest.batch_size)
        took = times[Contender(TYPICAL, count, Engine.name)]
        found: Rate | None = rate_of([operations / each for each in took])
    else:
        found = network_rate(device, work, rate, until - perf_counter())
    medians = {contender.threads: median(each) for contender, each in times.items()}
    return NetworkTimes(found, medians, reliability(of_typical(times))[0])


def _jointly(
    device: Device,
    counts: Sequence[int],
    work: RankWork,
    seed: Graph,
    names: Sequence[str],
    num_examples: int,
    seconds: float,
    asked: Asked | None,
) -> NetworkTimes:
    """Times steps of `num_examples` with all numbers of threads, with the engines that are not made for each
    network anew, on both networks; then the other engines, with the number of threads that was best."""
    sizes = Sizes(seed, work.network, work.batch_size)
    typical = bench_of(device, work.network, work.format, num_examples)
    prepared = prepared_engines(typical, work, asked, names)
    usable = {name: each.engine for name, each in prepared.items() if not each.why_not}
    benches, engines = {TYPICAL: typical}, {TYPICAL: usable}
    if sizes.seed_size < 1:
        benches[SEED] = bench_of(device, seed, work.format, num_examples)
        engines[SEED] = _unchecked(benches[SEED], usable)

    def step(contender: Contender) -> float:
        device.use_threads(contender.threads)
        return benches[contender.network].seconds(engines[contender.network][contender.engine])

    times = time_in_turn(
        [
            Contender(network, count, name)
            for count in counts
            for network, each in engines.items()
            for name in each
        ],
        step,
        seconds,
    )
    for network in engines.values():
        for made in network.values():
            made.release()
    larger = work.batch_size / num_examples
    timed = tuple(
        TimedStep(of.network, of.threads, of.engine, larger * median(each), len(each))
        for of, each in times.items()
    )
    threads, engine = Threads(timed, sizes.seed_size), chosen(times)[1]
    steps, seed_steps = dict[str, StepTime](), dict[str, StepTime]()
    if asked:
        own = times_of(prepared, _at_best_threads(times, TYPICAL))
        device.use_threads(threads.count(Engine.name, 1.0) or device.threads)
        own |= _made_anew(typical, work, asked, own)
        seeds = times_of(prepared, _at_best_threads(times, SEED))
        steps, seed_steps = (
            shared({name: each.get(name, StepTime(0.0)) for name in asked.names}, larger, asked.parallel)
            for each in (own, seeds)
        )
        longest = Expected(asked.longest.steps, 1.0, 1.0, asked.longest.seconds)
        engine, _ = choose(asked.training.step, steps, longest)
    count = threads.count(engine, 1.0) or device.threads
    device.use_threads(count)
    by_threads = {**threads.seconds(Engine.name, 1.0), **threads.seconds(engine, 1.0)}
    raced = engine if threads.seconds(engine, 1.0) else Engine.name
    of_engine = {pair: each for pair, each in of_typical(times).items() if pair[1] == raced}
    operations, eager = work.operations(num_examples), times[Contender(TYPICAL, count, Engine.name)]
    rate = rate_of([operations / took for took in eager])
    seed_steps = seed_steps if any(time.seconds > 0 for time in seed_steps.values()) else {}
    return NetworkTimes(rate, by_threads, reliability(of_engine)[0], timed, steps, seed_steps)


def _at_best_threads(times: Times, network: str) -> Mapping[str, Sequence[float]]:
    """The times of each engine with the number of threads that is best for it, on one network."""
    found: dict[str, dict[int, Sequence[float]]] = {}
    for of, each in times.items():
        if of.network == network:
            found.setdefault(of.engine, {})[of.threads] = each
    return {
        name: each[fewest_near_best({count: median(took) for count, took in each.items()})]
        for name, each in found.items()
    }


def _made_anew(
    bench: StepBench, work: RankWork, asked: Asked, timed: Mapping[str, StepTime]
) -> dict[str, StepTime]:
    """Step times of the engines that were not timed, with the threads in use. They are compared with eager
    steps that are timed in the same rounds."""
    names = [name for name in asked.names if name not in timed]
    prepared = prepared_engines(bench, work, asked, names)
    if all(each.why_not for each in prepared.values()):
        return times_of(prepared, {})
    eager = {Engine.name: PreparedEngine(bench.eager, 0.0)}
    found = times_of(eager | prepared, in_turn(bench, eager | prepared, asked.seconds))
    slower = timed[Engine.name].seconds / found[Engine.name].seconds
    return {name: replace(found[name], seconds=slower * found[name].seconds) for name in names}


def _unchecked(bench: StepBench, usable: Mapping[str, Engine]) -> dict[str, Engine]:
    """The same engines, for another network, without those that cannot be prepared for it. They were checked
    with the first network."""
    found = {}
    for name in usable:
        engine, reason = bench.eager, ""
        if name != Engine.name:
            engine, reason = prepare_only(KINDS[name], bench.eager, bench.examples, bench.labels, Solo())
        if not reason:
            found[name] = engine
    return found
