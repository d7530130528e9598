"""What ranks report of themselves, of the machine and of their trials, and the journal keeps.

They cross the wire as messages to the master (`aiperf.wire.messages`), or are made there of such messages.
Field names are also the keys of the journal, so they never change. Durations are in seconds of a monotonic
clock.

The file is long, because every record of the journal that a rank reports is here, with the meaning and the
unit of each key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from aiperf.tasks.images.tally import Classified
from aiperf.tasks.language.tally import Predicted
from aiperf.tasks.tally import Tally
from aiperf.wire.trial import State
from nas.frozen import frozen
from nas.layers.layer import LATER
from nas.portable.preparation import Preparation

TALLIES: tuple[type[Tally], ...] = (Classified, Predicted)
"""The kinds of this program's tasks, imported here so that a message with any of them can be read."""


@frozen
class StepTime:
    """Time of one training step of the run's typical network with one engine, measured before the span on
    every rank of a group; the slowest rank counts."""

    seconds: float
    """Median time of a step in seconds; 0 if the engine cannot be used."""
    prepare_seconds: float = 0.0
    """Time in seconds to build, capture or compile the engine before its first step."""
    why_not: str = ""
    """Reason why the engine cannot be used; empty if it can."""
    error: float = 0.0
    """Standard error of the median, as a fraction of it."""


SEED, TYPICAL = "seed", "typical"
"""The two networks whose steps are timed before the span; only the second if both are one."""


@frozen
class TimedStep:
    """Time of one training step on one rank with a number of threads and an engine, measured before the
    span."""

    network: str
    """SEED, or TYPICAL (`nas.search.typical`)."""
    threads: int
    engine: str
    seconds: float
    """Median time of a step of the rank's whole batch in seconds."""
    rounds: int
    """Number of steps that were timed; fewer than of others if it was given up as too slow."""


@frozen
class FromGroup:
    """A message from a group to the master. The leader speaks for the group, but each rank is initialised and
    measured by itself, and a failure is reported by the rank on which it happened."""


@frozen
class TimedAllReduce:
    """Time of an all-reduce of one size."""

    bytes: int
    seconds: float
    """Mean time of one all-reduce in seconds, on the slowest rank."""


LEAST_SECONDS = 1e-12
"""No clock shows a shorter time in seconds, also divided by a number of repeats; but it may show none."""
MOST_COUNTED = 10**18
"""No figure of a measurement is larger, whatever its unit."""
DIED = -1
"""Value of `FabricPart.done` of a process that died."""


@frozen
class CoupledPart:
    """What one rank timed of the coupled control (see `Coupled`)."""

    network: str = ""
    size: int = 0
    batch_size: int = 0
    steps: int = 0
    alone_seconds: float = 0.0
    """Time of the steps of this rank by itself."""
    seconds: float = 0.0
    """Time of as many steps with averaged gradients, on the slowest rank."""
    done: int = 0
    """As `FabricPart.done`."""
    reason: str = ""
    """As `FabricPart.reason`."""


@frozen
class FabricPart(FromGroup):
    """What one rank measured of the fabric, in a process that has ended by now."""

    rank: int
    host: str
    node: int
    """Position of the host among those of the run (`Place.host_index`)."""
    backend: str = ""
    """Library of the collectives as torch names it, such as nccl."""
    within: tuple[TimedAllReduce, ...] = ()
    """All-reduces over the ranks of this host, by rising size; empty if there is one rank."""
    over_all: tuple[TimedAllReduce, ...] = ()
    """All-reduces over all ranks, by rising size; empty if there is one host."""
    pairs: tuple[float, ...] = ()
    """Bytes per second that this rank sent to its counterpart and received at the same time, by round
    (`aiperf.wire.fabric.rounds`); 0 in a round without a counterpart."""
    transports: Mapping[str, int] = field(default_factory=dict)
    """Number of connections by transport, as NCCL reports them; for Gloo the interface and its speed. Empty
    if the library reports nothing."""
    rdma_ports: int = 0
    """Number of active RDMA ports of the host."""
    seconds: float = 0.0
    """From the start of the process to its end."""
    done: int = 0
    """Number of parts of the work that were done; DIED if the process was killed, for which the others then
    waited."""
    reason: str = ""
    """What was not done, and why; empty if everything was, but for the coupled control."""
    coupled: CoupledPart | None = None
    """None if the process had not come so far."""


