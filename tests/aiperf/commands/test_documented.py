"""What the documentation tells people to type is understood, and what only reads is typed here. Commands that
are imported when they are called are listed, suggested and completed all the same."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from aiperf.commands import COMMANDS
from aiperf.commands.command_groups import LONGEST, first_sentence
from aiperf.commands.main import group
from tests.aiperf.commands.typed import Typed
from tests.house.tree import ROOT
from tests.journals import Scene, told, write_run

PAGES = [ROOT / "README.md", ROOT / "slurm" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# What needs devices, weights, a scheduler, a person, another file or an hour; other tests type it.
ELSEWHERE = {
    *("run", "resume", "spread", "data", "peak", "infer", "profile", "launch", "serve", "doctor", "package"),
    *("power", "rank", "notary", "key", "scaling", "accept", "simulate", "--spread", "--notaries"),
    *("--watch", "--reevaluate", "--torch", "--mlperf", "--mlperf-inference", "peak.json", "PACKAGE"),
    *("accepted.tar.gz", "result.tar.gz"),
}
PLACES = dict.fromkeys(("runs/<id>", "RUN..."), "RUN")
PLACES |= dict.fromkeys(("spread-of-digits", "DIRECTORY", "/data/imagenet"), ".")


def documented() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Where, and the words after `aiperf-hpc`, of every whole command in the pages."""
    for page in PAGES:
        text, name = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
        blocks = re.findall(r"^```\n(.*?)^```$", text, flags=re.M | re.S)
        lines = [line for block in blocks for line in block.splitlines()]
        lines += re.findall(r"`([^`\n]*)`", re.sub(r"^```\n.*?^```$", "", text, flags=re.M | re.S))
        for line in lines:
            found = re.match(r"(?:(?:mpiexec|srun|ssh) .*|\.venv/bin/)?aiperf-hpc (?P<words>[a-z].*)", line)
            if found and "…" not in line:
                command = re.split(r"\s+[#>] ?|\s{2,}", found["words"])[0]
                if command.count('"') % 2:  # the end of what ssh is given
                    command = command.removesuffix('"')
                words = shlex.split(command)
                yield f"{name}: {' '.join(words)}", tuple(PLACES.get(word, word) for word in words)


TYPED = dict(documented())
READING = sorted({words for words in TYPED.values() if words[1:] and not ELSEWHERE & set(words)})


@pytest.mark.contract
def test_every_sub_command_and_option_exists_and_takes_such_a_value() -> None:
    assert len(set(TYPED.values())) > 80
    for where, words in TYPED.items():
        command: click.Command = group
        while isinstance(command, click.Group):
            assert words[0] in command.commands, f"{where}: there is no {words[0]}"
            command, words = command.commands[words[0]], words[1:]
        if words:  # else it is only spoken of
            command.make_context(where, list(words))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files are that the commands name."""
    found = tmp_path_factory.mktemp("documented")
    write_run(found / "RUN", told(Scene(groups=1)))
    return found


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_it_does_what_it_says(
    words: tuple[str, ...], typed: Typed, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert typed(*words) == 0, typed.err


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
