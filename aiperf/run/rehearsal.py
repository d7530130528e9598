"""`run --dry-run`: what would run where, and for how long, before a job waits in a queue."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from aiperf.config import Config
from aiperf.errors import MissingExtra
from aiperf.hardware.bound import no_bound_text
from aiperf.hardware.peak import listed
from aiperf.pretending.group_model import Learnt
from aiperf.pretending.rank_report import pretended_group, pretended_manifest, pretending_notice
from aiperf.proposing.forecast import forecast
from aiperf.proposing.memory_model import PROCESSOR
from aiperf.ranks.ranks import Ranks
from aiperf.rules.eligibility import refuse_unrankable, unrankable
from aiperf.run.checks import check_run
from aiperf.tasks.registry import task_of
from aiperf.wire.layout import Described, Place
from aiperf.wording import bytes_text, counted, duration, figure, in_a_row
from nas.graph import Graph

MEASURED_SECONDS = 10.0
"""Time in seconds for measuring the seed's rate on one device: long enough for the device's clock to settle,
short enough for a user who waits for the answer."""

GROUPS_SHOWN = 8
"""Number of groups shown in the layout: a few show how ranks are numbered, and the others follow the same
pattern."""

REASONS_SHOWN = 3
"""Number of reasons shown why the run cannot be ranked: a small run has many, and each would be a line on the
terminal."""


def rehearsal_text(config: Config, ranks: Ranks, given: float | None) -> str:
    """The layout and the forecast, from the data that the run would read. The rate in examples per second is
    measured on a device of this host unless it is given.

    Raises AiperfError for whatever would keep the clock from starting.
    """
    config, seed, tuner_note = check_run(config, ranks)
    places = ranks.places(config)
    manifest, note = _manifest(config, ranks, places)
    devices = ranks.devices(config)
    unbounded = [] if ranks.options.pretend else _unbounded(devices, config.training.format)
    refuse_unrankable(config, manifest, unbounded)
    ranks_of_a_group = len(places[0].group)
    groups = len(places) // ranks_of_a_group
    task = task_of(config.data)
    rate, origin = given, "given"
    if rate is None:
        rate, origin = _examples_per_second(config, seed, ranks, devices[0], places[0])
    examples = manifest["training_examples"], manifest["validation_examples"]
    silence = ranks.options.silence_seconds
    expected = forecast(config, seed, examples, rate, groups, ranks_of_a_group, silence, devices[0].kind)
    amounts = task.amount.rate(rate, config.data.size)
    speed, epochs = figure(float(f"{amounts:.3g}")), in_a_row(config.training.epochs)
    limit = f"{config.limits.minutes:g} min" if config.limits.minutes else "no limit of time"
    num_trials = expected.trials_a_group
    trials = (
        "as many as the other limits allow"
        if num_trials is None
        else f"about {num_trials:,.{int(num_trials < 10)}f}"
    )
    weights, journal = bytes_text(expected.weights_bytes), bytes_text(expected.journal_bytes)
    pretend = ranks.options.pretend
    lines = [
        *([("pretending", pretending_notice(pretend))] if pretend else []),
        *_layout(ranks, places, devices),
        ("data", task.data.summary(manifest)),
        *([("files", note)] if note else []),
        ("seed", f"{config.seed_architecture}, {seed.num_parameters:,} parameters"),
        (
            "training",
            f"{config.training.format}, batch {config.training.batch_size}, epochs by round {epochs}",
        ),
        ("steps", config.training.step),
        ("span", limit),
        ("rate", f"{speed} {task.amount.name} per second of the seed by a group ({origin})"),
        (
            "one trial",
            f"{duration(expected.trial_seconds)} in the first round, for an architecture of the seed's size",
        ),
        ("trials per group", trials),
        _rank(config, manifest, unbounded, expected.least_ranked_hours),
        *([("tuning", tuner_note)] if tuner_note else []),
        *_energy(devices),
        ("memory of a device", _memory_text(expected.memory_bytes, devices)),
        ("disk", f"up to {weights} of weights, {journal} of journal"),
    ]
    return "\n".join(f"{name + ' ':.<26} {text}" for name, text in lines)


def _memory_text(amount: int | None, devices: Sequence[Described]) -> str:
    if amount is None:
        return "unknown: a layer of the seed does not state its memory"
    too_much = any(0 < device.memory_bytes < amount for device in devices)
    return f"about {bytes_text(amount)} for the seed (modelled){', more than it has' if too_much else ''}"


def _unbounded(devices: Sequence[Described], format: str) -> list[str]:
    """Names of the devices, processors apart, that have no listed peak in this format."""
    names = {each.device for each in devices if each.kind not in ("", PROCESSOR)}
    return sorted(
        name for name in names if (peak := listed(name)) is None or not peak.bound_in_format(format)
    )


def _rank(
    config: Config, manifest: Mapping[str, Any], unbounded: Sequence[str], hours: float
) -> tuple[str, str]:
    """The shortest span for which the run can be ranked, or the reasons why it cannot be ranked at all."""
    unknown = [no_bound_text(unbounded, config.training.format)] if unbounded else []
    if wrong := unrankable(config, manifest) + unknown:
        more = [f"and {len(wrong) - REASONS_SHOWN} more"] * (len(wrong) > REASONS_SHOWN)
        return "cannot be ranked", "; ".join(wrong[:REASONS_SHOWN] + more)
    return "least span to be ranked", f"{hours:.2g} h (an hour, and one completed trial per group)"


def _energy(devices: tuple[Described, ...]) -> list[tuple[str, str]]:
    """A note that energy will be unknown, if the extra that reads NVIDIA's sensors is not installed; other
    vendors' drivers include theirs. The run itself would not fail."""
    if any(each.sensors == "nvidia" for each in devices) and find_spec("pynvml") is None:
        return [("energy", f"unknown: {MissingExtra('pynvml', 'nvidia')}")]
    return []


