"""Options that several sub-commands share."""

from __future__ import annotations

import click

__all__ = ["device_option"]

DEVICES = ("auto", "cuda", "npu", "xpu", "cpu")

device_option = click.option(
    "--device",
    type=click.Choice(DEVICES),
    default="auto",
    show_default=True,
    help="Kind of device to compute on; auto takes an accelerator where there is one.",
)
