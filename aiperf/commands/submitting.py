"""Sub-commands about submissions: packing, signing, ranking."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path

import click

from aiperf.commands.extras import extra
from aiperf.commands.options import PATH, only_with, output_option, say_next
from aiperf.commands.system_description import complete, given_system, missing_fields, question_about
from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from aiperf.journal.mark import refuse_marked
from aiperf.os_error import unwritable
from aiperf.rules.ending import Answer


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
@click.option(
    "--redact",
    is_flag=True,
    help="Leave out the names of hosts, users, paths, devices, jobs and addresses that the journal hides.",
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
    redact: bool,
) -> int:
    """Pack runs for submission: journals, results, configuration, system description, checksums.

    The system description has MLPerf's fields. They are filled in from the journal, this machine and
    --system; the rest is asked for on a terminal. Existing files are never overwritten.
    """
    with extra("report"):
        from analysis.exports.summary import findings_text
        from analysis.readings.judgement import read_run
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
        for name in missing_fields(system):
            click.echo(f"to complete: {question_about(name)}", err=True)
        return 0
    for each, run in zip(replays, runs):  # before anybody is asked
        refuse_unfinished(each, run)
    complete(system)
    contact = Contact(
        organization or system["submitter"], person, address or _asked("--address", "address for questions")
    )
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    judged = write_package(
        output, runs, system, contact, licence, created, key_file, _say, with_weights, redact
    )
    for packed in judged:
        click.echo(findings_text(packed.verdict))
    click.echo(f"{output}: {output.stat().st_size:,} bytes")
    say_next("rank", output.parent)
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
        line_of("1" * 64, site)  # a bad name is refused before a key is made
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
@click.option(
    "--peaks",
    "peaks_file",
    type=PATH,
    help="TOML: peaks of devices that this program does not list, each with its source.",
)
@click.option(
    "--notaries",
    "notaries_file",
    type=PATH,
    help="Register of notaries: one public key and name per line; adds a column.",
)
@click.option(
    "--require-notary",
    is_flag=True,
    help="Refuse runs that none of --notaries signed to the end of the span.",
)
def rank(
    directory: Path,
    output: Path,
    keys_file: Path | None,
    runs: int,
    peaks_file: Path | None,
    notaries_file: Path | None,
    require_notary: bool,
) -> None:
    """Validate every package (*.tar.gz) in a directory and write a static web site that ranks them."""
    with extra("report"):
        from analysis.submissions.keys import read_keys
        from analysis.submissions.peaks import read_peaks
        from analysis.submissions.ranking import Notaries
        from analysis.submissions.ranking import rank as ranked
    only_with("--notaries", notaries_file is not None, "require_notary")
    peaks = {} if peaks_file is None else read_peaks(peaks_file)
    register = {} if keys_file is None else read_keys(keys_file)
    notaries = None if notaries_file is None else Notaries(read_keys(notaries_file), require_notary)
    if not directory.is_dir():
        raise AiperfError(f"{directory} is not a directory; give the directory that holds the packages")
    packages = sorted(directory.glob("*.tar.gz"))
    if not packages:
        raise AiperfError(f"no package (*.tar.gz) in {directory}; `aiperf-hpc package` creates one")

    def write(name: str, text: str) -> None:
        try:
            output.mkdir(parents=True, exist_ok=True)
            (output / name).write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise AiperfError(unwritable(error, error.filename or output / name)) from None

    standing = ranked(packages, register, write, _say, runs, peaks, notaries)
    click.echo(f"{standing.text}: {output / 'index.html'}")


def _asked(option: str, what: str) -> str:
    if not sys.stdin.isatty():
        raise AiperfError(f"there is no {what}; give it with {option}")
    return str(click.prompt(what))


def _say(text: str) -> None:
    click.echo(text, err=True)
