"""`profile`: where the time and the memory of a training step go."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from aiperf.commands.arguments import PATH, Whole, device_option, only_with, output_option
from aiperf.commands.messages import say_line
from aiperf.commands.optional_libraries import extra, refuse_no_run
from aiperf.commands.user_files import write_file, writing
from aiperf.config import WANTED_FORMATS
from aiperf.errors import ConfigError
from aiperf.host.variables import number
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from aiperf.profiling.local_ranks import profile_locally
from aiperf.profiling.work import AUTO, TRACE, ProfileWork, of_seed
from aiperf.score.lineage import rebuild
from aiperf.tasks.registry import task_of_graph
from aiperf.wire.profile_records import Ceilings
from analysis.exports.profile_text import profile_json, profile_text
from analysis.readings.limits import read_limits
from analysis.readings.profile import Profile
from nas.graph import Graph
from nas.layers import Shape
from nas.record import graph_to_json
from nas.seeds import SEEDS, resolve_seed
from nas.text_seeds import TEXT_SEEDS

BATCH = 32
"""Default batch size for a seed."""
JSON_FILE, PAGE_FILE = "profile.json", "profile.html"
"""Files of a profile in the folder of -o, next to its traces."""


def _sizes(context: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Reads sizes such as "128,64", which are profiled from the smallest."""
    if value is None:
        return ()
    words = value.split(",")
    sizes = [number(word) for word in words]
    if not all(sizes):
        raise click.BadParameter(
            f"{value!r} is not a list of sizes; give sizes such as 64,128,224", context, param
        )
    return tuple(sorted({size for size in sizes if size}))


