"""What a machine is assumed to be like, where nothing is trained: every number that a simulation rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from aiperf import toml
from aiperf.config import FORMATS
from aiperf.errors import ConfigError
from aiperf.os_error import unreadable
from nas.bounded import read_text
from nas.frozen import frozen
from nas.record import RecordError, decode

POSITIVE = (
    "memory_bytes",
    "speed.ops_per_second",
    "speed.validation",
    "group.all_reduce_bytes_per_second",
    "fabric.node_bytes_per_second",
    "data.node_cache_bytes",
    "heat.seconds",
    "storage.bytes_per_second",
    "storage.client_bytes_per_second",
    "errors.images.examples",
    "errors.language.examples",
)
"""What something is divided by, or a machine has some of."""
LEAST, MOST = 1e-12, 1e24
"""What is divided by, and any number: so that no time that follows leaves what a clock can count."""
SHARES = ("group.overlap", "spread.lineage", "errors.images.floor", "errors.language.floor")
SPREADS = (
    *("spread.node", "spread.block", "spread.network", "spread.device", "spread.step"),
    *("errors.images.spread", "errors.language.spread"),
)
MOST_SPREAD = 10.0
"""Largest standard deviation of a logarithm: two thirds of all draws lie within a factor of 22,000 of the
median."""


@frozen
class Speed:
    """How fast one device is. The time of a step grows with the network:
    seconds = step_seconds + layer_seconds * layers + operations / ops_per_second,
    so a small network is trained with less efficiency than a large one.
    """

    ops_per_second: float
    """Tensor operations per second of a network so large that nothing else takes time."""
    step_seconds: float = 0.0
    """Time that every step takes, whatever the network: that of the optimizer and of the program itself."""
    layer_seconds: float = 0.0
    """Time that each layer adds to a step: to start its kernels."""
    validation: float = 1.0
    """Times the speed of training, in operations per second; forward passes keep nothing for later."""


@frozen
class AllReduce:
    """What ranks that train together lose by that. A ring: 2 (r-1)/r times the bytes of the gradients."""

    all_reduce_bytes_per_second: float
    all_reduce_seconds: float
    """Latency of one all-reduce."""
    overlap: float
    """Share of a step's time behind which the all-reduce may hide (0 to 1)."""


@frozen
class NodeNetwork:
    """What joins the nodes: a tree of switches. A group on several nodes reduces in one ring over all its
    ranks, so that on each of its nodes as much leaves as comes in. All groups of a node are assumed to reduce
    at the same time, and to share what it sends."""

    node_bytes_per_second: float
    """What a node sends while it receives as much."""
    nodes_a_switch: int = 0
    """Number of nodes that reach each other without the core of the tree; 0: one switch joins all."""
    oversubscription: float = 1.0
    """What the nodes below a switch can send ÷ what it can send into the core: by so much less has a group
    whose nodes are below several switches."""
    hop_seconds: float = 0.0
    """Latency from a node to the next one. An all-reduce makes two for each node."""


@frozen
class TrainingData:
    """Reading training images from the file system. What a node has read once, it keeps in memory."""

    image_bytes: float
    """Mean size of an image's file. Generated images, text, and sets that a rank keeps in memory are not
    read."""
    node_cache_bytes: float
    """Memory of a node for files. What does not fit is read again in every epoch."""


UNLIMITED, NOT_READ = NodeNetwork(1e18), TrainingData(0.0, 1e18)
"""The parts of a machine model that states neither, as older ones."""


@frozen
class Storage:
    """The file system of the run directory, which holds the kept weights, and of the training data."""

    bytes_per_second: float
    """Bandwidth of the file system for all nodes together."""
    client_bytes_per_second: float
    """Bandwidth that one node reaches alone."""
    open_seconds: float
    """Time to open, create or remove a file."""


@frozen
class Trials:
    """What a group loses around a trial."""

    gap_seconds: float
    """Time between the end of a trial and the first step of the next one, which is prepared."""
    prepare_seconds: float
    """Time to build a network beside the trial before; reading the parent's weights is added to it."""
    first_step_seconds: float = 0.0
    """Additional time of the first step of a trial: libraries choose their kernels, and caches are cold."""


@frozen
class Spread:
    """How much nodes, moments and networks differ, as standard deviations of a logarithm."""

    node: float
    """Spread of the nodes' speeds, which stay for the whole run."""
    block: float
    """Spread of the times of blocks of steps."""
    network: float = 0.0
    """Spread of a network's rate relative to what `Speed` says of its operations and layers. Each morphism
    adds a draw, by the architecture that it makes, to what the child has from its parent; a seed is exactly
    as fast."""
    lineage: float = 1.0
    """Share of the logarithm of its parent's relative rate that a child has (0 to 1): layers that no morphism
    touched are as fast or as slow as before."""
    device: float = 0.0
    """Spread of the speeds of the devices of a node, which stay for the whole run. A group is as fast as its
    slowest device."""
    step: float = 0.0
    """Spread of the time of one step on one device, drawn for each step and each device. A group waits for
    the slowest of them in every step (`group_model.slowest`)."""


