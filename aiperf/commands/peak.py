"""`peak`: the fastest that a device computes and reads memory, measured without a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiperf.commands.arguments import Number, device_option, output_option
from aiperf.commands.messages import say
from aiperf.commands.optional_libraries import refuse_no_run
from aiperf.commands.user_files import write_file, writing
from aiperf.config import FORMATS
from aiperf.errors import WorldError
from aiperf.ranks.process import environment
from analysis.readings.limits import Limits, Machine, Record, machine_json, machine_text

if TYPE_CHECKING:
    from aiperf.device import Device

SHARE_OF_COPIES = 0.2
"""Fraction of the time for measuring the memory; the rest is for products."""


@click.command()
@device_option
@click.option(
    "--format",
    "formats",
    type=click.Choice(FORMATS),
    multiple=True,
    help="Measure this format; may be repeated. Default: all formats of the device.",
)
@click.option(
    "--seconds",
    type=Number(1, 600),
    default=40.0,
    help="Time for all measurements [s], without data and warm-up.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@output_option("Also write the JSON to this file.")
def peak(device: str, formats: tuple[str, ...], seconds: float, as_json: bool, output: Path | None) -> None:
    """Measure the peak rates of one device: matrix products by size and format, and memory.

    A run measures the same on all its devices at once, in its own format, before the clock starts, and
    records it in the journal. `count --roofline --ceiling FILE` reads what -o writes.
    """
    refuse_no_run()
    if output is not None:
        _refuse_unwritable(output)
    machine = _measured(_bound(device), formats, seconds)
    click.echo(machine_json(machine) if as_json else machine_text(machine), nl=False)
    if output is not None:
        write_file(output, machine_json(machine))


def measured_limits(formats: Sequence[str]) -> Limits:
    """Limits of the first device of this machine, measured in a few seconds in the first of these formats
    that it has."""
    device = _bound("auto")
    format = next((format for format in formats if format in device.formats), formats[0])
    return _measured(device, (format,), 8.0).limits(formats)


def _bound(kind: str) -> Device:
    """The first device of this kind. Raises MissingExtra if torch is not installed."""
    refuse_no_run()
    # The environment of a worker, before torch starts its threads: with other programs on the machine, a
    # product on threads that spin for each other was measured at a hundred-thousandth of its rate.
    os.environ.update(environment(os.environ))
    from aiperf.device import bind  # torch

    device = bind(kind, 0)
    if device.note:
        say(device.note)
    return device


def _refuse_unwritable(output: Path) -> None:
    """Refuses a file that cannot be written, before time is spent on measuring."""
    with writing(output):
        existed = output.exists()
        output.open("ab").close()
        if not existed:
            output.unlink()


def _measured(device: Device, formats: tuple[str, ...], seconds: float) -> Machine:
    """Measures the device for about this many seconds, in these formats or in all that it has. Raises
    WorldError for a format that it does not have."""
    from aiperf.measuring.ceiling import SIDES, measure_copy, measure_products, measure_upload

    wanted = formats or device.formats
    for format in wanted:
        if format not in device.formats:
            raise WorldError(
                f"{device.name} does not support {format}; it supports {', '.join(device.formats)}"
            )
    each = (1 - SHARE_OF_COPIES) * seconds / (len(wanted) * max(map(len, SIDES.values())))
    products = {format: measure_products(device, format, each) for format in wanted}
    copy_seconds = SHARE_OF_COPIES * seconds / (1 if device.kind == "cpu" else 2)
    return Machine(
        device=device.name,
        memory_bytes=device.memory_bytes,
        software=device.software(),
        products=tuple(
            Record(format, product.side, product.rate)
            for format, measured in products.items()
            for product in measured
        ),
        copy=measure_copy(device, copy_seconds),
        upload=measure_upload(device, copy_seconds),
    )
