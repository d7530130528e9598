"""Which examples a run reads: the keys of `[data]` that every task has, and a task's class by `data.name`.

A task has a class of its own, which derives from `DataConfig`, checks what is its own, and may add keys. The
tasks of other packages are found here as well: which these are is decided by what is installed, never by a
record. A package registers its task as an entry point of the group "aiperf.tasks" under each of its values of
`data.name`, as "module:VALUE".
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from aiperf.errors import ConfigError
from nas.frozen import frozen

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

AUGMENTATIONS = ("none", "shift", "crop-flip", "resized-crop-flip", "resized-crop-flip-draft")
"""Values of `data.augmentation`; which of them fit is known once the files are seen."""
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
"""Ends of the names of images, in any case."""
PARTS = ("training", "validation", "test")
"""Names of the parts of any data, as in `training_examples`."""
MANIFEST_KEYS = (
    *("name", "synthetic", "channels", "size", "classes", "sha256"),
    *(f"{part}_examples" for part in PARTS),
)
"""Keys that the manifest of any data has: docs/data.md."""
GROUP = "aiperf.tasks"
"""The group of entry points under which packages register their tasks."""


class NoSuchTask(ConfigError):
    """A `data.name` that no task has, neither of this program nor of an installed package."""


@frozen
class DataConfig:
    """Which examples: images, or a text, of which one example is a window, or those of an installed task."""

    names: ClassVar[tuple[str, ...]] = ()
    """The values of `data.name` that are of this class."""
    without_files: ClassVar[tuple[str, ...]] = ()
    """Those of them that read no files."""
    generated: ClassVar[tuple[str, ...]] = ()
    """Those of them whose examples are generated, so that they depend on the random seed of a run."""
    least_validation: ClassVar[int] = 1
    """The least `validation_examples`; 0 if 0 stands for all of them."""

    name: str
    """One of digits, idx, cifar10, imagefolder, packed, synthetic; text, synthetic-text; or the name of an
    installed task (docs/adding.md)."""
    channels: int
    """1 of a text."""
    size: int
    """Side in pixels of the square that the network sees; of a text, the bytes of a window."""
    classes: int
    """256 of a text: bytes."""
    path: str = ""
    """Folder of the files, of a text also one file; empty for digits, generated data and the text that comes
    with this program."""
    training_examples: int = 0
    """At most this many, stratified; 0: all that validation leaves. Of a text the windows of an epoch, each
    of which goes on where the last one ended."""
    validation_examples: int = 0
    """Taken from training, stratified. Of a text at most this many windows of its validation part; 0: all."""
    test_examples: int = 0
    """Generated data only; otherwise the official test part is used whole."""
    augmentation: str = "none"
    """In training only. One of none, shift, crop-flip, resized-crop-flip, resized-crop-flip-draft."""
    loader_processes: int = 0
    """Processes that decode images for each rank, of packed images threads that read them; 0: as many as
    cores for each rank, less one."""
    stage: str = ""
    """Folder on a disk of each node, to which packed images are copied before the span; empty: they are read
    where they lie."""

    def __post_init__(self) -> None:
        one_of("data.name", self.name, self.names)
        one_of("data.augmentation", self.augmentation, AUGMENTATIONS)
        for name in ("channels", "size"):
            at_least(f"data.{name}", getattr(self, name), 1)
        at_least("data.classes", self.classes, 2)
        at_least("data.validation_examples", self.validation_examples, self.least_validation)
        for name in ("training_examples", "test_examples", "loader_processes"):
            at_least(f"data.{name}", getattr(self, name), 0)
        self.check()
        if self.stage and self.name != "packed":
            raise ConfigError(
                f"data.stage is {self.stage!r}, but data.name is {self.name!r}: only packed images can be "
                f"staged; omit it, or pack the images with `aiperf-hpc data pack`"
            )
        if self.path and self.name in self.without_files:
            with_files = {name for kind in own_classes() for name in {*kind.names} - {*kind.without_files}}
            raise ConfigError(
                f"data.path is {self.path!r}, but data.name is {self.name!r}, which reads no files; set "
                f"data.name to one of {', '.join(sorted(with_files))}; or give --data without --preset"
            )

    def check(self) -> None:
        """Raises ConfigError for what this task cannot have."""

    def refuse_no_folder(self) -> None:
        """Raises ConfigError if files are needed and their folder is not given. Only a run that reads them
        needs it."""

    def refuse_unfit(self) -> None:
        """Raises ConfigError for files that are not on this host, or obviously of another task,
        before anything is started to read them."""
        if self.path and not os.path.lexists(self.path):
            raise ConfigError(
                f"data.path is {self.path!r}, which does not exist; give another path with --data"
            )

    @property
    def is_generated(self) -> bool:
        """Whether the examples are generated."""
        return self.name in self.generated

    @property
    def part_examples(self) -> tuple[int, int, int]:
        """The configured numbers of examples for training, validation and test."""
        return self.training_examples, self.validation_examples, self.test_examples

    def manifest(self, sha256: str) -> dict[str, Any]:
        """The entries with which a manifest of these data begins; `sha256` is their fingerprint."""
        return {
            "name": self.name,
            "synthetic": self.is_generated,
            "channels": self.channels,
            "size": self.size,
            "classes": self.classes,
            "sha256": sha256,
        }

    def disagreements(self, manifest: Mapping[str, Any], *more: str) -> Iterator[str]:
        """What a manifest has otherwise than this configuration, by the keys that every manifest has and by
        `more` keys of the configuration."""
        for key in ("name", "channels", "size", "classes", *more):
            if manifest.get(key) != getattr(self, key):
                yield f"data.{key} is {manifest.get(key)!r}, but {getattr(self, key)!r} is configured"
        if manifest.get("synthetic") != self.is_generated:
            yield f"data.synthetic is {manifest.get('synthetic')!r} for {self.name}"

    @classmethod
    def member_of_record(cls, record: Mapping[str, Any]) -> type[DataConfig]:
        """The class that a record is of, by its `name`. Raises NoSuchTask."""
        name = record.get("name")
        return cls if cls.names or not isinstance(name, str) else data_class(name)


def own_classes() -> list[type[DataConfig]]:
    """The classes of this program's tasks, which `aiperf.config` imports. A class of another package is not
    among them, whatever names it has."""
    return [kind for kind in DataConfig.__subclasses__() if kind.__module__.startswith("aiperf.tasks.")]


def data_names() -> list[str]:
    """Every available `data.name`: those of this program's tasks, then those of installed ones."""
    return list(dict.fromkeys([*(name for kind in own_classes() for name in kind.names), *installed_names()]))


