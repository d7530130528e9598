"""`run --dry-run`: what would run where, and for how long, before anybody waits in a queue."""

from __future__ import annotations

import socket

from aiperf.config import Config
from aiperf.control import time_steps
from aiperf.device import bind
from aiperf.forecast import forecast
from aiperf.run import starting_graph
from analysis.wording import bytes_text, clock

__all__ = ["rehearsal_text"]

MEASURED_SECONDS, LEAST_STEPS = 3.0, 5
# ImageNet's training part, less nothing: what a folder holds is only known when it is read.
TRAINING_IMAGES = {"digits": 200, "idx": 60_000, "cifar10": 50_000, "imagefolder": 1_281_167}


def rehearsal_text(config: Config, kind: str, images_per_second: float | None) -> str:
    """The layout and the forecast; the rate is measured on this device unless it is given."""
    seed = starting_graph(config)
    device = bind(kind, 0)
    device.declare(config.training.format)
    measured = images_per_second is None
    training = config.training
    rate = images_per_second
    if rate is None:
        steps = time_steps(seed, device, training.format, training.batch_size, LEAST_STEPS, MEASURED_SECONDS)
        rate = steps.images_per_second
    images = config.data.training_images or TRAINING_IMAGES[config.data.name] - config.data.validation_images
    seen = forecast(config, seed, images, rate)
    limit = f"{config.limits.minutes:g} min" if config.limits.minutes else "no limit of time"
    trials = (
        "as many as the other limits allow" if seen.trials_a_group is None else f"{seen.trials_a_group:.1f}"
    )
    lines = [
        ("host", f"{socket.gethostname()}: 1 master, 1 group of 1 rank"),
        ("device", f"{device.name} ({device.kind}), {bytes_text(device.memory_bytes)}"),
        (
            "data",
            f"{config.data.name}, {images:,} training, {config.data.validation_images:,} validation images",
        ),
        ("seed", f"{config.seed_architecture}, {seed.num_parameters:,} parameters"),
        (
            "training",
            f"{config.training.format}, batch {config.training.batch_size}, epochs {config.training.epochs}",
        ),
        ("span", limit),
        (
            "rate",
            f"{rate:,.0f} training images a second of the seed ({'measured now' if measured else 'given'})",
        ),
        (
            "one trial",
            f"{clock(seen.trial_seconds)} in the first round, for an architecture of the seed's size",
        ),
        ("trials a group", trials),
        (
            "least span to be ranked",
            f"{seen.least_ranked_hours:.2g} h (an hour, and one completed trial a group)",
        ),
        ("memory of a device", f"about {bytes_text(seen.memory_bytes)} for the seed (modelled)"),
        (
            "disk",
            f"up to {bytes_text(seen.weights_bytes)} of weights, {bytes_text(seen.journal_bytes)} of journal",
        ),
    ]
    return "\n".join(f"{name + ' ':.<26} {text}" for name, text in lines)
