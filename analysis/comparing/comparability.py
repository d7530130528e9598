"""Whether several runs are of one kind, so that one figure may be made of all of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from aiperf.errors import AiperfError
from aiperf.journal.names import differ, without_names
from aiperf.rules.ending import Answer
from analysis.readings import run_tables
from analysis.readings.judgement import Judged, refuse_two_tasks
from analysis.readings.score_figures import num_devices, task_of_run

MAY_DIFFER = frozenset(
    {"random_seed", "data.path", "data.stage", "data.loader_processes", "notary", "allow_deviating"}
)
"""Settings that are a run's own: its draw, where its images lie (what they are must agree), and who looked
on."""

CODE = "the code"
GROUPS = "hosts of a group"
"""Whether gradients cross what lies between hosts. Their number may differ, as between sizes of a study."""


class MixedError(AiperfError):
    """Runs that are not of one kind."""


def nothing_to_compare(run: Judged) -> str:
    """Why a run cannot be in a table; "" if it can."""
    if not _credited(run):
        return "it has no credited work"
    return f"NO RESULT: {run.verdict.cause}" if run.verdict.answer is Answer.NO_RESULT else ""


def _credited(run: Judged) -> bool:
    """Whether the run has a rate that can be compared: a span, devices and credited work."""
    return run.score.span_seconds > 0 and num_devices(run.replay) > 0 and run.score.ops_per_second > 0


def refuse_mixed(runs: Sequence[Judged], chosen: Collection[str] = ()) -> None:
    """Raises MixedError, which names the difference, for runs that are not of one kind or have no span.
    `chosen`: settings that may differ, because runs choose them."""
    for run in runs:
        if not _credited(run):
            raise MixedError(f"{run.files.directory}: {nothing_to_compare(run)}; omit it")
    refuse_twice(runs)
    for run in runs:
        if why := nothing_to_compare(run):
            raise MixedError(f"{run.files.directory}: {why}; omit it")
    for other in runs[1:]:
        refuse_unlike(runs[0], other, chosen)


def refuse_twice(runs: Sequence[Judged]) -> None:
    """Raises MixedError for a run that is given twice, even if one of the two journals has fewer lines."""
    seen: dict[str, Judged] = {}
    for run in runs:
        if first := seen.get(run.replay.begin_chain):
            twice = f"{run.files.directory} is the same run as {first.files.directory}"
            raise MixedError(f"{twice}; give each run once")
        # The chain of the line that began the first leg tells a run from all others, however far its journal
        # goes.
        seen[run.replay.begin_chain] = run


def refuse_sizes(runs: Sequence[Judged]) -> None:
    """Raises MixedError for runs on different numbers of devices."""
    if len(sizes := {num_devices(run.replay) for run in runs}) > 1:
        raise MixedError(
            f"the runs have {' and '.join(map(str, sorted(sizes)))} devices; give runs of the same size"
        )


def refuse_unlike(first: Judged, other: Judged, chosen: Collection[str] = ()) -> None:
    """Raises AiperfError, which names the difference, for runs of two tasks, origins or kinds. `chosen`:
    settings that may differ, because runs choose them."""
    refuse_two_tasks(first, other)
    here, there = first.files.directory, other.files.directory
    one, another = first.replay.opened.origin, other.replay.opened.origin
    if one is not another:  # a simulated or pretended run says nothing about a measured one
        raise MixedError(
            f"{there} is {another.value} and {here} is {one.value}; "
            "`aiperf-hpc compare` sets two such runs side by side"
        )
    if wrong := [name for name in unlike(first, other) if name not in chosen]:
        name, mine, its = wrong[0], _kind(first), _kind(other)
        more = f", and {len(wrong) - 1} more differ" if len(wrong) > 1 else ""
        raise MixedError(
            f"{there} is not comparable with {here}: {name} is {its.get(name)!r:.80} there and "
            f"{mine.get(name)!r:.80} here{more}; compare runs with the same configuration, data and code"
        )


def unlike(first: Judged, other: Judged) -> list[str]:
    """The names of what differs and must agree, in alphabetical order."""
    mine, its = _kind(first), _kind(other)
    return sorted(name for name in mine.keys() | its.keys() if differ(mine.get(name), its.get(name)))


def kind_key(run: Judged) -> str:
    """A hash that is equal for runs of one kind and size."""
    kind = sorted((name, without_names(value)) for name, value in _kind(run).items())
    return sha256(repr((num_devices(run.replay), kind)).encode()).hexdigest()


def own_seed_sha256(run: Judged) -> str:
    """SHA-256 of the seed's graph, if the seed was a file, whose path may be hidden; else empty."""
    opened = run.replay.opened
    if opened.config.seed_architecture in task_of_run(run.replay).seeds:
        return ""
    return sha256(json.dumps(opened.seed_graph, sort_keys=True).encode()).hexdigest()


def _kind(run: Judged) -> Mapping[str, Any]:
    """All values that must agree, by name: configuration, data, code, device."""
    opened = run.replay.opened
    settings = run_tables.flat(asdict(opened.config))
    # What the ranks found, not what was configured: the same path may hold other files.
    ranks = [event.ready for leg in run.replay.counted_legs for event in leg.ranks]
    examples = f"{task_of_run(run.replay).example}s"
    data = run_tables.flat(dict(ranks[0].data), f"{examples}.") if ranks else {}
    if data.get(f"{examples}.synthetic"):  # generated from the random seed, which is a run's own
        data.pop(f"{examples}.sha256", None)
    if seed := own_seed_sha256(run):
        data["the seed"] = seed
    return {
        **{name: value for name, value in settings.items() if name not in MAY_DIFFER},
        **data,
        CODE: opened.code_hash,
        GROUPS: "several" if run_tables.hosts_of_groups(run.replay)[1] > 1 else "one",
        "the devices": sorted({ready.device for ready in ranks}),
    }