@click.command()
@click.argument("run", metavar="[RUN]", type=PATH, required=False)
@click.argument("trial", metavar="[TRIAL]", type=Whole(0), required=False)
@click.option(
    "--seed",
    metavar="NAME|FILE",
    help=f"Profile this architecture on generated examples: {', '.join([*SEEDS, *TEXT_SEEDS])}, or the JSON "
    f"file of a graph.",
)
@click.option(
    "--sizes",
    metavar="N,N,…",
    callback=_sizes,
    help="For --seed: sides of the images, or positions of the text; default: those of the seed.",
)
@click.option(
    "--batch",
    type=Whole(2),
    help=f"Global batch size, over all ranks.  [default: that of the trial, or {BATCH}]",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(WANTED_FORMATS),
    help="Number format of multiplications; auto: the fastest.  [default: that of the run, or auto]",
)
@click.option("--data", "path", metavar="PATH", help="For RUN: where its data is now.")
@device_option
@click.option(
    "--devices",
    type=Whole(1),
    default=1,
    help="Ranks that train together on this host with DDP; the first one is shown.",
)
@click.option(
    "--steps",
    type=Whole(1, 1000),
    default=5,
    help="Number of plain steps and of profiled steps, which alternate.",
)
@click.option(
    "--ceiling",
    type=PATH,
    help="Output of `peak -o`, or a run directory; default: measure the share of each rank now.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@output_option(f"Also write {JSON_FILE}, {PAGE_FILE} and a Perfetto trace into this folder.")
def profile(
    run: Path | None,
    trial: int | None,
    seed: str | None,
    sizes: tuple[int, ...],
    batch: int | None,
    format_: str | None,
    path: str | None,
    device: str,
    devices: int,
    steps: int,
    ceiling: Path | None,
    as_json: bool,
    output: Path | None,
) -> None:
    """Show the time of a training step by phase, operation type and layer, and its memory.

    Profiles the network of a trial (default: the best one) on the data of its run, or a seed. The network
    has its initial weights, and the steps are eager. The time of each layer is compared with its roofline.
    """
    refuse_no_run()
    if (run is None) == (seed is None):
        raise click.UsageError("give a RUN, or --seed NAME", click.get_current_context())
    only_with("--seed", seed is not None, "sizes")
    only_with("RUN", run is not None, "path")
    name, works = _of_run(run, trial, batch, path) if run is not None else _of_seed(str(seed), sizes, batch)
    # Plain and profiled steps alternate, so that a disturbance of the machine slows down both.
    works = [replace(work, rounds=steps, device=device, ranks=devices) for work in works]
    if format_:
        works = [replace(work, training=replace(work.training, format=format_)) for work in works]
    given = None if ceiling is None else _ceilings(ceiling, works[0].training.format)
    if output is not None:  # before minutes are spent on measuring
        with writing(output):
            output.mkdir(parents=True, exist_ok=True)
    profiles = [_profiled(replace(work, ceilings=given), output) for work in works]
    record = json.dumps(profile_json(profiles, name), indent=1)
    click.echo(record if as_json else profile_text(profiles, name))
    if output is not None:
        _write(output, record, profiles, name)


def _of_run(
    directory: Path, trial: int | None, batch: int | None, path: str | None
) -> tuple[str, list[ProfileWork]]:
    """What the page calls a trial of a run, and the work for it. Raises JournalError if there is no such
    trial."""
    run = replay(read_journal(RunFiles(directory).journal))
    # Without a validated trial it is the seed, which every run has.
    number = trial if trial is not None else run.best.number if run.best else 0
    graph, config = rebuild(run, number), run.opened.config
    hyper = run.trials[number].attempts[-1].trial.hyper
    work = ProfileWork(
        graph=graph_to_json(graph),
        data=replace(config.data, path=path or config.data.path),
        training=config.training,
        hyper=replace(hyper, batch_size=batch or hyper.batch_size),
        random_seed=config.random_seed,
    )
    return f"trial {number} of {run.opened.run_id}", [work]


def _of_seed(seed: str, sizes: tuple[int, ...], batch: int | None) -> tuple[str, list[ProfileWork]]:
    """What the page calls a seed, and a work for each size. Raises ConfigError for an unknown seed, and for a
    size that it cannot read."""
    try:
        own = resolve_seed(seed)
        graphs = [resolve_seed(seed, _input(own, size), own.classes) for size in sizes] or [own]
    except ValueError as error:
        raise ConfigError(f"{f'--sizes {sizes}: ' if len(sizes) > 1 else ''}{error}") from None
    works = [of_seed(task_of_graph(graph), graph, batch or BATCH) for graph in graphs]
    return f"seed {seed}", works


def _input(own: Graph, size: int) -> Shape:
    """The input shape of a seed for examples of this size: positions of a text, or the side of an image."""
    return (size,) if len(own.input) == 1 else (own.input[0], size, size)


def _ceilings(path: Path, format: str) -> Ceilings:
    """The ceilings in a file, for the number format of the run. Raises UsageError if that is not decided
    yet."""
    if format == AUTO:
        raise click.UsageError("--ceiling is for one format: also give --format", click.get_current_context())
    limits = read_limits(path, (format,))
    return Ceilings(limits.ops_per_second, limits.bytes_per_second)


def _profiled(work: ProfileWork, output: Path | None) -> Profile:
    """Profiles one size, and copies its trace into `output` if there is one. Raises AiperfError as
    `profile_locally` does, and if the trace cannot be written."""
    # A trace is some megabytes, and `output` may be on a slow file system that others use too.
    with TemporaryDirectory() as folder:
        measured = Profile.of(profile_locally(replace(work, trace=output is not None), Path(folder)))
        if output is None:
            return measured
        name = f"trace-{measured.size}.json"
        with writing(output):
            shutil.copyfile(Path(folder) / TRACE, output / name)
        return Profile(replace(measured.recorded, trace=name), measured.graph)


def _write(output: Path, record: str, profiles: Sequence[Profile], name: str) -> None:
    """Writes the record and the page of a profile, and prints the paths of all files."""
    with extra("report"):
        from analysis.pages.profile_page import profile_html
    write_file(output / JSON_FILE, f"{record}\n")
    write_file(output / PAGE_FILE, profile_html(profiles, name))
    for file in (JSON_FILE, PAGE_FILE, *(profile.recorded.trace for profile in profiles)):
        say_line(str(output / file))
