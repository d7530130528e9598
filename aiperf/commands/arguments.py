"""Arguments and options that several commands share, and the kinds of values that they take."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from aiperf.errors import ConfigError

DEVICES = ("auto", "cuda", "npu", "xpu", "cpu")
"""Kinds of devices, by the names that PyTorch has for them."""
GPU = "auto takes an available accelerator; cuda is PyTorch's name for GPUs of NVIDIA and AMD"
OTHER_DEVICES = dict.fromkeys(("gpu", "rocm", "hip", "nvidia", "amd"), GPU) | {
    "ascend": "Ascend is npu",
    "intel": "a GPU of Intel is xpu",
}
"""What to type instead of the names that people use for a device."""
WITH_UNIT = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+) ?(%|s|sec|seconds?|m|min|minutes?|h|hours?)")
"""A number with a unit, which people type although the help states the unit."""
PATH = click.Path(path_type=Path)
"""A path, which need not exist: the command says what is wrong with it, and what to do."""


class Known(click.Choice[str]):
    """One of several words. For a word that people use for one of them, the refusal says which it is."""

    def __init__(self, words: Sequence[str], others: Mapping[str, str]) -> None:
        """`others` are words that people use, in lower case, with what they should type."""
        super().__init__(words)
        self.others = others

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> str:
        """The word, as click checks it. Fails with the remedy for a word in `others`."""
        if remedy := self.others.get(str(value).lower()):
            self.fail(f"{value!r} is not one of {', '.join(self.choices)}: {remedy}", param, context)
        return super().convert(value, param, context)


UNITS = {"hours": "HOURS", "minutes": "MINUTES", "seconds": "SECONDS", "ms": "MILLISECONDS"}
"""Units that end the name of an option, with what its help shows in place of the value."""


class Number(click.FloatRange):
    """A number within a range. NaN is refused here, because click accepts it in every range."""

    name = "number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The unit at the end of the option's name, for the help; NUMBER without one."""
        return UNITS.get(str(param.name).rpartition("_")[2], "NUMBER")

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        """The number. Fails for NaN, for a number outside the range, and for one with a unit, with what to
        type instead."""
        if with_unit := WITH_UNIT.fullmatch(str(value)):
            number, unit = with_unit.groups()
            alone = f"{float(number) / 100:g}" if unit == "%" else number
            self.fail(f"{value!r} has a unit; give the number alone: {alone}", param, context)
        result: float = super().convert(value, param, context)
        if isnan(result):
            self.fail(f"{value!r} is not a valid number.", param, context)
        return result


class Whole(click.IntRange):
    """A whole number within a range."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """What the help shows in place of the value."""
        return "N"


run_argument = click.argument("directory", metavar="RUN", type=PATH)
"""The directory of a run. A package is not accepted."""
run_or_package_argument = click.argument("path", metavar="RUN|PACKAGE", type=PATH)
"""The directory of a run, or a package, which `user_files.opened` unpacks."""
device_option = click.option(
    "--device",
    type=Known(DEVICES, OTHER_DEVICES),
    default="auto",
    help="Kind of device to compute on; auto: an accelerator if there is one.",
)
"""The kind of device, which the ranks bind."""


def output_option(text: str, default: str | None = None) -> Callable[[Any], Any]:
    """The option for the file or folder to be written; `text` is its help."""
    return click.option("-o", "--output", type=PATH, default=default, help=text)


def only_with(other: str, is_given: bool, *options: str) -> None:
    """Raises UsageError if one of these options of the command was typed without the option `other`."""
    context = click.get_current_context()
    for option in options:
        if not is_given and is_typed(option, context):
            names = next(each.opts for each in context.command.params if each.name == option)
            raise click.UsageError(f"{max(names, key=len)} is only for {other}", context)


def is_typed(option: str, context: click.Context | None = None) -> bool:
    """Whether the user typed this option of the current command, or of `context`."""
    source = (context or click.get_current_context()).get_parameter_source(option)
    return source is ParameterSource.COMMANDLINE


def node_counts(text: str) -> tuple[int, ...]:
    """The numbers of nodes that --nodes has, such as "4,8,16". Raises ConfigError."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"--nodes is {text!r}; give whole numbers separated by commas, such as 4,8,16"
        ) from None