def data_class(name: str) -> type[DataConfig]:
    """The class for this `data.name`, of a task of this program or else of an installed one. Raises
    NoSuchTask; ConfigError for an installed package that is faulty."""
    own = next((kind for kind in own_classes() if name in kind.names), None)
    if own is not None:
        return own
    task = installed(name)
    if task is None:
        raise NoSuchTask(_unknown("data.name", name, data_names()))
    kind = getattr(task, "data_class", None)
    if not (isinstance(kind, type) and issubclass(kind, DataConfig) and name in kind.names):
        raise ConfigError(
            f"data.name {name!r} stands for {task!r:.80}, which is no task with a `data_class` of this name; "
            "correct or uninstall its package"
        )
    return kind


def installed_names() -> list[str]:
    """Every `data.name` of an installed task. No package is imported for this."""
    # Here and below: it imports the parsers of email, which commands without an installed task do not need.
    from importlib.metadata import entry_points

    return sorted({entry.name for entry in entry_points(group=GROUP)})


@cache
def installed(name: str) -> object:
    """What an installed package registered for this `data.name`; None if no package did. Raises ConfigError
    for one that cannot be imported, and for two packages with one name."""
    entry = _entry(name)
    if entry is None:
        return None
    try:
        return entry.load()
    except Exception as error:
        raise ConfigError(
            f"the task of data.name {name!r} cannot be imported from {entry.value}: {error}; correct or "
            "uninstall its package"
        ) from error


def distribution_of(name: str) -> str:
    """Name of the distribution of an installed task. Raises ConfigError for a task that has none, and for two
    packages with one name."""
    entry = _entry(name)
    if entry is None or entry.dist is None:
        raise ConfigError(f"the task of data.name {name!r} belongs to no distribution; install it with pip")
    return str(entry.dist.name)


def _entry(name: str) -> EntryPoint | None:
    """The entry point of an installed task. Two packages may register the same value; two values are an
    error, since nobody could say which one a journal means."""
    from importlib.metadata import entry_points

    found = list(entry_points(group=GROUP, name=name))
    if others := {entry.value for entry in found} - {entry.value for entry in found[:1]}:
        raise ConfigError(
            f"two tasks are named {name!r}: {found[0].value} and {min(others)}; uninstall one of them"
        )
    return found[0] if found else None


def refuse_incomplete(name: str, manifest: Mapping[str, Any]) -> None:
    """Raises ConfigError for a manifest that lacks a key, as the task of this `data.name` made it."""
    if lacking := [key for key in MANIFEST_KEYS if key not in manifest]:
        raise ConfigError(
            f"the task of data.name {name!r} makes a manifest without {', '.join(lacking)}; correct its "
            "package"
        )


def one_of(key: str, value: str, known: Collection[str]) -> None:
    """Raises ConfigError."""
    if value not in known:
        raise ConfigError(_unknown(key, value, known))


def at_least(key: str, value: int, least: int) -> None:
    """Raises ConfigError."""
    if value < least:
        raise ConfigError(f"{key} is {value}; it must be at least {least}")


def _unknown(key: str, value: str, known: Collection[str]) -> str:
    """The line for a value that is not one of those known."""
    return f"{key} is {value!r}; it must be one of {', '.join(known)}"
