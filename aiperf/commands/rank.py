"""`rank` and `key`: a ranking of packages, and the keys with which their submitters sign them.

The web site is static files that need no server program, so that whoever holds the packages can make it again
and compare. docs/governance.md describes how a ranking is run.
"""

from __future__ import annotations

from pathlib import Path

import click

from aiperf.commands.arguments import PATH, Whole, only_with, output_option
from aiperf.commands.messages import say_line
from aiperf.commands.optional_libraries import extra
from aiperf.errors import AiperfError
from aiperf.os_error import unwritable


@click.command()
@click.argument("file", type=PATH)
@click.option(
    "--site", default="", show_default=False, help="Name of the site; print a line for `rank --keys`."
)
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
    type=Whole(1),
    default=1,
    help="Ask for this many runs of each system, and list the one with the median OPS; 1: list each run.",
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
    # Sorted, because a folder has its files in any order, and the same packages must give the same pages.
    packages = sorted(directory.glob("*.tar.gz"))
    if not packages:
        raise AiperfError(f"no package (*.tar.gz) in {directory}; `aiperf-hpc package` creates one")

    def write(name: str, text: str) -> None:
        """Writes a file of the site as soon as it is made, because the pages of all runs together may not fit
        into memory. Lines end alike on every system."""
        try:
            output.mkdir(parents=True, exist_ok=True)
            (output / name).write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise AiperfError(unwritable(error, error.filename or output / name)) from None

    ranking = ranked(packages, register, write, say_line, runs, peaks, notaries)
    click.echo(f"{ranking.text}: {output / 'index.html'}")