def _layout(ranks: Ranks, places: tuple[Place, ...], devices: tuple[Described, ...]) -> list[tuple[str, str]]:
    """The placement in rows: hosts, groups, backend and devices."""
    hosts = _hosts(ranks)
    on_host = Counter(hosts[place.rank] for place in places)
    groups = list(dict.fromkeys(place.group for place in places))
    kinds = Counter((each.device, each.kind, each.memory_bytes) for each in devices)
    noted = dict.fromkeys(each.note for each in devices if each.note)
    master = f"{hosts[0]}: the master"
    workers = [f"{host}: {count} rank{'s' * (count > 1)}" for host, count in on_host.items()]
    shown = [
        f"{' '.join(map(str, group))} on {', '.join(dict.fromkeys(hosts[rank] for rank in group))}"
        for group in groups[:GROUPS_SHOWN]
    ]
    more = [f"and {len(groups) - GROUPS_SHOWN} more"] * (len(groups) > GROUPS_SHOWN)
    return [
        ("hosts", ", ".join([master, *workers[:GROUPS_SHOWN]])),
        ("groups", f"{len(groups)} of {counted(len(groups[0]), 'rank')}: {'; '.join(shown + more)}"),
        ("backend", ranks.options.backend if len(groups[0]) > 1 else "none is needed"),
        *(
            ("devices", f"{count} × {name} ({kind}), {bytes_text(memory)}")
            for (name, kind, memory), count in kinds.items()
        ),
        *(("accelerators", note) for note in noted),
    ]


def _hosts(ranks: Ranks) -> tuple[str, ...]:
    """Host of every rank, the master's first."""
    return ranks.hosts or (socket.gethostname(),) * 2


def _manifest(config: Config, ranks: Ranks, places: tuple[Place, ...]) -> tuple[Mapping[str, Any], str]:
    """Manifest of the data that the run would read, and what is read of a folder."""
    if ranks.options.pretend:
        return pretended_manifest(config), ""
    from aiperf.data import load
    from aiperf.device import bind

    unstaged = replace(config.data, stage="")  # nothing is copied to show what would be done
    found = load(unstaged, bind("cpu", 0).torch, config.random_seed, places[0].ranks_on_host)
    return found.manifest, found.note


def _examples_per_second(
    config: Config, seed: Graph, ranks: Ranks, described: Described, place: Place
) -> tuple[float, str]:
    """Training examples per second of the seed on one group, and the origin of this figure in words."""
    training, num_ranks = config.training, len(place.group)
    if ranks.options.pretend:
        group = pretended_group(ranks.options.pretend, config, seed, place.group)
        return training.batch_size / group.step_seconds(Learnt(seed), training.batch_size), "assumed"
    from aiperf.device import bind
    from aiperf.engines.registry import refuse_unusable
    from aiperf.measuring.network_times import examples_per_second
    from aiperf.measuring.training_step import RankWork

    device = bind(described.kind, 0)
    device.declare(training.format)
    refuse_unusable(seed, device, training, num_ranks)
    work = RankWork(seed, training.format, training.batch_size // num_ranks)
    rate, measured = examples_per_second(device, work, described.formats[training.format], MEASURED_SECONDS)
    origin = "one device, measured now" if measured else "estimated, for one step takes too long"
    return rate * num_ranks, origin + f", times {num_ranks}" * (num_ranks > 1)
