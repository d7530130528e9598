"""Options that several sub-commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from aiperf.ranks import BACKENDS, Wanted

__all__ = ["device_option", "rank_options"]

DEVICES = ("auto", "cuda", "npu", "xpu", "cpu")

device_option = click.option(
    "--device",
    type=click.Choice(DEVICES),
    default="auto",
    show_default=True,
    help="Kind of device to compute on; auto takes an accelerator where there is one.",
)

_RANK_OPTIONS = (
    device_option,
    click.option(
        "--devices",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Devices of this machine to use where no mpiexec or srun started this; 0: all.",
    ),
    click.option(
        "--devices-per-trial",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Devices that train one trial together; 0: all of a host.",
    ),
    click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        default=BACKENDS[0],
        show_default=True,
        help="What averages gradients between the devices of a trial.",
    ),
    click.option(
        "--silence-seconds",
        type=click.FloatRange(min=1),
        default=60.0,
        show_default=True,
        help="A group that says nothing for so long [s] is lost, and its trial given to another.",
    ),
)


def rank_options(command: Callable[..., int]) -> Callable[..., int]:
    """The options of a command that trains; it gets them as `wanted`."""

    @wraps(command)
    def wanting(
        device: str, devices: int, devices_per_trial: int, backend: str, silence_seconds: float, **others: Any
    ) -> int:
        wanted = Wanted(device, devices, devices_per_trial, backend, silence_seconds)
        return command(wanted=wanted, **others)

    for option in reversed(_RANK_OPTIONS):
        wanting = option(wanting)
    return wanting