@frozen
class FabricNode:
    """What was measured of the fabric on one host."""

    host: str
    within: tuple[TimedAllReduce, ...] = ()
    rdma_ports: int = 0
    reason: str = ""
    """Why the measurement did not end, if it was because of this host; empty otherwise."""


@frozen
class Coupled:
    """Training steps of the task's control network with gradients averaged over all ranks of the run, timed
    next to the same steps of each rank by itself, all ranks at once."""

    network: str
    """As `Rung.network`."""
    size: int
    """As `Rung.size`."""
    batch_size: int
    """Training examples of one rank per step."""
    steps: int
    seconds: float
    """Time of the coupled steps in seconds, on the slowest rank."""
    uncoupled_per_second: float
    """Training examples per second of all ranks together, each by itself."""
    reason: str = ""
    """Why nothing is known, with the hosts for which the others waited; empty if everything is."""

    @property
    def impossible(self) -> bool:
        """Whether a figure is one that nobody can measure, of which no ratio can be made."""
        counts = (self.batch_size, self.steps)
        if self.reason:
            return min(*counts, self.seconds, self.uncoupled_per_second) < 0
        return not (
            all(1 <= count <= MOST_COUNTED for count in counts)
            and LEAST_SECONDS <= self.seconds <= MOST_COUNTED
            and 1 / MOST_COUNTED <= self.uncoupled_per_second <= MOST_COUNTED
        )


@frozen
class Fabric:
    """What lies between the devices of a run, as all ranks measured it together."""

    ranks: int
    backend: str
    nodes: tuple[FabricNode, ...]
    """The hosts, in the order of their first ranks."""
    over_all: tuple[TimedAllReduce, ...]
    rounds: tuple[tuple[float, ...], ...]
    """Bytes per second that each pair of hosts exchanged in each direction, by round and pair
    (`aiperf.wire.fabric.rounds`)."""
    transports: Mapping[str, int]
    """Number of connections of all ranks by transport."""
    seconds: float
    """Time in seconds of the slowest rank, from the start of its process."""
    missing: tuple[int, ...] = ()
    """Ranks that reported nothing, because their group was lost."""
    coupled: Coupled | None = field(default=None, metadata=LATER)
    """None in journals of earlier versions of the rules, and if the ranks had not come so far."""

    @property
    def whole(self) -> bool:
        """Whether every rank did its part to the end."""
        return not self.missing and not any(node.reason for node in self.nodes)

    @property
    def impossible(self) -> bool:
        """Whether a figure is one that nobody can measure, of which no ratio can be made."""
        timed = [*self.over_all, *(each for node in self.nodes for each in node.within)]
        rates = [rate for pairs in self.rounds for rate in pairs]
        counts = [*self.transports.values(), *(node.rdma_ports for node in self.nodes)]
        return (
            not max(1, len(self.nodes)) <= self.ranks <= MOST_COUNTED
            or min([self.seconds, *rates, *counts]) < 0
            or (self.coupled is not None and self.coupled.impossible)
            or any(
                each.bytes < 1 or not (each.seconds == 0 or each.seconds >= LEAST_SECONDS) for each in timed
            )
        )


