"""Options that several sub-commands share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from aiperf.commands.extras import extra
from aiperf.errors import AiperfError
from aiperf.files import RUNS, RunFiles
from aiperf.os_error import unwritable

DEVICES = ("auto", "cuda", "npu", "xpu", "cpu")
GPU = "auto takes the accelerator that is there; cuda is PyTorch's name for GPUs of NVIDIA and AMD"
OTHER_DEVICES = dict.fromkeys(("gpu", "rocm", "hip", "nvidia", "amd"), GPU) | {
    "ascend": "Ascend is npu",
    "intel": "a GPU of Intel is xpu",
}
"""What to type instead of the names that people use for a device."""
PATH = click.Path(path_type=Path)

run_argument = click.argument("directory", metavar="RUN", type=PATH)
run_or_package_argument = click.argument("path", metavar="RUN|PACKAGE", type=PATH)


WITH_UNIT = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+) ?(%|s|sec|seconds?|m|min|minutes?|h|hours?)")


class Known(click.Choice[str]):
    """One of several words. For a word that people use for one of them, the refusal says which it is."""

    def __init__(self, words: Sequence[str], others: Mapping[str, str]) -> None:
        super().__init__(words)
        self.others = others

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> str:
        if remedy := self.others.get(str(value).lower()):
            self.fail(f"{value!r} is not one of {', '.join(self.choices)}: {remedy}", param, context)
        return super().convert(value, param, context)


class Number(click.FloatRange):
    """A number within a range. NaN is refused here, because click accepts it in every range."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        if with_unit := WITH_UNIT.fullmatch(str(value)):
            number, unit = with_unit.groups()
            alone = f"{float(number) / 100:g}" if unit == "%" else number
            self.fail(f"{value!r} has a unit; give the number alone, such as {alone}", param, context)
        found: float = super().convert(value, param, context)
        if isnan(found):
            self.fail(f"{value!r} is not a number.", param, context)
        return found


device_option = click.option(
    "--device",
    type=Known(DEVICES, OTHER_DEVICES),
    default="auto",
    show_default=True,
    help="Kind of device to compute on; auto: an accelerator if there is one.",
)


def say_note(note: str) -> None:
    """Prints what the user should know about the choice of a device, if there is anything."""
    if note:
        click.echo(f"aiperf-hpc: {note}", err=True)


def say_next(*words: object) -> None:
    """Prints the command that comes next, as a person would type it; never where the output is data."""
    click.echo(f"Next: aiperf-hpc {shlex.join(map(str, words))}", err=True)


def output_option(
    told: str, default: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "-o", "--output", type=PATH, default=default, show_default=default is not None, help=told
    )


def only_with(other: str, is_given: bool, *options: str) -> None:
    """Raises UsageError if one of these options of the command was typed without the option `other`."""
    context = click.get_current_context()
    for option in options:
        if not is_given and is_typed(option, context):
            names = next(each.opts for each in context.command.params if each.name == option)
            raise click.UsageError(f"{max(names, key=len)} is only for {other}", context)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A context for writing a file that the user named. Raises AiperfError if the system refuses."""
    try:
        yield
    except OSError as error:
        raise AiperfError(unwritable(error, path, "choose another path")) from None


def write_file(path: Path, content: bytes) -> Path:
    """Writes a file and returns its path. Raises AiperfError if the system refuses."""
    with writing(path):
        path.write_bytes(content)
    return path


def is_typed(option: str, context: click.Context | None = None) -> bool:
    """Whether the user typed this option of the current command, or of `context`."""
    source = (context or click.get_current_context()).get_parameter_source(option)
    return source is ParameterSource.COMMANDLINE


@contextmanager
def opened(path: Path) -> Iterator[RunFiles]:
    """A context with the files of a run directory, or of a package, which is unpacked for its duration after
    its checksums are checked."""
    if not (path.exists() or path.parent.is_file()):
        among = RUNS / path
        remedy = f"did you mean {among}?" if among.exists() else "give a run directory or a package"
        raise AiperfError(f"{path} does not exist; {remedy}")
    if path.is_dir() or not (path.is_file() or path.parent.is_file()):
        yield RunFiles(path)
        return
    with extra("report"):
        from analysis.submissions.unpacking import opened_run
    with opened_run(path) as files:
        yield files
