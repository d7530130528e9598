"""`count`: the operations of an architecture. It needs no torch.

The table is the specification of the count, applied: nas/layers has each layer's formula with its derivation,
docs/score.md the price of each kind of operation.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from aiperf.commands.arguments import PATH, Whole, only_with
from aiperf.commands.graph import best_trial
from aiperf.commands.peak import measured_limits
from aiperf.commands.user_files import opened
from aiperf.errors import ConfigError
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.score.lineage import rebuild
from analysis.exports.counts import count_json, count_text
from analysis.readings.limits import read_limits
from analysis.readings.roofline import roofline_json, roofline_text
from nas.graph import Graph
from nas.layers import Shape
from nas.seeds import SEEDS, resolve_seed
from nas.text_seeds import TEXT_SEEDS

FORMATS_OF_BYTES = {"4": ("fp32",), "2": ("bf16", "fp16")}
"""Number formats by the size of an activation in bytes, since the size alone decides how many bytes a layer
moves. The ceiling is that of the first one that a device has."""


@click.command()
@click.argument("path", metavar="[RUN|PACKAGE]", type=PATH, required=False)
@click.option(
    "--seed",
    default="resnet50",
    metavar="NAME|FILE",
    help=f"Architecture: {', '.join([*SEEDS, *TEXT_SEEDS])}, or the JSON file of a graph.",
)
@click.option("--image", type=Whole(1), help="Side of the square image [pixels]; default: that of the seed.")
@click.option("--channels", type=Whole(1), help="Channels of the image; default: those of the seed.")
@click.option("--positions", type=Whole(1), help="Positions of a text; default: those of the seed.")
@click.option("--classes", type=Whole(2), help="Classes, or symbols of a text; default: those of the seed.")
@click.option(
    "--bytes",
    "element_bytes",
    type=click.Choice(["2", "4"]),
    default="4",
    help="Bytes per activation: 4 for fp32 and tf32, 2 for bf16 and fp16.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--roofline",
    is_flag=True,
    help="For each layer, show the bytes moved and the shortest time that the ceilings allow.",
)
@click.option(
    "--ceiling",
    type=PATH,
    help="For --roofline: output of `peak -o`, or a run directory; default: measure this machine now.",
)
@click.option(
    "--batch-size",
    type=Whole(1),
    default=256,
    help="For --roofline: examples per step, which share one reading of the weights.",
)
def count(
    path: Path | None,
    seed: str,
    image: int | None,
    channels: int | None,
    positions: int | None,
    classes: int | None,
    element_bytes: str,
    as_json: bool,
    roofline: bool,
    ceiling: Path | None,
    batch_size: int,
) -> None:
    """Count the operations of an architecture for one example, by layer type and pass.

    An example is an image or a window of text. With RUN, the architecture is that of its best network.
    """
    only_with("--roofline", roofline, "ceiling", "batch_size")
    only_with("an architecture without RUN", path is None, "seed")
    try:
        graph = resolve_seed(seed) if path is None else _best(path)
        shape = _input(graph, image, channels, positions)
        if (shape, classes or graph.classes) != (graph.input, graph.classes):  # a pipe is read only once
            if path is not None:
                raise ConfigError(f"the network of {path} has the input and the classes of its run")
            graph = resolve_seed(seed, shape, classes)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if roofline:
        formats = FORMATS_OF_BYTES[element_bytes]
        limits = measured_limits(formats) if ceiling is None else read_limits(ceiling, formats)
        if as_json:
            click.echo(json.dumps(roofline_json(graph, limits, batch_size), indent=1))
        else:
            click.echo(roofline_text(graph, limits, batch_size))
    elif as_json:
        click.echo(json.dumps(count_json(graph, int(element_bytes)), indent=1))
    else:
        click.echo(count_text(graph, int(element_bytes)))


def _best(path: Path) -> Graph:
    """The architecture of the best network of a run or a package."""
    with opened(path) as files:
        run = replay(read_journal(files.journal))
        return rebuild(run, best_trial(run, files))


def _input(seed: Graph, image: int | None, channels: int | None, positions: int | None) -> Shape:
    """The input shape of the seed, with the requested sizes. Raises ConfigError for a size that it does not
    have."""
    if len(seed.input) == 1:
        if image or channels:
            raise ConfigError(
                "--image and --channels are for images; this architecture reads text: use --positions"
            )
        return (positions or seed.input[0],)
    if positions:
        raise ConfigError(
            "--positions is for text; this architecture reads images: use --image and --channels"
        )
    return (channels or seed.input[0], image or seed.input[1], image or seed.input[2])
