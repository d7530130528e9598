"""The configuration of a run: frozen, checked, read from a TOML file and written back to one.

Every key of a preset is here with its unit, its default and its check, but those of `[data]`: they belong to
the tasks, and stand in `aiperf/tasks/data.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, field, fields
from math import inf
from pathlib import Path
from typing import Any

import tomli_w

from aiperf import toml
from aiperf.errors import ConfigError
from aiperf.os_error import unreadable
from aiperf.tasks.data import DataConfig as DataConfig
from aiperf.tasks.data import at_least, one_of
from aiperf.tasks.images.data import ImageData
from aiperf.tasks.language.data import TextData
from aiperf.wording import suggestion
from nas.bounded import read_text
from nas.frozen import frozen
from nas.record import RecordError, decode
from nas.search_names import MOST_MORPHISMS, TUNERS, search_names

DATA_CLASSES: tuple[type[DataConfig], ...] = (ImageData, TextData)
"""Those of this program's tasks: imported here, so that `[data]` of each can be read. An installed task
brings its own."""
PRESETS = Path(__file__).parent / "presets"
OTHER_NAMES = {"imagenet": "ranked", "imagenet-1k": "ranked", "enwik9": "ranked-text", "mnist": "digits"}
"""Names of data by which people ask for a preset."""
FORMATS = ("fp32", "tf32", "bf16", "fp16")
WANTED_FORMATS = ("auto", *FORMATS)
OPTIMIZERS = ("sgd", "adamw", "muon")
DECAYS = ("cosine", "linear", "trapezoid")
BATCH_NORMS = ("local", "synchronised")
COMPRESSIONS = ("none", "fp16")
AUTO_STEP, EAGER, FUSED = "auto", "eager", "fused"
ENGINES = (EAGER, FUSED, "graphed", "fused-graphed", "compiled")
STEPS = (AUTO_STEP, *ENGINES)
TUNINGS = (*TUNERS, "auto")
SCHEDULES = ("rounds", "halving")
LEAST_BATCH = 2
"""The least examples of a rank in a step: batch norm has no variance of one image."""
LARGEST = (1 << 31) - 1
"""The largest number of any key: no machine has that many of anything, and libraries in C stop here."""


@frozen
class BoundsConfig:
    """What a candidate may be, as multiples of the seed's own figures."""

    min_operations: float = 0.25
    max_operations: float = 4.0
    max_parameters: float = 4.0
    min_activations: float = 0.0
    max_activations: float = 4.0
    min_layers: float = 0.0
    max_layers: float = 0.0
    """0: any number."""
    growth_rounds: int = 0
    """Rounds in which candidates grow from the seed's size into these bounds, along a geometric path; 0: the
    bounds hold from the first round. With growth each least is at least 1, or 0 for a figure that does not
    grow; parameters never do. All later candidates then cost about the same."""

    def __post_init__(self) -> None:
        at_least("search.bounds.growth_rounds", self.growth_rounds, 0)
        if self.max_parameters < 1:
            raise ConfigError("search.bounds: max_parameters must be at least 1")
        if self.min_operations <= 0:
            raise ConfigError("search.bounds: min_operations must be above 0")
        self._check("operations", self.min_operations, self.max_operations)
        self._check("activations", self.min_activations, self.max_activations)
        self._check("layers", self.min_layers, self.max_layers or inf)

    def _check(self, what: str, least: float, most: float) -> None:
        if self.growth_rounds and least:
            if not 1 <= least <= most:
                raise ConfigError(f"search.bounds: with growth_rounds needs 1 ≤ min_{what} ≤ max_{what}")
        elif not 0 <= least <= 1 <= most:
            from_zero = "0 <" if what == "operations" else "0 ≤"
            raise ConfigError(
                f"search.bounds: needs {from_zero} min_{what} ≤ 1 ≤ max_{what}, or growth_rounds above 0"
            )


@frozen
class SearchConfig:
    """Search strategy."""

    name: str = "evolution"
    """A key of `nas.search.SEARCHES`, whose classes say what they do, or the name of an installed search
    (docs/adding.md). Only a new run asks whether it is there: a journal can be read without it."""
    population: int = 100
    """Completed trials that can be parents; the oldest dies first."""
    morphisms: int = 1
    """Most morphisms of one child. Where networks grow, a child gets as many as its round asks for."""
    omit: tuple[str, ...] = ()
    """Kinds of morphisms that are not drawn, by the name of their class in nas/morphisms."""
    prepared: int = 1
    """Trials that a group prepares beside the one it trains: 1, shortly before the end of that one's plan, so
    that no device waits between two; 0, so that each is proposed with the result of the one before, and may
    begin with its weights."""
    bounds: BoundsConfig = field(default_factory=BoundsConfig)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.-]{1,80}", self.name):
            raise ConfigError(f"search.name is {self.name!r:.90}; use letters, digits, '_', '.' and '-' only")
        at_least("search.population", self.population, 2)
        at_least("search.morphisms", self.morphisms, 1)
        if self.morphisms > MOST_MORPHISMS:
            raise ConfigError(f"search.morphisms is {self.morphisms}; it must be at most {MOST_MORPHISMS:,}")
        if self.prepared not in (0, 1):
            raise ConfigError(f"search.prepared is {self.prepared}; it must be 0 or 1")


