"""Commands that are imported when they are called are listed, suggested and completed all the same."""

from __future__ import annotations

import click
import pytest
from click.shell_completion import ShellComplete

from aiperf.commands import COMMANDS
from aiperf.commands.command_groups import LONGEST, first_sentence
from aiperf.commands.main import group
from tests.aiperf.commands.typed import Typed


@pytest.mark.contract
@pytest.mark.parametrize("heading", COMMANDS)
def test_each_is_listed_as_it_describes_itself(heading: str) -> None:
    """The list is made from the texts of the files, without an import."""
    listed = [(name, first_sentence(place)) for name, place in COMMANDS[heading].items()]
    commands = [group.commands[name] for name in COMMANDS[heading]]
    assert listed == [(each.name, each.get_short_help_str(LONGEST)) for each in commands]


def test_a_misspelt_one_is_answered_with_what_was_meant_and_with_all(typed: Typed) -> None:
    names = ", ".join(sorted(name for places in COMMANDS.values() for name in places))
    assert typed("validat") == 2
    meant, _, known = typed.err.partition(" Commands: ")
    assert meant.startswith("aiperf-hpc: No such command 'validat'.")
    assert "'validate'" in meant
    assert known == f"{names}.\n"


def test_the_help_of_a_number_shows_its_unit() -> None:
    """Click would show the kind of its range: FLOAT RANGE."""
    command = group.commands["run"]
    context = click.Context(command)
    shown = {each.opts[0]: each.make_metavar(context) for each in command.params}
    expected = {"--minutes": "MINUTES", "--hours": "HOURS", "--silence-seconds": "SECONDS"}
    expected |= {"--max-trials": "N", "--target-error": "NUMBER", "--data": "PATH"}
    assert {name: shown[name] for name in expected} == expected


@pytest.mark.contract
@pytest.mark.parametrize("name", [name for names in COMMANDS.values() for name in names])
def test_no_help_shows_the_kind_of_a_range(name: str) -> None:
    command = group.commands[name]
    commands = command.commands.values() if isinstance(command, click.Group) else (command,)
    assert [each.name for each in commands if " RANGE" in each.get_help(click.Context(each))] == []


def test_a_shell_completes_them() -> None:
    found = ShellComplete(group, {}, "aiperf-hpc", "_AIPERF_HPC_COMPLETE").get_completions([], "s")
    names = sorted(name for places in COMMANDS.values() for name in places)
    assert [each.value for each in found] == [name for name in names if name.startswith("s")]
