"""`run --dry-run`: what would run where, and for how long, before anybody waits in a queue."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from aiperf.config import Config
from aiperf.data import load
from aiperf.device import bind
from aiperf.errors import MissingExtra
from aiperf.measuring.before_span import SeedWork, images_per_second
from aiperf.proposing.forecast import forecast
from aiperf.ranks.ranks import Ranks
from aiperf.rules.eligibility import refuse_unrankable, unrankable
from aiperf.run.run import checked
from aiperf.wire.layout import Described, Place
from aiperf.wording import bytes_text, clock

MEASURED_SECONDS = 10.0
"""For the rate of the seed on one device. Clocks settle within it, and a person waits for the answer."""

GROUPS_SHOWN = 8
"""Of the layout: a few show how ranks are numbered, and the others follow the same pattern."""

REASONS_SHOWN = 3
"""Why the run cannot be ranked: a small run has many reasons, and each would be a line on the terminal."""


def rehearsal_text(config: Config, ranks: Ranks, given: float | None) -> str:
    """The layout and the forecast, from the images that the run would read; the rate is measured on a device
    of this host unless it is given.

    Raises AiperfError for whatever would keep the run from its clock.
    """
    config, seed, told = checked(config, ranks)
    places = ranks.places(config)
    manifest = load(config.data, bind("cpu", 0).torch, config.random_seed, places[0].ranks_on_host).manifest
    devices = ranks.devices(config)
    refuse_unrankable(config, manifest)
    training = config.training
    ranks_of_a_group = len(places[0].group)
    groups = len(places) // ranks_of_a_group
    rate, origin = given, "given"
    if rate is None:
        work = SeedWork(seed, training.format, training.batch_size // ranks_of_a_group)
        rate, origin = _images_per_second(devices[0], work)
        rate *= ranks_of_a_group
        origin += f", times {ranks_of_a_group}" * (ranks_of_a_group > 1)
    seen = forecast(config, seed, manifest["training_images"], rate, groups, ranks_of_a_group)
    limit = f"{config.limits.minutes:g} min" if config.limits.minutes else "no limit of time"
    trials = (
        "as many as the other limits allow" if seen.trials_a_group is None else f"{seen.trials_a_group:.1f}"
    )
    lines = [
        *_layout(ranks, places, devices),
        ("data", _data(manifest)),
        ("seed", f"{config.seed_architecture}, {seed.num_parameters:,} parameters"),
        (
            "training",
            f"{config.training.format}, batch {config.training.batch_size}, epochs {config.training.epochs}",
        ),
        ("span", limit),
        (
            "rate",
            f"{rate:,.3g} images per second of the seed by a group ({origin})",
        ),
        (
            "one trial",
            f"{clock(seen.trial_seconds)} in the first round, for an architecture of the seed's size",
        ),
        ("trials a group", trials),
        _rank(config, manifest, seen.least_ranked_hours),
        *([("tuning", told)] if told else []),
        *_energy(devices),
        ("memory of a device", f"about {bytes_text(seen.memory_bytes)} for the seed (modelled)"),
        (
            "disk",
            f"up to {bytes_text(seen.weights_bytes)} of weights, {bytes_text(seen.journal_bytes)} of journal",
        ),
    ]
    return "\n".join(f"{name + ' ':.<26} {text}" for name, text in lines)


def _data(manifest: Mapping[str, Any]) -> str:
    counts = ", ".join(
        f"{manifest[f'{part}_images']:,} {part}" for part in ("training", "validation", "test")
    )
    side, channels = manifest["size"], manifest["channels"]
    shape = f"{side} x {side}, {channels} channel{'s' * (channels > 1)}"
    return f"{manifest['name']}, {manifest['classes']:,} classes, {shape}; {counts} images"


def _rank(config: Config, manifest: Mapping[str, Any], hours: float) -> tuple[str, str]:
    """How long the run must be to be ranked, or why no length would do."""
    if wrong := unrankable(config, manifest):
        more = [f"and {len(wrong) - REASONS_SHOWN} more"] * (len(wrong) > REASONS_SHOWN)
        return "cannot be ranked", "; ".join(wrong[:REASONS_SHOWN] + more)
    return "least span to be ranked", f"{hours:.2g} h (an hour, and one completed trial a group)"


def _energy(devices: tuple[Described, ...]) -> list[tuple[str, str]]:
    """What a run would go on without: the extra that reads the sensors. Other vendors bring theirs."""
    if any(each.sensors == "nvidia" for each in devices) and find_spec("pynvml") is None:
        return [("energy", f"unknown: {MissingExtra('pynvml', 'nvidia')}")]
    return []


def _layout(ranks: Ranks, places: tuple[Place, ...], devices: tuple[Described, ...]) -> list[tuple[str, str]]:
    """Who is where: hosts, groups, devices, and what joins them."""
    hosts = _hosts(ranks)
    on_host = Counter(hosts[place.rank] for place in places)
    groups = list(dict.fromkeys(place.group for place in places))
    kinds = Counter((each.device, each.kind, each.memory_bytes) for each in devices)
    master = f"{hosts[0]}: the master"
    workers = [f"{host}: {count} rank{'s' * (count > 1)}" for host, count in on_host.items()]
    shown = [f"{' '.join(map(str, group))} on {hosts[group[0]]}" for group in groups[:GROUPS_SHOWN]]
    more = [f"and {len(groups) - GROUPS_SHOWN} more"] * (len(groups) > GROUPS_SHOWN)
    return [
        ("hosts", ", ".join([master, *workers[:GROUPS_SHOWN]])),
        ("groups", f"{len(groups)} of {len(groups[0])}; ranks {'; '.join(shown + more)}"),
        ("backend", ranks.wanted.backend if len(groups[0]) > 1 else "none is needed"),
        *(
            ("devices", f"{count} × {name} ({kind}), {bytes_text(memory)}")
            for (name, kind, memory), count in kinds.items()
        ),
    ]


def _hosts(ranks: Ranks) -> tuple[str, ...]:
    """Of every rank, the master's first."""
    return ranks.hosts or (socket.gethostname(),) * 2


def _images_per_second(described: Described, work: SeedWork) -> tuple[float, str]:
    """Of the seed in training on one device of this host, and how it is known."""
    products = described.formats[work.format]
    rate, measured = images_per_second(bind(described.kind, 0), work, products, MEASURED_SECONDS)
    return rate, "one device, measured now" if measured else "estimated, for one step takes too long"
