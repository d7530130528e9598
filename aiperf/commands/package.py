"""`package`: runs are packed for submission.

What a reviewer can compute is computed here and compared there; what only the owner knows, such as the name
of the machine, is asked for. docs/results.md says what a package publishes and what it hides.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path

import click

from aiperf.commands.arguments import PATH, output_option
from aiperf.commands.messages import say_line, say_next
from aiperf.commands.optional_libraries import extra
from aiperf.commands.system_description import complete, given_system, missing_fields, question_about
from aiperf.errors import AiperfError
from aiperf.journal.mark import refuse_marked
from aiperf.journal.run_files import RunFiles
from aiperf.rules.ending import Answer


@click.command()
@click.argument("directories", metavar="RUN...", nargs=-1, required=True, type=PATH)
@output_option("The archive.", "result.tar.gz")
@click.option("--system", "system_file", type=PATH, help="JSON file with fields of the system description.")
@click.option(
    "--print-system", is_flag=True, help="Print the description with the values known here, then exit."
)
@click.option(
    "--organization", help="Name of the submitter; default: the submitter of the system description."
)
@click.option("--person", default="", show_default=False, help="Contact person.")
@click.option("--address", help="Email address of the contact.")
@click.option("--licence", default="CC-BY-4.0", help="Licence of the contents, as an SPDX identifier.")
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
    for each, run in zip(replays, runs):  # first: nobody describes a machine for a run that is refused
        refuse_marked(each.opened.origin, run.directory, "be submitted")
    replay = largest(replays)
    # The journal says more surely than this machine what the run used, and the owner's file has the last
    # word.
    system = dict.fromkeys(fields(), "") | from_this_machine(replay) | from_journal(replay)
    system |= {} if system_file is None else given_system(system_file, system)
    if print_system:
        click.echo(json.dumps(system, indent=1, ensure_ascii=False))
        for name in missing_fields(system):
            say_line(f"to complete: {question_about(name)}")
        return 0
    for each, run in zip(replays, runs):  # before anybody is asked
        refuse_unfinished(each, run)
    complete(system)
    contact = Contact(
        organization or system["submitter"], person, address or _answer("--address", "address for questions")
    )
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    judged = write_package(
        output, runs, system, contact, licence, created, key_file, say_line, with_weights, redact
    )
    for packed in judged:
        click.echo(findings_text(packed.verdict))
    click.echo(f"{output}: {output.stat().st_size:,} bytes")
    say_next("rank", output.parent)
    return 0 if all(packed.verdict.valid for packed in judged) else Answer.INVALID.exit_code


def _answer(option: str, what: str) -> str:
    """What the user answers to a question; without a terminal, AiperfError is raised."""
    if not sys.stdin.isatty():
        raise AiperfError(f"there is no {what}; give it with {option}")
    return str(click.prompt(what))
