"""Options for what is run and on which ranks, of `run` and of similar commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from aiperf.commands.options import PATH, Known, Number, device_option, is_typed
from aiperf.commands.run_request import DEFAULT, OWN, RunRequest
from aiperf.config import STEPS, WANTED_FORMATS, preset_names
from aiperf.ranks.rank_options import BACKENDS, RankOptions
from nas.search_names import OWN_SEARCHES

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


pretend_option = click.option(
    "--pretend",
    metavar="NAME|FILE",
    callback=_absolute,
    help="Do not train: each worker waits as long as this machine model predicts (laptop, h100, or a file "
    "NAME.toml). Everything else is real; the result is not a measurement.",
)


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
    click.option("--max-trials", type=click.IntRange(1), help="Stop after this many trials."),
    click.option(
        "--target-error", type=Number(0, 1, min_open=True), help="Stop at this validation error [0 to 1]."
    ),
    click.option(
        "--data",
        "path",
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
        type=click.IntRange(2),
        help="Global batch size of a group: images or windows per step.",
    ),
    click.option(
        "--random-seed",
        type=click.IntRange(0),
        help="Random seed of the search, the order of the data and the weights.",
    ),
    click.option(
        "--notary",
        is_flag=True,
        default=None,
        help="Ask a notary (`aiperf-hpc notary`) to sign the state of the journal during the run.",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any other key of the preset, such as training.learning_rate=0.05; may be repeated.",
    ),
)

_RANK_NAMES = ("device", "devices", "devices_per_trial", "backend", "silence_seconds", "pretend")

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
}
"""Keys of the configuration that these options set, by option."""

_RANK_OPTIONS = (
    device_option,
    click.option(
        "--devices",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Devices of this machine to use when not started by mpiexec or srun; 0: all.",
    ),
    click.option(
        "--devices-per-trial",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Devices that train one trial together; 0: all devices of a host.",
    ),
    click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        default=BACKENDS[0],
        show_default=True,
        help="Library that averages gradients over the devices of a trial.",
    ),
    click.option(
        "--silence-seconds",
        type=Number(min=1),
        default=60.0,
        show_default=True,
        help="A group that is silent for this long [s] is lost; another group gets its trial.",
    ),
)


def rank_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options for ranks to a command, which gets them as `options`."""

    @wraps(command)
    def wanting(
        device: str, devices: int, devices_per_trial: int, backend: str, silence_seconds: float, **others: Any
    ) -> int:
        options = RankOptions(device, devices, devices_per_trial, backend, silence_seconds)
        return command(options=options, **others)

    for option in reversed(_RANK_OPTIONS):
        wanting = option(wanting)
    return wanting


def config_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options for what is run to a command, which gets them as `request`."""

    @wraps(command)
    def asking(**parameters: Any) -> int:
        request = take_request(parameters)
        return command(request=request, **parameters)

    for option in reversed(_CONFIG_OPTIONS):
        asking = option(asking)
    return asking


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
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Number of runs, one after another, in directories 1, 2, … of --directory, with random seeds s, "
        "s+1, …, or all with the same one if they are to be ranked; then their spread is shown.",
    ),
    click.option("--same-seed", is_flag=True, help="For --repeats: the same random seed in each run."),
)
_AFTER_RANKS = (
    pretend_option,
    click.option("--dry-run", is_flag=True, help="Show the plan and the estimated time, then exit."),
    click.option(
        "--examples-per-second",
        type=Number(1e-6, 1e15),
        help="For --dry-run: training rate of the seed on another machine, in images or windows per second; "
        "default: measured on this one.",
    ),
)


def run_options(command: Callable[..., int]) -> Callable[..., int]:
    """All options of `run`, which a batch script passes on; the command gets them as `request` and `options`,
    and those of the run itself by their names."""
    for option in reversed(_AFTER_RANKS):
        command = option(command)
    command = rank_options(command)
    for option in reversed(_BEFORE_RANKS):
        command = option(command)
    return config_options(command)


def take_request(parameters: dict[str, Any]) -> RunRequest:
    """Removes the parameters of `config_options` from those of a command, and returns them."""
    given = {key: parameters.pop(option) for option, key in _KEYS.items()}
    if given["data.path"]:  # a run may be resumed, or its job begin, in another folder
        given["data.path"] = os.path.abspath(given["data.path"])
    name = parameters.pop("name")
    return RunRequest(
        (OWN if given["data.path"] else DEFAULT) if name is None else name,
        parameters.pop("minutes"),
        parameters.pop("hours"),
        parameters.pop("settings"),
        {key: value for key, value in given.items() if value is not None},
    )


def rank_words(context: click.Context) -> tuple[str, ...]:
    """The arguments of `rank_options` that the user typed, to be passed on."""
    words: list[str] = []
    for option in _RANK_NAMES:
        if is_typed(option, context):
            words += [f"--{option.replace('_', '-')}", str(context.params[option])]
    return tuple(words)