@frozen
class Heat:
    """Clocks that fall as devices get hot. Work that begins t seconds after the devices of a group were ready
    has 1 - slowdown * (1 - exp(-t / seconds)) of their rate at first."""

    slowdown: float
    """Share of the rate that a hot device lacks (0 to below 1); 0: clocks do not fall."""
    seconds: float
    """Time in which 63 % of that share is lost."""


COLD = Heat(0.0, 1.0)
"""The part of a machine model that says nothing of heat."""


@frozen
class Failures:
    """How often nodes and processes fail. 0: never."""

    node_hours: float
    """Mean time between failures of one node, exponentially distributed; it does not come back."""
    process_hours: float
    """Mean time between crashes of one rank's process; its group is started again."""
    noticed_seconds: float
    """Time from a failure until the master knows of it, where MPI or the launcher says so."""


@frozen
class StartUp:
    """Time from the start of the job until all ranks are ready: fixed + linear * ranks + square * ranks^2."""

    seconds: float
    seconds_a_rank: float
    seconds_a_rank_squared: float
    measuring_seconds: float
    """Time for ceilings and control together."""


@frozen
class Messages:
    """How long messages between ranks take, and the master's work on them."""

    seconds: float
    """Time of a message from one rank to another."""
    master_seconds: float
    """CPU time of the master for one message."""
    proposal_seconds: float
    """CPU time of the master for one new candidate."""


@frozen
class Errors:
    """The validation error of a network that was trained on n examples, those of its ancestors included:
    floor + (chance - floor) * (1 + n / examples) ** -power, where
    floor = floor * relative operations ** -size_power * exp(spread * z), z normal by the architecture,
    and chance is the task's: 1 - 1/classes of images, 1 of bytes, whose error is bits per byte / 8.
    """

    floor: float
    examples: float
    power: float
    size_power: float
    spread: float


@frozen
class ErrorLaws:
    """The law of errors of each task, under its name."""

    images: Errors
    language: Errors

    def of(self, task: str) -> Errors:
        law: Errors = getattr(self, task)
        return law


@frozen
class Assumptions:
    """The whole machine model, and where it comes from."""

    name: str
    """The machine's name, as tables show it."""
    source: str
    """Where the numbers come from: measured in a run, or published."""
    device: str
    """The name under which its devices stand in journals."""
    memory_bytes: int
    """Memory of a device."""
    speed: Speed
    group: AllReduce
    storage: Storage
    trials: Trials
    spread: Spread
    failures: Failures
    startup: StartUp
    messages: Messages
    errors: ErrorLaws
    format: str = "bf16"
    """Number format of the multiplications that `speed` is about; `training.format = "auto"` selects it."""
    heat: Heat = COLD
    fabric: NodeNetwork = UNLIMITED
    data: TrainingData = NOT_READ

    def __post_init__(self) -> None:
        for name, value in _numbers(self):
            for is_wrong, rule in (
                (not 0 <= value < float("inf"), "it must be a number, 0 or more"),
                (value > MOST, f"it must be at most {MOST:g}"),
                (name in POSITIVE and not value, "it must be above 0"),
                (name in POSITIVE and value < LEAST, f"it must be {LEAST:g} or more"),
                (name in SPREADS and value > MOST_SPREAD, f"as a spread it must be at most {MOST_SPREAD:g}"),
                (name in SHARES and value > 1, "it is a fraction and must be at most 1"),
                (name == "heat.slowdown" and value >= 1, "it is a fraction and must be below 1"),
                (name == "fabric.oversubscription" and value < 1, "it must be 1 (none) or more"),
            ):
                if is_wrong:
                    raise ConfigError(f"{name} is {value or 0}; {rule}")
        if self.format not in FORMATS:
            raise ConfigError(f"format is {self.format!r}; it must be one of {', '.join(FORMATS)}")
        for name, text in (("name", self.name), ("device", self.device)):
            if not text.strip():
                raise ConfigError(
                    f"{name} is empty; describe the machine model, because every result names it"
                )


def assumed(name: str) -> Assumptions:
    """Those of that name, or of a TOML file. Raises ConfigError."""
    known = assumption_names()
    if name in known:
        text = (_packaged() / f"{name}.toml").read_text(encoding="utf-8")
    elif name.endswith(".toml"):
        try:
            text = read_text(Path(name))
        except OSError as error:
            raise ConfigError(unreadable(error, name, "give the file of a machine model")) from None
    else:
        raise ConfigError(f"no machine model {name!r}; use {', '.join(known)}, or a file NAME.toml")
    try:
        return decode(Assumptions, toml.parsed(text))
    except (ValueError, RecursionError, RecordError) as error:
        raise ConfigError(f"{name}: {error}") from None


def assumption_names() -> list[str]:
    return sorted(
        path.name.removesuffix(".toml") for path in _packaged().iterdir() if path.name.endswith(".toml")
    )


def assumptions_toml(assumptions: Assumptions) -> str:
    """The text that `assumed` reads."""
    return tomli_w.dumps(asdict(assumptions))


def _packaged() -> Any:
    return resources.files("aiperf.pretending") / "machines"


def _numbers(part: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """With the path of each, as a file has it."""
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value):
            yield from _numbers(value, f"{path}{field.name}.")
        elif not isinstance(value, str):
            yield path + field.name, value
