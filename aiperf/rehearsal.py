"""`run --dry-run`: what would run where, and for how long, before anybody waits in a queue."""

from __future__ import annotations

import socket
from time import perf_counter

import torch
from torch.nn.functional import cross_entropy

from aiperf.config import Config
from aiperf.device import Device, bind
from aiperf.forecast import forecast
from aiperf.run import starting_graph
from analysis.wording import bytes_text, clock
from nas.graph import Graph
from nas.modules import Network
from nas.weights import initial

__all__ = ["rehearsal_text"]

MEASURED_SECONDS = 3.0
# ImageNet's training part, less nothing: what a folder holds is only known when it is read.
TRAINING_IMAGES = {"digits": 200, "idx": 60_000, "cifar10": 50_000, "imagefolder": 1_281_167}


def rehearsal_text(config: Config, kind: str, images_per_second: float | None) -> str:
    """The layout and the forecast; the rate is measured on this device unless it is given."""
    seed = starting_graph(config)
    device = bind(kind, 0)
    device.declare(config.training.format)
    measured = images_per_second is None
    rate = images_per_second or _training_rate(config, seed, device)
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


def _training_rate(config: Config, seed: Graph, device: Device) -> float:
    """Training images a second of the seed, on random images that lie in memory."""
    network = Network(seed)
    network.load(initial(seed, 0))
    network.place(device.torch)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(config.training.batch_size, *seed.input, device=device.torch)
    labels = torch.zeros(len(images), dtype=torch.int64, device=device.torch)

    def step() -> None:
        with device.autocast(config.training.format):
            loss = cross_entropy(network(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    step()
    device.synchronise()
    began, steps = perf_counter(), 0
    while perf_counter() - began < MEASURED_SECONDS:
        step()
        device.synchronise()
        steps += 1
    return steps * len(images) / (perf_counter() - began)
