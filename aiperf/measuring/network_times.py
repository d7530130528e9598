"""What a rank measures with the networks of a run before the span: their rate, the best threads and engine.

On a CPU that has a choice of threads, all of these are timed together with the engines, on the seed and on
the run's typical network, in the same rounds: threads that are best for eager steps need not be best for
fused ones, nor those of a small network for a large one. The threads of a product wait for each other by
spinning: if one of them loses its core to another program, the others spin until the kernel gives it back,
and a step on all cores takes up to a hundred times as long as one on all cores but one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    TimedPass,
    largest_batch,
    network_rate,
)
from aiperf.measuring.ceiling import Multiply, rate_of
from aiperf.measuring.step_times import (
    PreparedEngine,
    StepBench,
    Timing,
    agreed_batch_size,
    bench_of,
    in_turn,
    measure_steps,
    prepared_engines,
    shared_times,
    times_of,
)
from aiperf.measuring.training_step import RankWork
from aiperf.parallel.parallel import Solo
from aiperf.proposing.engine_choice import Expected, Sizes, choose
from aiperf.proposing.thread_choice import (
    LEAST_ROUNDS,
    Pair,
    Threads,
    best_pair,
    most_near_best,
    reliability,
)
from aiperf.wire.reports import SEED, TYPICAL, Rate, StepTime, TimedStep
from nas.frozen import frozen
from nas.graph import Graph

WARM_UP = 2
"""Steps of each contender in addition to LEAST_ROUNDS that must fit into the time: those before the first
round."""
SMALL = 256
"""Side of the square product by which numbers of threads are compared if one pass of the network takes too
long."""
SURE = 0.99
"""Fraction of the resamples that must agree for the measurement to end early."""
ENOUGH_ROUNDS = 2 * LEAST_ROUNDS
"""Minimum number of rounds before a measurement ends early: an engine must save two standard errors, which
fewer rounds make large."""
HOPELESS = 4.0
"""Factor on the best of a network by which both first steps of a contender may take longer for it to be timed
again. If the first one takes longer by the square of it, there is no second."""
BEHIND = 1.5
"""Factor on the best median of a network by which the fastest step of a contender may take longer, after
LEAST_ROUNDS. A contender that other programs only disturb has some step that is faster."""


@frozen
class Contender:
    """What may make the steps of a network."""

    network: str
    """SEED or TYPICAL."""
    threads: int
    engine: str
    """Name of the engine."""

    @property
    def pair(self) -> Pair:
        return self.threads, self.engine


Times = Mapping[Contender, Sequence[float]]
"""Times of steps in seconds, in the order of the rounds."""


def measure_network(
    device: Device,
    work: RankWork,
    seed: Graph,
    rate: float,
    seconds: float,
    timing: Timing | None = None,
) -> NetworkTimes:
    """Measures the steps of the typical network `work` and of the seed, and uses the best number of threads
    from now on. It takes about `seconds`, and those of `timing`. If engines are timed, all ranks of a
    group must call it at once.

    `rate` is that of a small product on one thread in operations per second, by which the time of the first
    pass is estimated. If a step takes too long on some rank, all ranks time a smaller batch; if even the
    smallest takes too long, no engines are timed, and the number of threads is chosen by small products. An
    engine whose step differs from the eager one's is not timed.
    """
    device.declare(work.format)
    if len(device.thread_counts) > 1:
        return _with_threads(device, work, seed, rate, seconds, timing)
    found = network_rate(device, work, rate, seconds)
    steps = measure_steps(device, work, found, timing) if timing else {}
    if timing and steps:  # another rank may have a choice of threads, and shares its times of the seed
        shared_times({name: StepTime(0.0) for name in timing.names}, 1.0, timing.parallel)
    return NetworkTimes(found, steps=steps)


def examples_per_second(device: Device, work: RankWork, rate: float, seconds: float) -> tuple[float, bool]:
    """The training rate of one device, measured in about `seconds`, and whether it was measured. If one pass
    takes longer, it is estimated from `rate`, that of a small product on one thread in operations per
    second."""
    found = measure_network(device, work, work.network, rate, seconds).rate
    operations = found.typical if found else rate / SLOWER
    return operations / work.operations(1), found is not None


def _with_threads(
    device: Device, work: RankWork, seed: Graph, rate: float, seconds: float, timing: Timing | None
) -> NetworkTimes:
    """As `measure_network`, on a CPU that has a choice of threads. First the largest batch is sought on the
    fewest threads: then it is known how large a batch can be, of which all contenders get LEAST_ROUNDS.

    The search for the batch may take longer than its share, because a first pass also loads libraries, from a
    disk that may be slow. This time is not taken from the contenders: a choice from few or no steps would not
    be made again by the next run.
    """
    counts, seconds = device.thread_counts, seconds + (timing.seconds if timing else 0.0)
    device.use_threads(counts[0])
    began = perf_counter()
    largest = largest_batch(device, work, rate, CLIMBING * seconds)
    until = max(began + seconds, perf_counter() + (1 - CLIMBING) * seconds)
    size = Sizes(seed, work.network, work.batch_size).seed_size
    names = [name for name in (timing.names if timing else (Engine.name,)) if not KINDS[name].is_made_anew]
    own = 0.0
    if largest:
        each = len(names) * sum(1 / count for count in counts) * (1 + (size if size < 1 else 0))
        one = largest.seconds / largest.batch_size
        own = min(largest.batch_size, (until - perf_counter()) / ((LEAST_ROUNDS + WARM_UP) * each * one))
    left = until - perf_counter()
    if fitting := agreed_batch_size(own, work, timing):
        return _jointly(device, counts, work, seed, names, fitting, left, timing)
    return _by_pieces(device, counts, work, rate, largest, left)


def _by_pieces(
    device: Device,
    counts: Sequence[int],
    work: RankWork,
    rate: float,
    largest: TimedPass | None,
    seconds: float,
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
    timing: Timing | None,
) -> NetworkTimes:
    """Times steps of `num_examples` with all numbers of threads, with the engines that are not made for each
    network anew, on both networks; then the other engines, with the number of threads that was best."""
    sizes = Sizes(seed, work.network, work.batch_size)
    typical = bench_of(device, work.network, work.format, num_examples)
    prepared = prepared_engines(typical, work, timing, names)
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
    if timing:
        own = times_of(prepared, _at_best_threads(times, TYPICAL))
        device.use_threads(threads.count(Engine.name, 1.0) or device.threads)
        own |= _made_anew(typical, work, timing, own)
        seeds = times_of(prepared, _at_best_threads(times, SEED))
        steps, seed_steps = (
            shared_times(
                {name: each.get(name, StepTime(0.0)) for name in timing.names}, larger, timing.parallel
            )
            for each in (own, seeds)
        )
        longest = Expected(timing.longest_steps, 1.0, 1.0, timing.longest_seconds)
        engine, _ = choose(timing.training.step, steps, longest)
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
        name: each[most_near_best({count: median(took) for count, took in each.items()})]
        for name, each in found.items()
    }


def _made_anew(
    bench: StepBench, work: RankWork, timing: Timing, timed: Mapping[str, StepTime]
) -> dict[str, StepTime]:
    """Step times of the engines that were not timed, with the threads in use. They are compared with eager
    steps that are timed in the same rounds."""
    names = [name for name in timing.names if name not in timed]
    prepared = prepared_engines(bench, work, timing, names)
    if all(each.why_not for each in prepared.values()):
        return times_of(prepared, {})
    eager = {Engine.name: PreparedEngine(bench.eager, 0.0)}
    found = times_of(eager | prepared, in_turn(bench, eager | prepared, timing.seconds))
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


def time_in_turn(
    contenders: Sequence[Contender],
    step: Callable[[Contender], float],
    seconds: float,
    least: int = LEAST_ROUNDS,
) -> Times:
    """Times of steps, measured in about `seconds`; `step` makes one and returns its time in seconds.

    The contenders take turns, because the load of other programs changes with time, and the fewest threads
    come first: with more, a step may take a hundred times as long. At least `least` rounds are timed, until
    the choice for the typical network is reliable or the time is over. A contender that cannot be chosen is
    given up, so that others are timed more often.
    """
    until, times = perf_counter() + seconds, _first_steps(contenders, step)
    left = [
        contender for contender in times if min(times[contender]) <= HOPELESS * _best(contender, times, min)
    ]
    times = {contender: each[1:] for contender, each in times.items()}  # the first steps were warm-up
    rounds, checked = 1, LEAST_ROUNDS
    while rounds < least or perf_counter() + sum(median(times[each]) for each in left) < until:
        for contender in left:
            times[contender].append(step(contender))
        rounds += 1
        if rounds == checked:
            if rounds >= ENOUGH_ROUNDS and reliability(of_typical(times))[1] >= SURE:
                break
            checked *= 2
            left = [each for each in left if min(times[each]) <= BEHIND * _best(each, times, median)]
    return times


def of_typical(times: Times) -> Mapping[Pair, Sequence[float]]:
    """The times with the typical network, by which a choice is made."""
    return {contender.pair: each for contender, each in times.items() if contender.network == TYPICAL}


def chosen(times: Times) -> Pair:
    """The number of threads and the engine for steps of the typical network."""
    return best_pair({pair: median(each) for pair, each in of_typical(times).items()})


def _first_steps(
    contenders: Sequence[Contender], step: Callable[[Contender], float]
) -> dict[Contender, list[float]]:
    """Two steps of each contender, of which the first warms up. Of a number of threads with which one
    contender is hopeless, compared with fewer threads, no other one is tried."""
    times: dict[Contender, list[float]] = {}
    hopeless = set[int]()
    for contender in sorted(contenders, key=lambda each: each.threads):
        if contender.threads in hopeless:
            continue
        times[contender] = [first := step(contender)]
        is_slow = first > HOPELESS**2 * _best(contender, times, min)
        times[contender].append(first if is_slow else step(contender))
        if min(times[contender]) > HOPELESS * _best(contender, times, min):
            hopeless.add(contender.threads)
    return times


def _best(contender: Contender, times: Times, figure: Callable[[Iterable[float]], float]) -> float:
    """The best figure of the contenders with the same network."""
    return min(figure(each) for other, each in times.items() if other.network == contender.network)