@frozen
class Processor:
    """Properties of a CPU that bound its speed (`aiperf.hardware.bound`), if the CPU is the device."""

    machine: str
    """Architecture as the operating system names it, such as x86_64 or aarch64."""
    logical: int
    """Number of logical processors of the host."""
    top_hertz: float
    """Highest clock rate in Hz, with boost; 0 if the host does not report it."""
    flags: tuple[str, ...]
    """CPU flags of the instruction sets that multiply vectors or tiles (`aiperf.hardware.bound.FLAGS`)."""
    vector_bits: int = 0
    """Length of Arm's scalable vectors (SVE) in bits; 0 without SVE."""


NOTE = "accelerators"
"""Key of `Ready.settings` for what the user should know about the choice of the device."""
NEAR = "near cores"
"""Key of `Ready.settings` for the cores near its device to which a rank has narrowed itself."""
TRAITS = ("torch build", "caches", "multiprocessors", "architecture", "revision")
"""Keys of `Ready.settings` for what the bits of a device's results depend on (`Device.traits`)."""


@frozen
class Ready(FromGroup):
    """One rank is initialised: its device is bound, its data is loaded and checked.

    The master compares these fields between ranks and refuses the run before the clock starts if ranks differ
    in code, data or initial weights.
    """

    rank: int
    host: str
    pid: int
    device: str
    """Name of the device as its vendor reports it; the listed peak is looked up by this name."""
    memory_bytes: int
    """Memory of the device in bytes."""
    software: Mapping[str, str]
    """Versions of the software that the figures depend on, by name: Python, torch, system, driver."""
    code_hash: str
    """Hash of the installed program (`aiperf.host.code`)."""
    data: Mapping[str, Any]
    """Manifest of the data set as this rank reads it (docs/data.md)."""
    initial_weights: str
    """SHA-256 of the seed's initial weights."""
    wall_seconds: float
    """Time of day of the host in seconds since 1970, read when the message is sent. The master compares it
    with its own to find hosts whose clocks are not synchronised."""
    seconds: float
    """Time of the rank's initialisation, loading of the data included, in seconds."""
    visible_devices: int = 1
    """Number of devices of this kind that the rank can see, by which the master finds devices without a
    rank."""
    device_id: str = ""
    """Identifier of the device, unique on its host, such as a UUID; empty for a CPU, and if the driver
    reports none."""
    sees_run: bool = True
    """Whether the rank shares the run directory with the master (`Setup.probe`)."""
    multiplies: Mapping[str, str] = field(default_factory=dict)
    """Number format that each kind of product really used while the run's format was declared, measured by
    multiplying (`aiperf.measuring.precision`)."""
    formats: Mapping[str, float] = field(default_factory=dict)
    """Operations per second of a matrix product, by format; on a CPU a small one on one thread. A format that
    the device emulates is slower by orders of magnitude."""
    processor: Processor | None = None
    """Properties of the CPU; None if the device is not a CPU."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the rank's environment, by name: threads, ISA, governor, job, container, MPI, variables,
    and a note on accelerators that are not used."""
    data_note: str = ""
    """What was read of a folder and what was left out, for the user; empty for other data."""
    preparation: Preparation | None = None
    """How an example becomes the input of a network; None if it is generated, and in older journals."""


@frozen
class Rate:
    """Rate of one kind of work, measured over many short windows."""

    fastest: float
    """Highest rate of a window, or on a CPU of a single piece of work; this is the ceiling."""
    typical: float
    """Median rate of the windows, by which ranks are compared."""
    spread: float
    """Robust standard deviation of the windows (1.4826 times the median absolute deviation), as a fraction of
    the median."""


