"""Options that several sub-commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from aiperf.commands.extras import extra
from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from aiperf.os_error import unwritable

DEVICES = ("auto", "cuda", "npu", "xpu", "cpu")
PATH = click.Path(path_type=Path)

run_argument = click.argument("directory", metavar="RUN", type=PATH)
run_or_package_argument = click.argument("path", metavar="RUN|PACKAGE", type=PATH)


class Number(click.FloatRange):
    """A number within a range. NaN is refused here, because click accepts it in every range."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        found: float = super().convert(value, param, context)
        if isnan(found):
            self.fail(f"{value!r} is not a number.", param, context)
        return found


device_option = click.option(
    "--device",
    type=click.Choice(DEVICES),
    default="auto",
    show_default=True,
    help="Kind of device to compute on; auto: an accelerator if there is one.",
)


def say_note(note: str) -> None:
    """Prints what the user should know about the choice of a device, if there is anything."""
    if note:
        click.echo(f"aiperf-hpc: {note}", err=True)


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
        raise AiperfError(f"{path} does not exist; give a run directory or a package")
    if path.is_dir() or not (path.is_file() or path.parent.is_file()):
        yield RunFiles(path)
        return
    with extra("report"):
        from analysis.submissions.unpacking import opened_run
    with opened_run(path) as files:
        yield files
