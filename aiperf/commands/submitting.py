"""Sub-commands about submissions: packing, signing, ranking."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from aiperf.commands.extras import extra
from aiperf.commands.options import PATH, output_option
from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from aiperf.journal import strict
from aiperf.journal.mark import refuse_marked
from aiperf.journal.replay import Replay
from aiperf.rules.ending import Answer
from analysis.readings.judged import Judged
from nas.bounded import read_bytes


@click.command()
@click.argument("directories", metavar="RUN...", nargs=-1, required=True, type=PATH)
@output_option("The archive.", "result.tar.gz")
@click.option(
    "--system",
    "system_file",
    type=PATH,
    help="JSON file with fields of the system description.",
)
@click.option(
    "--print-system", is_flag=True, help="Print the description with the values known here, then exit."
)
@click.option(
    "--organization", help="Name of the submitter; default: the submitter of the system description."
)
@click.option("--person", default="", help="Contact person.")
@click.option("--address", help="Email address of the contact.")
@click.option(
    "--licence",
    default="CC-BY-4.0",
    show_default=True,
    help="Licence of the contents, as an SPDX identifier.",
)
@click.option("--key", "key_file", type=PATH, help="Sign with this private key.")
@click.option(
    "--with-weights",
    is_flag=True,
    help="Include the weights of the best network, for `validate --reevaluate`.",
)
def package(
    directories: tuple[Path, ...],
    output: Path,
    system_file: Path | None,
    print_system: bool,
    organization: str | None,
    person: str,
    address: str | None,
    licence: str,
    key_file: Path | None,
    with_weights: bool,
) -> int:
    """Pack runs for submission: journals, results, configuration, system description, checksums.

    The system description has MLPerf's fields. They are filled in from the journal, this machine and
    --system; the rest is asked for on a terminal. Existing files are never overwritten.
    """
    with extra("report"):
        from analysis.exports.summary import findings_text
        from analysis.readings.judged import read_run
        from analysis.submissions.package import Contact, refuse_unfinished, write_package
        from analysis.submissions.system import fields, from_journal, from_this_machine, largest
    runs = [RunFiles(directory) for directory in directories]
    replays = [read_run(run) for run in runs]
    for each, run in zip(replays, runs):
        refuse_marked(each.opened.origin, run.directory, "be submitted")
    replay = largest(replays)
    system = dict.fromkeys(fields(), "") | from_this_machine(replay) | from_journal(replay)
    system |= {} if system_file is None else given_system(system_file, system)
    if print_system:
        click.echo(json.dumps(system, indent=1, ensure_ascii=False))
        for name in _missing(system):
            click.echo(f"to complete: {_question(name)}", err=True)
        return 0
    for each, run in zip(replays, runs):  # before anybody is asked
        refuse_unfinished(each, run)
    _complete(system)
    contact = Contact(
        organization or system["submitter"], person, address or _asked("--address", "address for questions")
    )
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    judged = write_package(output, runs, system, contact, licence, created, key_file, _say, with_weights)
    for packed in judged:
        click.echo(findings_text(packed.verdict))
    click.echo(f"{output}: {output.stat().st_size:,} bytes")
    return 0 if all(packed.verdict.valid for packed in judged) else Answer.INVALID.exit_code


@click.command()
@click.argument("file", type=PATH)
@click.option("--site", default="", help="Name of the site; print a line for `rank --keys`.")
@click.option("--show", is_flag=True, help="Create no key; print the public key of the key in FILE.")
def key(file: Path, site: str, show: bool) -> None:
    """Create a private key (Ed25519) for signing packages, and print its public key.

    With --site, the public key is printed as a line for the register of a ranking: see `rank --keys`.
    """
    from analysis.submissions.keys import line_of
    from analysis.submissions.signature import make_key, public_key

    if site:
        line_of("0" * 64, site)  # a bad name is refused before a key is made
    public = public_key(file) if show else make_key(file)
    click.echo(line_of(public, site) if site else public)


@click.command()
@click.argument("directory", type=PATH)
@output_option("Folder of the web site.", "ranking")
@click.option("--keys", "keys_file", type=PATH, help="Register: one public key and site name per line.")
@click.option(
    "--runs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Ask for so many runs of each system, and list the one with the median OPS; 1: list each run.",
)
def rank(directory: Path, output: Path, keys_file: Path | None, runs: int) -> None:
    """Validate every package (*.tar.gz) in a directory and write a static web site that ranks them."""
    with extra("report"):
        from analysis.submissions.keys import read_keys
        from analysis.submissions.ranking import rank as ranked
    register = {} if keys_file is None else read_keys(keys_file)
    packages = sorted(directory.glob("*.tar.gz"))
    if not packages:
        raise AiperfError(f"no package (*.tar.gz) in {directory}; `aiperf-hpc package` creates one")

    def write(name: str, text: str) -> None:
        try:
            output.mkdir(parents=True, exist_ok=True)
            (output / name).write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise SystemExit(f"aiperf-hpc: {error.filename} cannot be written: {error.strerror}") from None

    standing = ranked(packages, register, write, _say, runs)
    click.echo(f"{len(standing.entries)} ranked, {len(standing.refused)} not: {output / 'index.html'}")


def validate_package(path: Path, again: Callable[[Replay, RunFiles], bool] | None = None) -> int:
    """Prints every rule's finding for every run, then the answer with the reasons; gives its exit code.

    `again` evaluates the best network of a run again, and answers whether it agrees.
    """
    with extra("report"):
        from aiperf.wording import plain
        from analysis.exports.summary import findings_text
        from analysis.submissions.verify import checked
    with checked(path, _say) as submission:
        for run in submission.runs:
            click.echo(f"runs/{run.name}")
            click.echo(findings_text(run.judged.verdict))
        for reason in [*submission.reasons, *(reason for run in submission.runs for reason in run.reasons)]:
            click.echo(plain(f"{reason.where}: {reason.text}"))
        signed = "not signed" if submission.signed_by is None else f"signed by {submission.signed_by}"
        click.echo(f"manifest {submission.manifest_sha256}, {signed}")
        agrees = [_agrees(again, run.judged, path) for run in submission.runs] if again else []
        answer = submission.answer if all(agrees) else Answer.INVALID
        click.echo(f"package {answer.value}")
        return answer.exit_code


def _agrees(again: Callable[[Replay, RunFiles], bool], judged: Judged, path: Path) -> bool:
    files, tested = judged.files, judged.replay.tested
    where = f"{path}: runs/{files.directory.name}"
    if tested is not None and not files.weights(tested.trial).is_file():
        raise AiperfError(f"{where} has no weights; ask for a package made with `package --with-weights`")
    try:
        return again(judged.replay, files)
    except AiperfError as error:
        raise AiperfError(str(error).replace(str(files.directory), where)) from None


def given_system(path: Path, known: Collection[str]) -> dict[str, str]:
    """A file with fields of a system description."""
    try:
        record: Any = strict.parsed(read_bytes(path))
    except OSError as error:
        raise AiperfError(f"{path}: {error.strerror}; `package --print-system` prints a template") from None
    except (ValueError, RecursionError) as error:
        raise AiperfError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(record, dict):
        raise AiperfError(f"{path} is not a JSON object; `package --print-system` prints a template")
    if unknown := sorted(record.keys() - set(known)):
        raise AiperfError(f"{path}: unknown field {unknown[0]!r}; known: {', '.join(known)}")
    for name, value in record.items():
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise AiperfError(f'{path}: {name} is {json.dumps(value):.60}, not text; use "" for unknown')
    return {name: str(value).strip() for name, value in record.items()}


def _complete(system: dict[str, str]) -> None:
    """Asks the user for missing fields. Without a terminal it raises AiperfError, but only for required
    fields."""
    from analysis.submissions.system import choices, fields

    missing = _missing(system)
    if not sys.stdin.isatty():
        if missing:
            raise AiperfError(
                f"the system description lacks {', '.join(missing)}; add them to a file (`package "
                f"--print-system` prints a template) and give it with --system"
            )
        return
    click.echo("System description. Press Return to skip an optional field.", err=True)
    for name, about in fields().items():
        if not system[name] and name != "division":
            question = f"{name} ({about.rstrip('.')})"
            default = None if name in missing else ""
            system[name] = (
                _chosen(question, options)
                if (options := choices(name))
                else click.prompt(question, default=default, show_default=False)
            )


def _missing(system: Mapping[str, str]) -> list[str]:
    """Required fields that are empty, except the division, which follows from the runs."""
    from analysis.submissions.system import needed

    return [name for name in needed() if not system[name] and name != "division"]


def _question(name: str) -> str:
    from analysis.submissions.system import choices, fields

    options = choices(name)
    one_of = f" One of: {'; '.join(options)}." if options else ""
    return f"{name}: {fields()[name]}{one_of}"


def _chosen(question: str, options: Sequence[str]) -> str:
    """Asks for one of the options by its number, because an option may be a whole line."""
    click.echo("\n".join(f"  {number}  {option}" for number, option in enumerate(options, start=1)), err=True)
    return options[click.prompt(question, type=click.IntRange(1, len(options)), err=True) - 1]


def _asked(option: str, what: str) -> str:
    if not sys.stdin.isatty():
        raise AiperfError(f"there is no {what}; give it with {option}")
    return str(click.prompt(what))


def _say(text: str) -> None:
    click.echo(text, err=True)