@frozen
class Ceiling(FromGroup):
    """Ceilings of one device: its highest rates in short and simple work, measured before the clock
    starts."""

    rank: int
    host: str
    device: str
    format: str
    """Number format of the products, `training.format`."""
    side: int
    """Side of the square matrices that were multiplied fastest; 0 if the tall ones were (`ceiling.TALL`)."""
    product: Rate
    """Operations per second of the fastest matrix product; a multiply-accumulate counts as two."""
    copy: Rate
    """Bytes per second, read plus written, of a copy within the device's memory."""
    upload: Rate | None = None
    """Bytes per second from pinned host memory to the device; None for a CPU."""
    all_reduce: Rate | None = None
    """Size in bytes of a tensor that is summed over the group, divided by the time of the all-reduce; None
    for a group of one rank."""
    seed: Rate | None = None
    """Tensor operations per second of forward and backward passes of the run's typical network (the seed, or
    the seed grown into the search bounds); None if one pass takes too long to be measured."""
    threads: int = 0
    """Number of threads that this rank uses from now on, the best for steps of the typical network; 0 if the
    device is not a CPU. A trial may have another one (`Started.threads`)."""
    thread_seconds: Mapping[str, float] = field(default_factory=dict)
    """Median time in seconds of the work by which the number of threads was chosen, by number of threads;
    empty without a choice."""
    threads_share: float = 0.0
    """Fraction of bootstrap resamples of the measurements that choose the same number of threads; 0 if too
    few rounds were timed."""
    steps: Mapping[str, StepTime] = field(default_factory=dict)
    """Step times of the typical network by engine, each with the number of threads that is best for it; empty
    if `training.step` is eager, or if a step takes too long to be timed."""
    thread_products: Mapping[str, Rate] = field(default_factory=dict)
    """Operations per second of the fastest matrix product, by number of threads; for the number in use this
    is `product`. A number of threads is missing if its products would have taken too long; the mapping is
    empty without a choice."""
    timed: tuple[TimedStep, ...] = ()
    """Times of this rank's steps by network, number of threads and engine, from which the threads of each
    trial are chosen; empty without a choice, and if a step takes too long to be timed."""
    seed_steps: Mapping[str, StepTime] = field(default_factory=dict)
    """As `steps`, of the seed; empty if it is the typical network, or without a choice of threads."""

    @property
    def products(self) -> Mapping[str, Rate]:
        """`thread_products`, or `product` alone if only one number of threads was measured."""
        return self.thread_products or {str(self.threads): self.product}

    @property
    def fastest(self) -> float:
        """Operations per second of the fastest work that was measured with `threads`, product or network."""
        return max(self.product.fastest, self.seed.fastest if self.seed else 0.0)

    def fastest_with(self, counts: Iterable[int]) -> float:
        """The same, also with each of these numbers of threads, as far as they were measured."""
        others = (self.thread_products[str(count)] for count in counts if str(count) in self.thread_products)
        return max([self.fastest, *(rate.fastest for rate in others)])


@frozen
class Rung:
    """Timed training steps of one control network on examples of one size."""

    size: int
    """Size of an example: side in pixels, or bytes of a window."""
    batch_size: int
    steps: int
    seconds: float
    """Time of all steps in seconds; on a CPU the median step times their number, because another program may
    interrupt one of a few steps."""
    network: str = ""
    """Short name of the smaller control network; empty for the task's control network itself."""

    @property
    def examples_per_second(self) -> float:
        """Training examples per second; 0 if `seconds` is 0, which the rule on measurements reports."""
        return self.batch_size * self.steps / self.seconds if self.seconds > 0 else 0.0


@frozen
class Control(FromGroup):
    """Timed training steps of the task's control network on synthetic examples, before the clock starts.

    The network is fixed, so its rate can be compared between runs that grew different architectures.
    """

    rank: int
    host: str
    device: str
    batch_size: int
    steps: int
    seconds: float
    """Time of the steps in seconds, as in `Rung`."""
    examples_per_second: float
    """Training examples per second: `batch_size` times `steps` over `seconds`."""
    size: int = 224
    """Size of an example: side in pixels, or bytes of a window. A CPU uses smaller examples if the largest
    take too long."""
    network: str = ""
    """Short name of `ControlNetwork.smaller` if a CPU reached only that one; else empty."""
    others: tuple[Rung, ...] = ()
    """Smaller rungs that a CPU timed before this one, the smallest first. Two devices are compared at a rung
    that both have."""

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """All timed rungs, this control last."""
        return (*self.others, Rung(self.size, self.batch_size, self.steps, self.seconds, self.network))


