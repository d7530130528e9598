"""A task as a value: all that depends on what a network learns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from aiperf.tasks.data import DataConfig
from aiperf.tasks.tally import Tally
from aiperf.wording import figure
from nas.frozen import frozen
from nas.graph import Graph
from nas.head import Head
from nas.layers import Shape
from nas.tuning import Point, Space

if TYPE_CHECKING:
    from nas.morphisms import Morphism

SEASON_SEED = 1
"""The random seed of every ranked run of this season of the list. What a search happens to grow decides part
of a run's rate, so whoever could choose the seed would try many in short runs and submit the luckiest. The
operator states it with a version of the program (docs/governance.md), whose ranked presets have it."""

Manifest = Mapping[str, Any]
"""What a rank found in the data, as plain JSON: docs/data.md."""


@frozen
class Examples:
    """What a network reads, what it is asked, and out of how many answers it chooses."""

    input: Shape
    classes: int
    head: Head

    @classmethod
    def of(cls, graph: Graph) -> Examples:
        """Those that an architecture is for."""
        return cls(graph.input, graph.classes, graph.head)

    @property
    def text(self) -> str:
        """The examples in words, as "10 classes of 3 x 32 x 32"."""
        return self.head.examples_text(self.input, self.classes)


@frozen
class Amount:
    """What rates are stated in: examples, or what an example is made of."""

    name: str
    """Plural: "images"."""
    of_example: Callable[[int], int]
    """How many an example of this size (`data.size`) is."""

    def rate(self, examples_per_second: float, size: int) -> float:
        """Turns a rate of examples into a rate of what rates are stated in, per second."""
        return examples_per_second * self.of_example(size)

    def rate_text(self, examples_per_second: float, size: int) -> str:
        """The same in words, as "3,200 bytes/s"."""
        return f"{figure(self.rate(examples_per_second, size))} {self.name}/s"


@frozen
class ErrorLimit:
    """An error that no network is known to reach on some data."""

    error: float
    source: str
    """Where it comes from, in words."""
    is_proof: bool
    """Whether a smaller error is impossible; else it is a doubt."""


@frozen
class DataFacts:
    """What is known of data without reading it."""

    contradictions: Callable[[DataConfig, Manifest], Iterable[str]]
    """Yields what a rank found that cannot be: it contradicts itself, the configuration or a known set."""
    is_known: Callable[[Manifest], bool]
    """Whether the number of examples is known here."""
    has_like_parts: Callable[[Manifest], bool]
    """Whether the test is known to be no easier than the validation."""
    foreseen: Callable[[DataConfig], dict[str, Any]]
    """What a rank would find, as far as a configuration tells; 0 examples in a part of which it says
    nothing."""
    summary: Callable[[Manifest], str]
    """In one line: how many examples, of what."""
    error_limit: Callable[[Manifest], ErrorLimit | None] = lambda manifest: None
    """The smallest error that can be believed of the whole test part; None if nothing is known."""


class KnownData(Protocol):
    """Data that everybody has: what its makers fixed, so that no run can have it otherwise."""

    @property
    def title(self) -> str:
        """The name by which people know it."""

    @property
    def name(self) -> str:
        """The value of `data.name` under which it is read."""

    @property
    def sha256(self) -> str:
        """The fingerprint of the whole; empty if no site has reported it yet."""

    def facts(self, manifest: Manifest) -> dict[str, Any]:
        """The entries that every manifest of it has."""


Known = TypeVar("Known", bound=KnownData)


def recognise(manifest: Manifest, known: Iterable[Known]) -> Known | None:
    """Which of these data a manifest describes: by its fingerprint, or by all its numbers if none is
    pinned."""
    for each in known:
        same = manifest.get("sha256") == each.sha256 if each.sha256 else not differences(manifest, each)
        if same and manifest.get("name") == each.name:
            return each
    return None


def differences(manifest: Manifest, known: KnownData) -> list[str]:
    """The entries of a manifest that cannot be those of these data, in words."""
    return [
        f"{key} is {manifest.get(key)!r}, but {known.title} has {value!r}"
        for key, value in known.facts(manifest).items()
        if manifest.get(key) != value
    ]


@frozen
class RankedLimits:
    """What a run of this task must be to be ranked, in addition to the rules for every run."""

    seed: str
    """The starting architecture, by name; candidates stay within the default bounds around it."""
    most_error: float
    """The largest error of the best network on the test part, 0 to 1."""
    control_size: int
    """The size of the control's examples: the largest of `ControlNetwork.sizes`."""
    data: str
    """The examples, in words."""
    data_faults: Callable[[Manifest], Sequence[str]]
    """What keeps the data of a manifest from being those."""
    random_seed: int = SEASON_SEED

    def random_seed_faults(self, random_seed: int) -> list[str]:
        """What keeps a run with this random seed from being ranked."""
        pinned = self.random_seed
        return [] if random_seed == pinned else [f"random_seed is {random_seed}, not this season's {pinned}"]


