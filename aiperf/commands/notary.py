"""`notary`: signs the state of journals while their runs go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiperf.commands.arguments import PATH
from aiperf.commands.messages import say, say_line
from aiperf.errors import AiperfError
from aiperf.os_error import unreadable

if TYPE_CHECKING:
    from analysis.submissions.notary import Notary

LOOK_SECONDS = 1.0
"""Time between two passes over the folder. It adds to how late an answer is."""
MOST_SAID = 1_000
"""Number of lines that are remembered, so that none is repeated in each pass."""


@click.command()
@click.argument("directory", metavar="DIR", type=PATH)
@click.option("--key", "key_file", type=PATH, required=True, help="Private key, of `aiperf-hpc key`.")
@click.option(
    "--record",
    type=PATH,
    help="Folder for the notary's own record of all that it signed; default: KEY.record.",
)
def notary(directory: Path, key_file: Path, record: Path | None) -> None:
    """Sign the state of the journals in a folder while their runs, started with --notary, go on.

    DIR has run directories, or is one. The notary works through two files per leg in the folder `notary` of
    each, and may be stopped and started again at any time. `rank --notaries` and `validate --notaries` read
    what it signed. Ctrl-C ends it.
    """
    from analysis.submissions.notary import Notary
    from analysis.submissions.signature import signer

    public, sign = signer(key_file)
    serving = Notary(public, sign, record or key_file.with_name(f"{key_file.name}.record"), _clock())
    if not directory.is_dir():
        raise AiperfError(f"{directory} is not a directory; give the directory that holds the runs")
    say_line(f"notary {public}, runs in {directory}")
    said = set[str]()
    while True:
        for text in _pass_over(serving, directory):
            if text not in said:
                say(text)
                said = {*said, text} if len(said) < MOST_SAID else {text}
        time.sleep(LOOK_SECONDS)


def _pass_over(serving: Notary, directory: Path) -> Iterator[str]:
    """Signs once what is new in the folder, and yields what to tell the user. A file server that fails for a
    while does not end the notary."""
    try:
        yield from serving.look(directory)
    except OSError as error:
        yield unreadable(error, directory, "give the directory that holds the runs")


def _clock() -> Callable[[], int]:
    """The time of day in milliseconds, which goes on steadily even if somebody sets the host's clock."""
    begun = time.time() - time.monotonic()
    return lambda: int(1000 * (begun + time.monotonic()))
