"""Options for what is run and on which ranks, of `run` and of similar commands, and the configuration that
follows from them, from the batch job and from the data.

Options are declared once and added to each command that runs something: `run`, `doctor`, `nni config`, and
the batch scripts, which pass them on. An option that is not typed is None, so that the preset decides; the
order of precedence is the command line, the batch job, the data, the preset. It is one file, because an
option, the key that it sets and what takes its place if it is not typed are read together.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

import click

from aiperf.commands.arguments import PATH, Known, Number, Whole, device_option, is_typed
from aiperf.commands.messages import say
from aiperf.config import (
    STEPS,
    WANTED_FORMATS,
    BoundsConfig,
    Config,
    load_preset,
    parse_setting,
    preset_names,
    with_overrides,
)
from aiperf.errors import ConfigError
from aiperf.pretending.assumptions import assumed
from aiperf.ranks.rank_options import BACKENDS, RankOptions
from launch.current_job import job_name, job_seconds_left
from launch.job import MARGIN_SECONDS
from nas.frozen import frozen
from nas.search_names import OWN_SEARCHES

TEXT = "text"
"""Name of data that are a text of the user's, or the bundled one."""
DEFAULT, OWN = "digits", "own"
"""Presets: the default one, and the one for the user's own images."""
OF_IMAGES = ("data.channels", "data.classes", "data.size")
"""Settings that describe the images, which are shown first."""
COUNTS = ("data.training_examples", "data.validation_examples")
"""Settings that a user may give, from which the rest of the examples follows."""

OTHER_FORMATS = {
    "bfloat16": "bfloat16 is bf16",
    **dict.fromkeys(("float16", "half"), "half precision is fp16"),
    **dict.fromkeys(("float32", "float", "single"), "single precision is fp32"),
    "tensorfloat32": "TensorFloat-32 is tf32",
    **dict.fromkeys(("fp8", "int8", "fp4"), "below 16 bits nothing is trained"),
}
"""What to type instead of PyTorch's names for a number format."""