@frozen
class TuningConfig:
    """How hyper-parameters are found."""

    name: str = "none"
    """none: a child has its parent's. nni, optuna: their TPE. auto: the first of these two that is
    installed, else none."""
    first_round: int = 4
    """Trials of earlier rounds have their parent's."""

    def __post_init__(self) -> None:
        one_of("tuning.name", self.name, TUNINGS)
        at_least("tuning.first_round", self.first_round, 1)


@frozen
class TrainingConfig:
    """How a trial is trained."""

    format: str
    """Format of the multiplications: fp32, tf32, bf16 or fp16; auto: the fastest of them that the devices
    have natively, as measured when the run begins. Weights and statistics stay fp32."""
    batch_size: int
    """Images a step, over all ranks of a group."""
    learning_rate: float
    epochs: tuple[int, ...]
    """Passes over the training examples. By round; the last holds for all later rounds. By rung, where the
    schedule is halving: in all up to there, so that they rise."""
    validate_every_examples: int
    """A validation closes a segment after about this many training examples."""
    schedule: str = "rounds"
    """rounds: a trial is as long as its round says. halving: asynchronous successive halving; a third of a
    rung is trained on to the next."""
    child_learning_rate: float = 0.0
    """Peak rate of a trial that starts from its parent's weights; 0: as `learning_rate`."""
    optimizer: str = "sgd"
    """sgd, with momentum, adamw, or muon: of the matrices between embedding and logits, adamw of all else."""
    momentum: float = 0.9
    """Momentum of sgd; for adamw and muon the decay of the mean gradient (beta 1)."""
    weight_decay: float = 5e-4
    gradient_clip: float = 0.0
    """The greatest norm of all gradients of a step together, to which larger ones are shortened; 0: none."""
    label_smoothing: float = 0.1
    dropout: float = 0.0
    """Share of what the last layer with weights reads that is set to 0."""
    warmup: float = 0.1
    """Share of a trial's steps in which the learning rate rises from 0."""
    decay: str = "cosine"
    """How the rate falls after that, to zero at the end of the trial, or at the deadline if it comes first:
    cosine, linear, or trapezoid, which is constant, then linear in the last fifth."""
    patience: int = 0
    """Validations without a better error after which a trial ends; 0: never."""
    batch_norm: str = "local"
    """Statistics of batch norm in a group of several ranks. local: each step, of a rank's own images.
    synchronised: of all images of the step, and steps are eager."""
    compression: str = "none"
    """Compression of gradients on their way between ranks: none or fp16."""
    step: str = "eager"
    """How a training step is made: eager, fused (batch norm, addition and ReLU in one pass), graphed
    (captured once, then replayed), fused-graphed (both), or compiled; auto: the fastest of them, as measured
    before the span, in trials that are long enough for it."""

    def __post_init__(self) -> None:
        one_of("training.format", self.format, WANTED_FORMATS)
        one_of("training.optimizer", self.optimizer, OPTIMIZERS)
        one_of("training.decay", self.decay, DECAYS)
        one_of("training.schedule", self.schedule, SCHEDULES)
        one_of("training.batch_norm", self.batch_norm, BATCH_NORMS)
        one_of("training.compression", self.compression, COMPRESSIONS)
        one_of("training.step", self.step, STEPS)
        at_least("training.batch_size", self.batch_size, LEAST_BATCH)
        at_least("training.validate_every_examples", self.validate_every_examples, 1)
        at_least("training.patience", self.patience, 0)
        if not self.learning_rate > 0:
            raise ConfigError(f"training.learning_rate is {self.learning_rate}; it must be above 0")
        if self.child_learning_rate < 0:
            raise ConfigError("training.child_learning_rate is negative")
        if not self.epochs or min(self.epochs) < 1:
            raise ConfigError("training.epochs: give one whole number of at least 1 per round")
        if self.schedule == "halving" and list(self.epochs) != sorted(set(self.epochs)):
            raise ConfigError(f"training.epochs is {list(self.epochs)}; the rungs of halving must increase")
        for name in ("momentum", "label_smoothing", "dropout", "warmup"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"training.{name} is {getattr(self, name)}; needs 0 ≤ it < 1")
        for name in ("weight_decay", "gradient_clip"):
            if getattr(self, name) < 0:
                raise ConfigError(f"training.{name} is negative")

    @property
    def numbers_a_weight(self) -> int:
        """Most that are kept: itself, and its momentum or its two moments."""
        return 2 if self.optimizer == "sgd" else 3

    def normalises_over(self, ranks: int) -> bool:
        """Whether batch norms take their statistics over a group of this many ranks."""
        return self.batch_norm == "synchronised" and ranks > 1