@frozen
class DeviceCheck(FromGroup):
    """What a device computed: the weights of a fixed network after a fixed number of deterministic steps."""

    rank: int
    digests: tuple[str, ...]
    """SHA-256 of all weights after each lap of the training, each value once; more than one if the laps
    differ, and none if nothing was computed."""
    laps: int
    seconds: float
    """Time of all laps in seconds, the making of the network included."""
    why_not: str = ""
    """Why nothing was computed; empty if it was."""


@frozen
class Started(FromGroup):
    """A trial is prepared, and its first step is about to begin."""

    trial: int
    attempt: int
    graph_key: str
    """Key of the architecture that the group has built, so that the rules can compare it with the dispatched
    one."""
    prepare_seconds: float
    """Time from assignment to readiness in seconds; most of it overlaps with the training of the previous
    trial."""
    engine: str = "eager"
    """Engine that will make the training steps, one of `aiperf.config.ENGINES`."""
    chosen: str = ""
    """Reason for the choice of the engine."""
    threads: tuple[int, ...] = ()
    """Number of threads of each rank of the group, in the order of the group, for the steps of this trial;
    empty if the devices are not CPUs, and in older journals."""


@frozen
class Fallback(FromGroup):
    """The chosen engine cannot make the steps of this trial, or its step differs from torch's, so the trial
    is trained eagerly from here on."""

    trial: int
    attempt: int
    engine: str
    """The engine that was given up."""
    reason: str


@frozen
class HostUse(FromGroup):
    """Use of a host's processors in one interval. The first rank of the host sends it for all. It is no sign
    of life of the rank: another process measures it."""

    rank: int
    seconds: float
    """Length of the interval in seconds."""
    available: float
    """CPU seconds that the run could have used: the processors of its affinity, within its quota."""
    own: float
    """CPU seconds of the run's processes."""
    idle: float
    """CPU seconds for which these processors were idle."""
    stolen: float
    """CPU seconds that the hypervisor took."""
    stopped: float
    """Time in seconds for which a process of the run was stopped."""
    age_seconds: float = 0.0
    """Time from the end of the interval to the sending of this message, in seconds."""

    @property
    def others(self) -> float:
        """CPU seconds that the run could have used, but neither used nor left idle."""
        return min(self.available, max(0.0, self.available - self.own - self.idle))


NOTHING_KEPT = -1
"""Value of `Finished.kept` if no validation ended in time, so no weights were kept."""


@frozen
class Finished(FromGroup):
    """An attempt at a trial has ended. The weights of its best validation are on disk by now, so the trial
    can become a parent at once."""

    trial: int
    attempt: int
    state: State
    reason: str
    """Why the trial ended; for a failure, the rank, the host and the error."""
    out_of_memory: bool = False
    """Whether the failure was a lack of memory."""
    traceback: str = ""
    """Python traceback of a failure."""
    weights: str = ""
    """SHA-256 of the file of kept weights; empty if none was written."""
    age_seconds: float = 0.0
    """Time from the end of the trial's last work to the sending of this message, in seconds; the weights are
    written in between."""
    kept: int | None = None
    """Index of the segment whose validation was the best, after which the weights were kept; NOTHING_KEPT if
    there is none; None if the trial failed or never began."""


@frozen
class Evaluated(FromGroup):
    """Result of the kept weights of a trial on the test examples."""

    trial: int
    tally: Tally
    seconds: float
    """Time of the evaluation in seconds."""
    top5: int | None = None
    """Number of test images whose label is among the five highest outputs; None for five classes or fewer,
    and for language."""

    @property
    def top5_error(self) -> float | None:
        """Fraction of the test images whose label is not among the five highest outputs."""
        return None if self.top5 is None or not self.tally.of else 1 - self.top5 / self.tally.of
