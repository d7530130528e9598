"""The command `aiperf-hpc`."""

from __future__ import annotations

import contextlib
import io
import os
import sys

import click

from aiperf.commands import COMMANDS
from aiperf.errors import AiperfError
from aiperf.wording import plain, suggestion

USAGE, FAILURE, INTERRUPTED = 2, 1, 130
LONGEST = 200  # of a first sentence; click cuts longer ones


class Sections(click.Group):
    """Lists its commands under the headings of `COMMANDS`, with the whole first sentence of each."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for heading, commands in COMMANDS.items():
            rows = [((each.name or "").ljust(width), each.get_short_help_str(LONGEST)) for each in commands]
            with formatter.section(heading):
                formatter.write_dl(rows)


@click.group(
    name="aiperf-hpc",
    cls=Sections,
    commands={command.name or "": command for commands in COMMANDS.values() for command in commands},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="aiperf-hpc")
def group() -> None:
    """Benchmark machines with neural architecture search: operations actually performed per second.

    Start with `aiperf-hpc run`: it measures this machine in about two minutes.
    """


def main() -> int:
    """Runs the command of `sys.argv` and returns its exit code: 0 done, 1 failed or INVALID, 2 wrong use,
    3 NO RESULT, 4 SIMULATED, 75 INCOMPLETE, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # of a locale that has no "−" a run must not die
            stream.reconfigure(errors="replace")
    try:
        return int(group.main(prog_name="aiperf-hpc", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        return _greet(error.format_message())
    except click.NoSuchOption as error:
        known = [name for name in _options(error.ctx) if name.startswith("--")]
        meant = suggestion(error.option_name, known)
        print(
            f"aiperf-hpc: no option {error.option_name}{meant or '.'} Options: {', '.join(known)}",
            file=sys.stderr,
        )
        return USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "aiperf-hpc"
        if "No such command" in error.format_message():
            of = error.ctx.command if error.ctx else group
            known = sorted(of.commands if isinstance(of, click.Group) else ())
            print(f"{error.format_message()} Commands: {', '.join(known)}.", file=sys.stderr)
        else:
            message = error.format_message().rstrip(".")
            print(f"aiperf-hpc: {message}. Try '{command} --help'.", file=sys.stderr)
        return USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except AiperfError as error:
        print(plain(f"aiperf-hpc: {error}"), file=sys.stderr)
        return FAILURE
    except (KeyboardInterrupt, click.Abort):
        print("aiperf-hpc: interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:  # a disk that is full, mostly; of `aiperf-hpc … | head` click takes care
        _say_no_more()
        where = f"{error.filename}: " if error.filename else ""
        print(plain(f"aiperf-hpc: {where}{error.strerror or error}"), file=sys.stderr)
        return FAILURE


def _greet(help_text: str) -> int:
    try:
        print(help_text, flush=True)
    except BrokenPipeError:  # `aiperf-hpc | head`
        _say_no_more()
    return 0


def _say_no_more() -> None:
    """What standard output still holds would be tried again at the exit, and fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _options(context: click.Context | None) -> list[str]:
    if context is None:
        return []
    return [name for parameter in context.command.get_params(context) for name in parameter.opts]