@frozen
class LimitsConfig:
    """When a run ends: at the first of these. 0 for one that does not hold."""

    minutes: float = 0.0
    max_trials: int = 0
    target_error: float = 0.0

    def __post_init__(self) -> None:
        if min(self.minutes, self.max_trials, self.target_error) < 0:
            raise ConfigError("limits must not be negative")
        if self.target_error >= 1:
            raise ConfigError(f"limits.target_error is {self.target_error}; give a fraction, such as 0.05")
        if not (self.minutes or self.max_trials or self.target_error):
            raise ConfigError(
                "limits: set minutes, max_trials or target_error; without one, the run never ends"
            )


@frozen
class Config:
    """All settings of a run, as the first line of its journal has them."""

    preset: str
    """The preset this began as."""
    seed_architecture: str
    """A name of `nas.seeds.SEEDS`, or the path of a graph's JSON file."""
    data: DataConfig
    training: TrainingConfig
    limits: LimitsConfig
    search: SearchConfig = field(default_factory=SearchConfig)
    tuning: TuningConfig = field(default_factory=TuningConfig)
    random_seed: int = 1
    ranked: bool = False
    """Whether the run claims the class ranked: its rules are then checked before the clock starts."""
    notary: bool = False
    """Whether a notary is asked to sign the state of the journal while the run goes on."""
    allow_deviating: bool = False
    """Whether the run goes on with a device that computes other bits than its equals; it is then not
    ranked."""

    def __post_init__(self) -> None:
        at_least("random_seed", self.random_seed, 0)
        if not self.preset.isprintable():
            raise ConfigError(
                f"preset is {self.preset!r}; it names the run directory: use letters and digits"
            )
        for key, value in leaves(self).items():
            if isinstance(value, str) and not value.isascii():
                _refuse_no_text(key, value)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, (int, float)) and not abs(number) <= LARGEST:
                    raise ConfigError(f"{key} is {number:g}; it must be a number up to {LARGEST}")


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load_preset(name: str) -> Config:
    """The preset of that name, or the configuration in that TOML file."""
    if name.endswith(".toml"):
        try:
            return from_toml(read_text(Path(name), toml.LARGEST_BYTES), where=name)
        except OSError as error:
            raise ConfigError(unreadable(error, name, "give a readable TOML file")) from None
    return from_toml(preset_text(name), where=f"preset {name}")


def preset_text(name: str) -> str:
    """The file of a preset, comments and all. Raises ConfigError, which names those there are."""
    if name not in preset_names():
        names = preset_names()
        raise ConfigError(
            f"no preset {name!r}{suggestion(OTHER_NAMES.get(name.lower(), name), names) or ';'} presets: "
            f"{', '.join(names)}, or a file NAME.toml"
        )
    return (PRESETS / f"{name}.toml").read_text(encoding="utf-8")


def from_toml(text: str, where: str) -> Config:
    """Raises ConfigError, which names `where`, the key, and the keys there are."""
    try:
        record = toml.parsed(text)
        _refuse_part(record)
        return _checked(record)
    except (ValueError, RecursionError) as error:  # no TOML, a number of too many digits, or arrays of arrays
        raise ConfigError(f"{where}: {error}") from None


def _refuse_part(record: Mapping[str, Any]) -> None:
    """Refuses a part of a configuration. Raises ValueError."""
    needed = {each.name for each in fields(Config) if each.default is each.default_factory is MISSING}
    unknown = record.keys() - {each.name for each in fields(Config)}  # is reported by its name
    if not unknown and (lacking := sorted(needed - record.keys())):
        raise ValueError(f"it lacks {', '.join(lacking)}; change a whole one: aiperf-hpc preset digits")


def parse_setting(text: str) -> tuple[str, Any]:
    """ "key=value", the value in TOML's words; one that is none of them is text. Raises ConfigError."""
    key, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"{text!r} is not a setting; use KEY=VALUE")
    try:
        return key, toml.parsed(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return key, value


def to_toml(config: Config) -> str:
    return tomli_w.dumps(asdict(config))


def leaves(config: Config) -> dict[str, Any]:
    """Every value by its dotted key: {"training.batch_size": 64, …}."""
    return dict(_leaves(asdict(config)))


def with_overrides(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Changes by dotted key: {"training.batch_size": 64}. Raises ConfigError for an unknown key."""
    record = asdict(config)
    for key, value in overrides.items():
        table = record
        *path, last = key.split(".")
        for part in path:
            table = table.get(part, {}) if isinstance(table, dict) else {}
        if not isinstance(table, dict) or last not in table:
            keys = leaves(config)
            raise ConfigError(f"no key {key!r}{suggestion(key, keys) or ';'} keys: {', '.join(keys)}")
        table[last] = value
    return _checked(record)


def _checked(record: Mapping[str, Any]) -> Config:
    try:
        config = decode(Config, record)
    except RecordError as error:
        raise ConfigError(str(error)) from None
    one_of("search.name", config.search.name, search_names())
    return config


def _leaves(record: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key that is not a table, dotted, with its value."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield path + name, value


def _refuse_no_text(key: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{key} is {value!r}, which is not valid UTF-8; rename it") from None