@frozen
class ControlNetwork:
    """A fixed network that is timed before the span, to compare with other benchmarks."""

    name: str
    short: str
    """A shorter name, for tables."""
    sizes: tuple[int, ...]
    """The sizes of examples that a journal may have, from the smallest."""
    size_text: str
    """How a size is written, as "{}²"."""
    examples_text: str
    """How examples of a size are called, as "{}² images"."""
    examples: str
    """Plural of what an example is called."""
    graph: Callable[[int], Graph]
    """For examples of a size. Its weights do not depend on the size: those of the largest do for all."""
    batch_size: int
    """Examples per step on an accelerator, or as many as fit."""
    climb: tuple[tuple[int, int], ...]
    """The steps of growing size that a processor makes: size of the examples, and examples per step. It stops
    at the last one that it can make in the time."""
    smaller: ControlNetwork | None = None
    """The network that a processor climbs first. If a step of this network would not end in the time, even
    with its smallest examples, the smaller one is the control, and this one is never built. Journals name it
    by `short`."""

    def named(self, name: str) -> ControlNetwork:
        """The network that a control in a journal names; this one for no name, or an unknown one."""
        return self.smaller if self.smaller is not None and name == self.smaller.short else self

    def at(self, sizes: Iterable[int]) -> str:
        """ "224²", or "64² and 112²"."""
        return " and ".join(self.size_text.format(size) for size in sorted(set(sizes)))


@frozen
class Task:
    """Everything that depends on what a network learns. Journal, ranks, master and score ask it by these
    fields, and know no task by name."""

    name: str
    example: str
    """What an example is called; the plural ends in s."""
    amount: Amount
    """What the rates of its runs are stated in."""
    data_class: type[DataConfig]
    """The configuration of its data, which has the values of `data.name` that are of this task."""
    head: type[Head]
    """What the output of its networks is asked."""
    examples: Callable[[DataConfig], Examples]
    """What its networks read, by the configuration."""
    data: DataFacts
    reads: Callable[[DataConfig], str]
    """What a network reads, in words, for those who use it outside of this program."""
    generated: Callable[[Graph, tuple[int, int, int]], DataConfig]
    """Generated examples for an architecture, as many for training, validation and test as stated. Raises
    ConfigError for one that they do not fit."""
    optimizer: str
    """The optimizer of the task's presets, as `training.optimizer` names it."""
    tally: Callable[[int, int, float], Tally]
    """The tally of a network with this error, for this many examples of a size."""
    error_text: Callable[[float], str]
    """An error in the units of the task's field."""
    error_law: str
    """Whose law of errors pretending workers and simulations follow: a key of a machine's `errors`:
    images or language."""
    chance: Callable[[int], float]
    """The error of a network that knows nothing, of this many classes."""
    seeds: Mapping[str, Callable[[Shape, int], Graph]]
    """Starting architectures by name, for what is read and the number of answers. A name that this program's
    own seeds have, too, means the task's."""
    morphisms: Mapping[type[Morphism], float]
    """How an architecture may grow, and how often each is drawn."""
    space: Callable[[Point], Space]
    """Which hyper-parameters may be tuned, around the configured ones."""
    untuned_version: int
    """The version of all that decides what is proposed without a tuner: searches, morphisms, epochs and
    hyper-parameters. Raised only when a run would be proposed other trials than before, so that a journal
    written by older code can still be checked against the search that it was made by."""
    tuned_version: int
    """The same of runs with a tuner: it is raised for the tuners and the space, too."""
    products: str
    """The layers that multiply and accumulate, in words."""
    in_aiperf1: bool
    """Whether AIPerf 1.0 had it, so that its rules of counting can be applied."""
    control: ControlNetwork
    training: Callable[[], object]
    """Imports and returns what only those need who train: an `aiperf.data.training.Training`. It needs torch,
    and all else here does not."""
    ranked: RankedLimits | None = None
    """None: runs of this task are never ranked, as all of a task from another package."""

    def search_version(self, tuner: str) -> int:
        """The version that a run with this tuner has; `tuning.name`, where "auto" is what it came to."""
        return self.untuned_version if tuner == "none" else self.tuned_version
