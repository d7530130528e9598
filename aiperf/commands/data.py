"""`data`: packing images for fast reading, and measuring whether they are read fast enough."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import click

from aiperf.commands.arguments import PATH, Number, Whole, device_option
from aiperf.commands.command_groups import CommandGroup
from aiperf.commands.messages import say, say_line
from aiperf.commands.optional_libraries import refuse_no_run
from aiperf.commands.run_options import RunRequest, config_options
from aiperf.errors import DataError
from aiperf.host.cores import allowed_cores
from aiperf.run.checks import starting_graph
from aiperf.wire.formats import with_format
from aiperf.wire.layout import Described
from aiperf.wording import bytes_text, clock

PROGRESS_SECONDS = 5.0
"""Time in seconds between two lines of progress."""


@click.group(cls=CommandGroup)
def data() -> None:
    """Pack images into shards for fast reading, verify the shards, and time the loader."""


@data.command("pack")
@click.argument("source", metavar="SOURCE", type=PATH)
@click.argument("target", metavar="PACKED", type=PATH)
@click.option("--size", type=Whole(8, 2048), default=256, help="Side of the packed images [pixels].")
@click.option("--processes", type=Whole(1, 1024), help="Number of decoding processes; default: one per core.")
def pack_images(source: Path, target: Path, size: int, processes: int | None) -> None:
    """Pack an image folder SOURCE (train/ and val/ or test/, one folder per class) into shards in PACKED.

    Each image is decoded once, cropped to its centred square, and stored as raw bytes. If packing is
    interrupted, the same command continues it.
    """
    refuse_no_run()
    from aiperf.data.packed.packing import pack, packing_processes
    from aiperf.data.packed.packing_plan import plan

    planned = plan(source, target, size)
    already = f"{target}: already holds these images; `aiperf-hpc data verify` checks them"
    if planned is None:
        click.echo(already)
        return
    click.echo(f"{target}: {planned.text}")
    workers = processes or allowed_cores()
    progress = _ImagesDone("packed", planned.images, planned.images_finished)
    pool = packing_processes(workers)
    try:
        packed = pack(planned, pool, workers, progress)
    finally:
        pool.shutdown(cancel_futures=True)
    if packed is None:  # by another packing, meanwhile
        click.echo(already)
        return
    click.echo(f"{target}: {progress.text}; {bytes_text(packed.total_bytes)}, SHA-256 {packed.sha256}")


@data.command()
@click.argument("folder", metavar="PACKED", type=PATH)
def verify(folder: Path) -> int:
    """Read every shard of packed images and list missing or damaged ones (exit code 1)."""
    refuse_no_run()
    from aiperf.data.packed.shards import damaged, read_manifest

    packed = read_manifest(folder)
    progress = _ImagesDone("verified", packed.images)
    faults = damaged(folder, packed, allowed_cores(), progress)
    for line in faults:
        click.echo(line)
    if faults:
        raise DataError(
            f"{folder}: {len(faults)} of {len(packed.shards)} shards are missing or damaged; copy them "
            f"again, or remove them and run `aiperf-hpc data pack` again"
        )
    click.echo(f"{folder}: OK, {progress.text} in {len(packed.shards)} shards")
    return 0


@data.command()
@config_options
@device_option
@click.option("--beside", type=PATH, help="Another folder of the same images, to compare its loader.")
@click.option(
    "--seconds",
    type=Number(1, 600),
    default=10.0,
    help="Time for each loader [s], a quarter of it for the first pass, and for the device.",
)
def bench(request: RunRequest, device: str, beside: Path | None, seconds: float) -> int:
    """Time the loader and the device separately, and show which is slower.

    The loader is that of one rank, with as many cores as in a run; the device trains the seed.
    """
    refuse_no_run()
    from aiperf.data.image_files import look
    from aiperf.device import bind, count_devices
    from aiperf.measuring.bench import bench_text
    from aiperf.measuring.precision import format_rates

    bound = bind(device, 0)
    if bound.note:
        say(bound.note)
    rates = format_rates(bound)
    one = Described(1, bound.name, bound.kind, bound.memory_bytes, rates)
    config = with_format(request.config(), lambda _: [one])
    compared = [config]
    if beside is not None:
        found = replace(config.data, name=look(beside).training.name, path=os.path.abspath(beside), stage="")
        compared.append(replace(config, data=found))
    ranks = max(1, count_devices(bound.kind))
    click.echo(bench_text(compared, starting_graph(config), bound, rates, ranks, seconds))
    return 0


class _ImagesDone:
    """Prints every few seconds how many images are finished."""

    def __init__(self, verb: str, total: int, finished: int = 0) -> None:
        """`verb` says what is done with the images; `finished` of the `total` were done by an earlier
        command."""
        self._verb, self._total = verb, total
        self._first = self._done = finished
        self._began = self._printed = 0.0

    def __call__(self, done: int) -> None:
        """Takes the number of images that are done, and prints it if the last line is some seconds old.
        Numbers include those of earlier commands."""
        self._done, now = done, time.monotonic()
        if not self._began:  # until the first call processes were starting, which does not count
            self._first, self._began, self._printed = done, now, now
        if now - self._printed < PROGRESS_SECONDS:
            return
        self._printed = now
        left = (self._total - done) / max(self._rate, 1e-9)
        say_line(f"{self.text}; about {clock(left)} left")

    @property
    def text(self) -> str:
        """The progress in words; without a rate if no image has been finished since the first call."""
        rate = f", {self._rate:,.0f} images per second" if self._done > self._first else ""
        return f"{self._done:,} of {self._total:,} images {self._verb}{rate}"

    @property
    def _rate(self) -> float:
        """Images per second since the first call, without those that were finished before."""
        return (self._done - self._first) / max(time.monotonic() - self._began, 1e-9)
