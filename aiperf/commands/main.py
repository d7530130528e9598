"""The command `aiperf-hpc`."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys

import click

from aiperf.commands import COMMANDS
from aiperf.commands.command_groups import CommandGroup
from aiperf.errors import AiperfError
from aiperf.os_error import refused
from aiperf.wording import plain, suggestion

FAILURE, USAGE, INTERRUPTED = 1, 2, 130
"""Exit codes, as shells and click have them; 130 is 128 + SIGINT."""
ELSEWHERE = {("export", "--json"): "`aiperf-hpc report RUN --json` writes the result as JSON"}
"""Options that people look for at a command, with the command that has them."""


@click.group(
    name="aiperf-hpc",
    cls=CommandGroup,
    places=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
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
        if isinstance(stream, io.TextIOWrapper):  # a run must not fail because a locale has no "−"
            stream.reconfigure(errors="replace")
    try:
        return int(group.main(prog_name="aiperf-hpc", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        return _greet(error.format_message())
    except click.UsageError as error:
        return _refuse(_usage(error), USAGE)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except AiperfError as error:
        return _refuse(plain(str(error)), FAILURE)
    except (KeyboardInterrupt, click.Abort):
        return _refuse("interrupted", INTERRUPTED)
    except OSError as error:  # usually a full disk; click handles `aiperf-hpc … | head` itself
        _discard_output()
        return _refuse(plain(refused(error)), FAILURE)


def _refuse(text: str, code: int) -> int:
    """Prints why the command failed, and returns the exit code."""
    # Not by `click.echo`, which flushes, and so fails again where the disk is full.
    print(f"aiperf-hpc: {text}", file=sys.stderr)
    return code


def _greet(help_text: str) -> int:
    """Prints the help of `aiperf-hpc` without arguments, which is not an error."""
    try:
        print(help_text, flush=True)
    except BrokenPipeError:  # `aiperf-hpc | head`
        _discard_output()
    return 0


def _discard_output() -> None:
    """Discards further output. Otherwise Python would try to write the buffered output at the exit, and fail
    again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: click.UsageError) -> str:
    """What is wrong with the arguments, and which ones exist."""
    if isinstance(error, click.NoSuchOption):
        return f"no option {error.option_name}{_remedy(error)}"
    if "No such command" in error.format_message():
        command = error.ctx.command if error.ctx else group
        known = sorted(command.commands if isinstance(command, click.Group) else ())
        return f"{error.format_message()} Commands: {', '.join(known)}."
    text = " ".join(error.format_message().split())  # click lists the choices of a missing option in lines
    return f"{text.rstrip('.')}. Try '{_path(error.ctx)} --help'."


def _remedy(error: click.NoSuchOption) -> str:
    """What to do about an unknown option: the command that has it, the similar ones, or all that exist.
    Options of `run` are recognised, because users often forget to type the command, or `--` before them."""
    words, option = sys.argv[1:], error.option_name
    if option in _options(click.Context(group.commands["run"])):
        if words[:1] == [option]:
            return f" before a command; for a run: aiperf-hpc run {shlex.join(words)}"
        if error.ctx is not None and any(each.name == "options" for each in error.ctx.command.params):
            at = next(n for n, word in enumerate(words) if word.partition("=")[0] == option)
            command = shlex.join([*words[:at], "--", *words[at:]])
            return f" before --; options of the run go after it: aiperf-hpc {command}"
    if elsewhere := ELSEWHERE.get((words[0], option)):
        return f" here; {elsewhere}"
    known = [name for name in _options(error.ctx) if name.startswith("--")]
    return f"{suggestion(option, known) or '.'} Options: {', '.join(known)}"


def _path(context: click.Context | None) -> str:
    """The command that was typed. For an option without its value click does not report the command, so it is
    derived from the arguments."""
    if context is not None:
        return context.command_path
    words = ["aiperf-hpc"]
    command: click.Command = group
    for word in sys.argv[1:]:
        if not isinstance(command, click.Group) or word not in command.commands:
            break
        words, command = [*words, word], command.commands[word]
    return " ".join(words)


def _options(context: click.Context | None) -> list[str]:
    """All options of a command, with their short forms."""
    if context is None:
        return []
    return [name for parameter in context.command.get_params(context) for name in parameter.opts]
