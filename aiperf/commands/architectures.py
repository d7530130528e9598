"""Sub-commands about architectures: they need neither torch nor a run's weights."""

from __future__ import annotations

import json
from pathlib import Path

import click

from aiperf.commands.measuring import measured_limits
from aiperf.commands.options import PATH, only_with, output_option, run_argument, writing
from aiperf.errors import ConfigError
from aiperf.files import RunFiles
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.score.lineage import rebuild
from analysis.exports.counts import count_json, count_text
from analysis.readings.limits import read_limits
from analysis.readings.roofline import roofline_json, roofline_text
from nas.graph import Graph
from nas.layers import Shape
from nas.record import graph_to_json
from nas.seeds import SEEDS, resolve_seed
from nas.text_seeds import TEXT_SEEDS

FORMATS_OF_BYTES = {"4": ("fp32",), "2": ("bf16", "fp16")}
"""Whose ceiling is meant: the first that a device has."""


@click.command()
@click.option(
    "--seed",
    default="resnet50",
    show_default=True,
    metavar="NAME|FILE",
    help=f"One of {', '.join([*SEEDS, *TEXT_SEEDS])}, or the JSON file of a graph.",
)
@click.option(
    "--image", type=click.IntRange(1), help="Side of the square image [pixels]; default: the seed's own."
)
@click.option("--channels", type=click.IntRange(1), help="Channels of the image; default: the seed's own.")
@click.option("--positions", type=click.IntRange(1), help="Positions of a text; default: the seed's own.")
@click.option(
    "--classes", type=click.IntRange(2), help="Classes, or symbols of a text; default: the seed's own."
)
@click.option(
    "--bytes",
    "element_bytes",
    type=click.Choice(["2", "4"]),
    default="4",
    show_default=True,
    help="Bytes of one activation: 4 for fp32 and tf32, 2 for bf16 and fp16.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--roofline", is_flag=True, help="For each layer the bytes it moves, and the time that ceilings allow it."
)
@click.option(
    "--ceiling",
    type=PATH,
    help="For --roofline: what `peak -o` wrote, or a run's directory; default: this machine, measured now.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    help="For --roofline: examples that share one reading of the weights.",
)
def count(
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
    """Count the operations of an architecture for one example, by kind of layer and by pass.

    An example is an image, or a window of text.
    """
    only_with("--roofline", roofline, "ceiling", "batch_size")
    try:
        found = resolve_seed(seed)
        shape = _input(found, image, channels, positions)
        if (shape, classes or found.classes) != (found.input, found.classes):  # a pipe is read only once
            found = resolve_seed(seed, shape, classes)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if roofline:
        formats = FORMATS_OF_BYTES[element_bytes]
        limits = measured_limits(formats) if ceiling is None else read_limits(ceiling, formats)
        if as_json:
            click.echo(json.dumps(roofline_json(found, limits, batch_size), indent=1))
        else:
            click.echo(roofline_text(found, limits, batch_size))
    elif as_json:
        click.echo(json.dumps(count_json(found, int(element_bytes)), indent=1))
    else:
        click.echo(count_text(found, int(element_bytes)))


def _input(seed: Graph, image: int | None, channels: int | None, positions: int | None) -> Shape:
    """What it reads, with what was asked for. Raises ConfigError for what it has not."""
    if len(seed.input) == 1:
        if image or channels:
            raise ConfigError(
                "--image and --channels are for images; this architecture reads text: --positions"
            )
        return (positions or seed.input[0],)
    if positions:
        raise ConfigError("--positions is for text; this architecture reads images: --image and --channels")
    return (channels or seed.input[0], image or seed.input[1], image or seed.input[2])


@click.command()
@run_argument
@click.argument("trial", type=click.IntRange(0))
@output_option("Write to this file instead of the screen.")
def graph(directory: Path, trial: int, output: Path | None) -> None:
    """Rebuild the architecture of a trial from the seed and its lineage alone, as JSON.

    `count --seed FILE` and `run --seed FILE` take what this writes.
    """
    run = replay(read_journal(RunFiles(directory).journal))
    text = json.dumps(graph_to_json(rebuild(run, trial)), indent=1) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    with writing(output):
        output.write_text(text, encoding="utf-8")
