"""Two runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from aiperf.errors import AiperfError
from aiperf.journal.events import Origin
from aiperf.journal.run_files import RunFiles
from aiperf.wire.reports import Ceiling, Rate
from analysis.comparing.comparability import MixedError, refuse_mixed
from analysis.comparing.comparison import chance_text, compare, comparison_text
from analysis.comparing.repeatability import Repeat, RepeatedRuns
from analysis.pages.comparisons import comparison_html
from analysis.readings.devices import threads_text
from analysis.readings.judgement import Judged, examine
from analysis.readings.run_tables import devices_text
from tests.journals import CIFAR, Machine, resized, write_run
from tests.tables import ComesTo

SETTINGS = {"threads": "1", "NCCL_ALGO": "Ring", "job": "Slurm 1"}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Half as fast, another learning rate, another device."""
    config = resized(CIFAR, 3.0)
    config = replace(config, training=replace(config.training, learning_rate=0.2))
    machine = Machine(groups=4, device="Tesla T4", device_ops_per_second=3e10, random_seed=3)
    return examine(write_run(tmp_path_factory.mktemp("other") / "other", config, machine))


def edited(run: RunFiles, old: str, new: str) -> Judged:
    """The same run, of whose journal each of these words is another."""
    run.journal.write_text(run.journal.read_text().replace(old, new))
    return examine(run)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judged]:
    """By name: each differs from another one in one thing."""
    folder = tmp_path_factory.mktemp("runs")

    def made(name: str, minutes: float = 0.1, **machine: Any) -> RunFiles:
        return write_run(folder / name, resized(CIFAR, minutes), Machine(**machine))

    config = resized(CIFAR, 3.0)
    config = replace(config, training=replace(config.training, epochs=(40,)))
    one_group = write_run(folder / "one-group", config, Machine(groups=1))
    steady, changed = examine(one_group), examine(one_group)
    blocks = changed.replay.blocks.rows
    blocks["seconds"][blocks["ends"] % 1 > 0.5] *= 2
    hosts, plain = made("hosts", groups=12), made("plain")
    found = {"steady": steady, "changed": changed, "hosts": examine(hosts), "plain": examine(plain)}
    settings = {rank: {"threads": str(min(rank, 6)), "governor": "performance"} for rank in range(1, 9)}
    return found | {
        "replaced": edited(hosts, "node0011", "node0099"),
        "other_data": edited(plain, found["plain"].replay.manifest["sha256"], "another"),
        "short": examine(made("short", 2.0, groups=4)),
        "narrow": examine(made("narrow", 0.5)),
        "spread": examine(made("spread", 0.5, spread=True)),
        "set": examine(made("set", settings=dict.fromkeys(range(1, 9), SETTINGS))),
        "set_again": examine(
            made("set-again", settings=dict.fromkeys(range(1, 9), SETTINGS | {"job": "Slurm 2"}))
        ),
        "set_other": examine(made("set-other", settings=settings)),
    }


def test_two_runs_differ_in_what_is_said_and_in_nothing_else(
    judged: Judged, runs: dict[str, Judged], comes_to_what_was_read: ComesTo
) -> None:
    """Groups over several hosts are a label, and compared with a warning; a machine whose speed changed is
    named before the figures. What a run computed in is compared rank by rank: a job's number always differs,
    so it is shown and not called a reason."""

    def says(first: Judged, second: Judged) -> str:
        return compare(first, second).says

    def differences(first: Judged, second: Judged) -> list[list[list[str]]]:
        found = compare(first, second)
        tables = found.configuration, found.machine, found.software, found.surroundings
        return [table.rows for table in tables]

    idle = replace(judged, score=replace(judged.score, ops_per_second=0.0))
    names = {"says": says, "differences": differences, "compare": compare, "devices_text": devices_text}
    comes_to_what_was_read("comparisons.txt", {**runs, **names, "judged": judged, "idle": idle})
    with pytest.raises(MixedError, match="hosts of a group is 'several' there and 'one' here"):
        refuse_mixed([runs["narrow"], runs["spread"]])


def test_what_differs_is_named_and_nothing_else(
    judged: Judged, other: Judged, as_it_was_read: Callable[[str, str], None]
) -> None:
    found = compare(judged, other)
    as_it_was_read(comparison_text(found) + "\n", "compared.txt")
    html = comparison_html(found).replace("\u00a0", " ")
    assert all(row[0] in html for row in found.score.rows)


RATES = {1: 99e9, 2: 100e9, 3: 101e9}
REPEATS = tuple(Repeat(f"{seed}", seed, "", {"ops_per_second": rate}) for seed, rate in RATES.items())
KNOWN = RepeatedRuns("cifar10", 3.0, "a machine", 8, Origin.MEASURED, "", REPEATS)
ONE_SEED = replace(KNOWN, runs=tuple(replace(each, random_seed=1) for each in REPEATS))


def chance(
    *rates: float, seeds: Collection[int] = (1, 2), seconds: float = 180.0, spread: RepeatedRuns = KNOWN
) -> str:
    return chance_text(rates, set(seeds), seconds, spread)  # type: ignore[arg-type]


def test_a_difference_is_chance_as_far_as_runs_of_one_configuration_differ(
    judged: Judged, other: Judged, comes_to_what_was_read: ComesTo
) -> None:
    """Student's t of two degrees of freedom: 4.303 · √2 · 1 % of the mean is 6.09 %."""
    comes_to_what_was_read("chance.txt", globals())
    larger = "% lower OPS than the first. The difference is larger than the spread"
    assert larger in compare(judged, other, KNOWN).says
    why = "is a measured run of cifar10, 3 minutes, 8 devices; give the spread of such runs"
    for wrong in (replace(KNOWN, minutes=2.0), replace(KNOWN, origin=Origin.SIMULATED)):
        with pytest.raises(AiperfError, match=why):
            compare(judged, other, wrong)


def test_ceilings_are_compared_with_equal_threads_and_reported_with_each(
    judged: Judged, other: Judged, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """Each rank has products by number of threads, of which the first was used."""

    def measure(run: Judged, ranks: list[Mapping[str, float]]) -> None:
        ceilings = {}
        for rank, timed in enumerate(ranks, 1):
            rates = {count: Rate(fastest, fastest, 0.0) for count, fastest in timed.items()}
            used = next(iter(rates))
            kept = rates[used], rates[used]
            ceiling = Ceiling(rank, "node1", "a CPU", "bf16", 512, *kept, threads=int(used))
            ceilings[rank] = replace(ceiling, thread_products=rates if len(rates) > 1 else {})
        monkeypatch.setattr(run.replay.leg, "ceilings", ceilings)

    def compared(*runs: list[Mapping[str, float]]) -> Sequence[str]:
        for run, ranks in zip((judged, other), runs):
            measure(run, ranks)
        (found,) = [row for row in compare(judged, other).score.rows if row[0] == "ceiling of products"]
        return found[1:]

    def reported(**timed: float) -> str:
        measure(judged, [{count.removeprefix("with_"): rate for count, rate in timed.items()}])
        return threads_text(judged.replay)

    comes_to_what_was_read("compared_ceilings.txt", {"compared": compared, "reported": reported})
