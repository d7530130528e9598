"""Properties of a machine from its site file, for commands that show runs: its name, its owner, a node's
price."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aiperf.commands.arguments import PATH
from launch.price import Price, parse_price
from launch.site import Site, load_site

if TYPE_CHECKING:
    from analysis.readings.judgement import Judged

SITE = Path("site.toml")
"""Site file in the current folder, which is read if it exists, as `launch` does."""

price_option = click.option(
    "--price",
    "price_text",
    metavar="AMOUNT/node-hour",
    help="Price, such as 12.5/node-hour or 12.5USD/node-hour.",
)


def site_option(purpose: str) -> Callable[[Any], Any]:
    """The option for a site file, which a command reads for `purpose`."""
    text = f"Site file of the machine, for {purpose}.  [default: site.toml, if it exists]"
    return click.option("--site", type=PATH, help=text)


def known_site(path: Path | None) -> Site | None:
    """The given site file, otherwise the one in the current folder; None without one. Raises ConfigError."""
    return load_site(path or SITE) if path is not None or SITE.is_file() else None


def machine_names(path: Path, judged: Judged, site: Path | None) -> tuple[str, str]:
    """Names of the machine and its owner, from the package, or for a measured run from the site file;
    otherwise empty."""
    if judged.files.directory != path:
        from analysis.submissions.unpacking import system_of

        system = system_of(judged.files, path)
        return system["system_name"], system["submitter"]
    known = known_site(site) if judged.verdict.mark is None else None
    return (known.name, known.owner) if known else ("", "")


def node_price(text: str | None, site: Path | None) -> Price | None:
    """The price that was typed, otherwise that of the site file; None without one. Raises ConfigError."""
    if text is not None:
        return parse_price("--price", text)
    known = known_site(site)
    return known.node_price if known else None