def _absolute(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Makes the path of a TOML file absolute, because the ranks, or the job of a batch script, may start in
    another folder."""
    return os.path.abspath(value) if value and value.endswith(".toml") else value


_CONFIG_OPTIONS = (
    click.option(
        "--preset",
        "name",
        show_default="digits; own if --data is given",
        metavar="NAME|FILE",
        help=f"Preset: {', '.join(preset_names())}, or a file NAME.toml.",
    ),
    click.option("--minutes", type=Number(min=0, min_open=True), help="Length of the timed span [min]."),
    click.option("--hours", type=Number(min=0, min_open=True), help="Length of the timed span [h]."),
    click.option("--max-trials", type=Whole(1), help="Stop after this many trials."),
    click.option(
        "--target-error", type=Number(0, 1, min_open=True), help="Stop at this validation error [0 to 1]."
    ),
    click.option(
        "--data",
        "path",
        metavar="PATH",
        help="Folder of images, or file or folder of text. Without --preset, images are expected and their "
        "properties are detected.",
    ),
    click.option(
        "--seed", metavar="NAME|FILE", help="Starting architecture: a seed's name or a graph's JSON file."
    ),
    click.option(
        "--search",
        metavar="NAME",
        help=f"Search strategy: {', '.join(OWN_SEARCHES)}, or the name of an installed search.",
    ),
    click.option(
        "--format",
        "format_",
        type=Known(WANTED_FORMATS, OTHER_FORMATS),
        help="Number format of multiplications; auto: the fastest that the devices support natively.",
    ),
    click.option(
        "--step",
        type=click.Choice(STEPS),
        help="Engine of the training step; auto: the fastest, as measured before the clock starts.",
    ),
    click.option(
        "--batch-size",
        type=Whole(2),
        help="Global batch size of a group: images or windows per step.",
    ),
    click.option(
        "--random-seed",
        type=Whole(0),
        help="Random seed of the search, the order of the data and the weights.",
    ),
    click.option(
        "--notary",
        is_flag=True,
        default=None,
        help="Ask a notary (`aiperf-hpc notary`) to sign the state of the journal during the run.",
    ),
    click.option(
        "--allow-deviating",
        is_flag=True,
        default=None,
        help="Continue if a device computes other bits than its equals before the clock starts; such a run "
        "is not ranked.",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any other key of the preset, such as training.learning_rate=0.05; may be repeated.",
    ),
)
"""Options for what is run, in the order of the help."""

_RANK_NAMES = ("device", "devices", "devices_per_trial", "spread", "backend", "silence_seconds", "pretend")
"""Parameters of the options for ranks: fields of `RankOptions`, by the same names."""

_KEYS = {
    "max_trials": "limits.max_trials",
    "target_error": "limits.target_error",
    "path": "data.path",
    "seed": "seed_architecture",
    "search": "search.name",
    "format_": "training.format",
    "step": "training.step",
    "batch_size": "training.batch_size",
    "random_seed": "random_seed",
    "notary": "notary",
    "allow_deviating": "allow_deviating",
}
"""Keys of the configuration that these options set, by option."""

_RANK_OPTIONS = (
    device_option,
    click.option(
        "--devices",
        type=Whole(0),
        default=0,
        help="Devices of this machine to use when not started by mpiexec or srun; 0: all.",
    ),
    click.option(
        "--devices-per-trial",
        type=Whole(0),
        default=0,
        help="Devices that train one trial together; 0: as many as a host has.",
    ),
    click.option(
        "--spread",
        is_flag=True,
        help="Lay the devices of each trial over as many and as distant hosts as possible, so that every "
        "gradient crosses the network.",
    ),
    click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        default=BACKENDS[0],
        help="Library that averages gradients over the devices of a trial.",
    ),
    click.option(
        "--silence-seconds",
        type=Number(min=1),
        default=60.0,
        help="A group that is silent for this long [s] is lost; another group gets its trial.",
    ),
    click.option(
        "--pretend",
        metavar="NAME|FILE",
        callback=_absolute,
        help="Do not train: each worker waits as long as this machine model predicts (laptop, h100, or a "
        "file NAME.toml). Everything else is real; the result is not a measurement.",
    ),
)
"""Options for the ranks, in the order of the help."""


def rank_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options for ranks to a command, which gets them as `options`."""

    @wraps(command)
    def with_ranks(**parameters: Any) -> int:
        given = {name: parameters.pop(name) for name in _RANK_NAMES}
        if given["pretend"] is not None:
            given["pretend"] = assumed(given["pretend"])
        return command(options=RankOptions(**given), **parameters)

    return _with_options(with_ranks, _RANK_OPTIONS)


def config_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options for what is run to a command, which gets them as `request`."""

    @wraps(command)
    def with_request(**parameters: Any) -> int:
        request = take_request(parameters)
        return command(request=request, **parameters)

    return _with_options(with_request, _CONFIG_OPTIONS)


_BEFORE_RANKS = (
    click.option(
        "--like",
        metavar="RUN|PACKAGE",
        type=PATH,
        help="Take all settings from that run instead of a preset; options on the command line override "
        "them.",
    ),
    click.option("--directory", type=PATH, help="Run directory; default: runs/<time>-<preset>."),
    click.option("--resume", "again", is_flag=True, help="Continue the run in --directory if there is one."),
    click.option(
        "--repeats",
        type=Whole(1),
        default=1,
        help="Number of runs, one after another, in directories 1, 2, … of --directory, with random seeds s, "
        "s+1, …, or all with the same one if they are to be ranked; then their spread is shown.",
    ),
    click.option("--same-seed", is_flag=True, help="For --repeats: the same random seed in each run."),
)
"""Options of `run` alone that the help lists before those of the ranks."""
_AFTER_RANKS = (
    click.option("--dry-run", is_flag=True, help="Show the plan and the estimated time, then exit."),
    click.option(
        "--examples-per-second",
        type=Number(1e-6, 1e15),
        help="For --dry-run: training rate of the seed on another machine, in images or windows per second; "
        "default: measured on this one.",
    ),
)
"""Options of `run` alone that the help lists after those of the ranks."""


def run_options(command: Callable[..., int]) -> Callable[..., int]:
    """All options of `run`, which a batch script passes on; the command gets them as `request` and `options`,
    and those of the run itself by their names."""
    with_ranks = rank_options(_with_options(command, _AFTER_RANKS))
    return config_options(_with_options(with_ranks, _BEFORE_RANKS))


def _with_options(
    command: Callable[..., int], options: Iterable[Callable[[Callable[..., int]], Callable[..., int]]]
) -> Callable[..., int]:
    """Adds options to a command. The help lists those first that are added last."""
    for option in reversed(tuple(options)):
        command = option(command)
    return command


def take_request(parameters: dict[str, Any]) -> RunRequest:
    """Removes the parameters of `config_options` from those of a command, and returns them. What is left in
    `parameters` belongs to the command itself."""
    given = {key: parameters.pop(option) for option, key in _KEYS.items()}
    path, name = given["data.path"], parameters.pop("name")
    if path == "":  # such as a variable of a job script that was never set
        raise ConfigError("--data is empty; give a file or a folder, or omit the option")
    if path is not None:  # a run may be resumed, or its job begin, in another folder
        given["data.path"] = os.path.abspath(path)
    return RunRequest(
        (DEFAULT if path is None else OWN) if name is None else name,
        parameters.pop("minutes"),
        parameters.pop("hours"),
        parameters.pop("settings"),
        {key: value for key, value in given.items() if value is not None},
    )


def rank_words(context: click.Context) -> tuple[str, ...]:
    """The arguments of `rank_options` that the user typed, to be passed on."""
    return typed_words(context, _RANK_NAMES)


def typed_words(context: click.Context, names: Collection[str]) -> tuple[str, ...]:
    """The arguments of these parameters that the user typed, as arguments of another command that has them
    too."""
    words: list[str] = []
    for option in context.command.params:
        if option.name in names and is_typed(option.name, context):
            given = context.params[option.name]
            for value in given if option.multiple else (given,):
                text = f"{value:.15g}" if isinstance(value, float) else str(value)
                words += [option.opts[0], *([] if value is True else [text])]
    return tuple(words)


@frozen
class RunRequest:
    """Options of a run as the user gave them. The configuration is made from them in the master's process
    only."""

    preset: str
    """Name of a preset, or path of a TOML file."""
    minutes: float | None
    """Length of the span in minutes; None if it was not given in minutes."""
    hours: float | None
    """Length of the span in hours; None if it was not given in hours."""
    settings: tuple[str, ...]
    """Further settings as they were typed: KEY=VALUE."""
    overrides: Mapping[str, Any]
    """Values of options for a key of the configuration, by dotted key."""

    def config(self) -> Config:
        """The configuration of the run. Raises ConfigError."""
        length = _minutes_of_the_job() if self.minutes is None and self.hours is None else None
        of_the_job = {} if length is None else {"limits.minutes": length}
        given = self.given()
        of_the_images = _inferred(given) if self.preset == OWN else {}
        preset = load_preset(self.preset)
        # From the weakest to the strongest: what a user typed overrides what was found.
        config = with_overrides(preset, of_the_images | of_the_job | given)
        return _with_bounds_of_seed(preset, with_overrides(config, _fitting(config, given)), given)

    def given(self) -> dict[str, Any]:
        """The settings that were given in addition to the preset, by dotted key. Raises ConfigError."""
        if self.minutes is not None and self.hours is not None:
            raise ConfigError("--minutes and --hours are both given; give only one")
        length = self.minutes if self.hours is None else 60 * self.hours
        limit = {} if length is None else {"limits.minutes": length}
        return {**self.overrides, **limit, **dict(map(parse_setting, self.settings))}

    def words(self) -> list[str]:
        """The same options as arguments of a command."""
        lengths = {"--minutes": self.minutes, "--hours": self.hours}
        # As --set, the form that every key has: a value in JSON is also one in TOML.
        settings = [
            *(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in self.overrides.items()),
            *self.settings,
        ]
        return [
            *("--preset", self.preset),
            *(word for name, value in lengths.items() if value is not None for word in (name, str(value))),
            *(word for setting in settings for word in ("--set", setting)),
        ]


def _inferred(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that follow from the images, which are also printed. Raises ConfigError and DataError."""
    folder = given.get("data.path")
    if not folder:
        raise ConfigError(f"preset {OWN} is for your own images; give their folder with --data")
    from aiperf.ranks.process import infer_data  # the messages of ranks, which most commands do without

    counts = {key: value for key, value in given.items() if key in COUNTS and type(value) is int}
    found = infer_data(str(folder), counts)
    say(f"found in {folder}: {_settings_text({**found, **given}, found.keys() - given)}")
    return found


def _fitting(config: Config, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with which a short text fits, which are also printed: a preset's numbers are those of its own
    text. Only for one file, whose size needs no reading; the ranks refuse any other text that is too
    short, and a setting that was given."""
    path = config.data.path
    if config.data.name != TEXT or config.ranked or not os.path.isfile(path):
        return {}
    from aiperf.tasks.language.text_windows import TextWindows  # for a text alone

    text = TextWindows(os.path.getsize(path), config.data.size)
    wanted = {key: getattr(config.data, key) for key in ("training_examples", "validation_examples")}
    lower = {f"data.{key}": number for key, number in text.to_lower(wanted).items()}
    if not lower or lower.keys() & given:
        return {}
    changed = ", ".join(f"{key.removeprefix('data.')} {number}" for key, number in lower.items())
    say(f"{path} is a short text: {changed}")
    return lower


def _settings_text(settings: Mapping[str, Any], inferred: Collection[str]) -> str:
    """The settings, and which of them were inferred, in a line: "3 classes of colour images, 40 px; …"."""
    colours = "grey" if settings["data.channels"] == 1 else "colour"
    images = f"{settings['data.classes']} classes of {colours} images, {settings['data.size']} px"
    others = [key for key in settings if key in inferred and key not in OF_IMAGES]
    return "; ".join([images, ", ".join(f"{key.rpartition('.')[2]} {settings[key]}" for key in others)])


def _with_bounds_of_seed(preset: Config, config: Config, given: Mapping[str, Any]) -> Config:
    """Into bounds that a preset states as multiples of its own seed another seed may not grow: it has the
    default ones, unless bounds were given too. The run says so when it begins."""
    own = config.seed_architecture == preset.seed_architecture or not preset.search.bounds.growth_rounds
    if own or any(key.startswith("search.bounds.") for key in given):
        return config
    return replace(config, search=replace(config.search, bounds=BoundsConfig()))


def _minutes_of_the_job() -> float | None:
    """Default length of a run inside a batch job in minutes: the time left, minus what initialisation and the
    test take; None outside a job."""
    left = job_seconds_left(os.environ, time.time())
    if left is None:
        return None
    if left < 0:
        raise ConfigError(
            f"the limit of {job_name(os.environ)} passed {-left:.0f} s ago by the clock of this host; "
            f"correct the clock, or give the length with --minutes"
        )
    if left <= MARGIN_SECONDS:
        raise ConfigError(
            f"the job ends in {left:.0f} s; the run needs {MARGIN_SECONDS:.0f} s in addition to its span"
        )
    return (left - MARGIN_SECONDS) / 60
