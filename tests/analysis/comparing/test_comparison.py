"""Two runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.journal.events import Origin
from aiperf.wire.messages import Ceiling, Rate
from aiperf.wording import percent
from analysis.comparing.comparability import MixedError, refuse_mixed
from analysis.comparing.comparison import chance_text, compare, comparison_text
from analysis.comparing.repeatability import Repeat, RepeatedRuns
from analysis.pages.comparisons import comparison_html
from analysis.readings.devices import threads_text
from analysis.readings.judgement import Judged, examine
from analysis.readings.run_tables import devices_text
from analysis.readings.steadiness import time_lost
from tests.journals import CIFAR, Machine, resized, write_run

MAYBE = "so this may be chance"
HARDLY = (
    "but this is hardly chance (two runs of our presets on quiet machines differ by up to 33 % of their mean "
    "in 95 of 100 cases)"
)
UNKNOWN = (
    f"How far runs of one configuration differ is not known here, {HARDLY}: "
    "`aiperf-hpc run --like RUN --repeats 5` measures it, and --spread takes what `aiperf-hpc spread --json` "
    "prints of those runs."
)
SETTINGS = {"threads": "1", "NCCL_ALGO": "Ring", "job": "Slurm 1"}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Half as fast, another learning rate, another device."""
    config = resized(CIFAR, 3.0)
    config = replace(config, training=replace(config.training, learning_rate=0.2))
    machine = Machine(groups=4, device="Tesla T4", device_ops_per_second=3e10, random_seed=3)
    return examine(write_run(tmp_path_factory.mktemp("other") / "other", config, machine))


def test_a_run_does_not_differ_from_itself(judged: Judged) -> None:
    found = compare(judged, judged)
    assert found.names == ("four-groups (first)", "four-groups (second)")
    assert found.says == (
        "The second run is as fast as the first. "
        "Their configuration, machine, software and surroundings are the same."
    )
    same = (found.configuration, found.machine, found.software, found.surroundings)
    assert [table.rows for table in same] == [[], [], [], []]
    assert {row[3] for row in found.score.rows} <= {"", "0.00 %", "0.00 points"}


def test_what_differs_is_named_and_nothing_else(judged: Judged, other: Judged) -> None:
    found = compare(judged, other)
    assert [row[:3] for row in found.configuration.rows] == [["training.learning_rate", "0.1", "0.2"]]
    assert [row[0] for row in found.machine.rows] == ["devices"]
    assert found.software.rows == []
    assert "lower OPS than the first" in found.says
    assert found.says.endswith(
        f"{UNKNOWN} They also differ in configuration (1 difference) and machine (1 difference), listed "
        "below the figures, which cannot show what made them differ."
    )


def test_groups_over_several_hosts_are_a_label_and_compared_with_a_warning(tmp_path: Path) -> None:
    plain, spread = (
        examine(write_run(tmp_path / name, resized(CIFAR, 0.5), Machine(spread=name == "spread")))
        for name in ("plain", "spread")
    )
    label = "8 × NVIDIA A100-SXM4-80GB on 4 hosts, each group over 2 of them"
    assert (devices_text(spread.replay), devices_text(plain.replay)) == (label, label.partition(",")[0])
    found = compare(plain, spread)
    assert found.says.startswith("Warning: only in the second run do groups span hosts (2 each), ")
    assert ["devices", label.partition(",")[0], label] in found.machine.rows
    with pytest.raises(MixedError, match="hosts of a group is 'several' there and 'one' here"):
        refuse_mixed([plain, spread])
    assert "Warning" not in compare(spread, spread).says


def test_a_machine_whose_speed_changed_is_named_before_the_figures(tmp_path: Path) -> None:
    config = resized(CIFAR, 3.0)
    config = replace(config, training=replace(config.training, epochs=(40,)))
    run = write_run(tmp_path / "run", config, Machine(groups=1))
    steady, changed = examine(run), examine(run)
    blocks = changed.replay.blocks.rows
    blocks["seconds"][blocks["ends"] % 1 > 0.5] *= 2
    lost = time_lost(changed.replay)
    assert lost is not None
    assert lost > 0.2
    assert compare(steady, changed).says.startswith(
        "The two were not equally steady: at the rate of each network's fastest tenth of the steps 0.0 % of "
        f"their time would have been saved in the first, {percent(lost, 1)} in the second. The second run is"
    )
    assert "steady" not in compare(changed, changed).says


def test_a_host_that_was_replaced_is_named_among_many(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", resized(CIFAR, 0.1), Machine(groups=12))
    first = examine(run)
    run.journal.write_text(run.journal.read_text().replace("node0011", "node0099"))
    assert compare(first, examine(run)).machine.rows == [
        ["hosts not in the other run", "node0011", "node0099"]
    ]


def test_other_data_at_the_same_path_is_no_difference_of_the_machine(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", resized(CIFAR, 0.1), Machine())
    first = examine(run)
    digest = first.replay.manifest["sha256"]
    run.journal.write_text(run.journal.read_text().replace(digest, "another"))
    found = compare(first, examine(run))
    assert found.configuration.rows == [["data.sha256", f"{digest:.12}…", "another"]]
    assert found.machine.rows == []


def test_what_a_run_computed_in_is_compared_rank_by_rank(tmp_path: Path) -> None:
    """A job's number always differs, so it is shown and not called a reason."""
    first, again, other = (
        examine(write_run(tmp_path / name, resized(CIFAR, 0.1), Machine(settings=settings)))
        for name, settings in (
            ("first", dict.fromkeys(range(1, 9), SETTINGS)),
            ("again", dict.fromkeys(range(1, 9), SETTINGS | {"job": "Slurm 2"})),
            ("other", {n: {"threads": str(min(n, 6)), "governor": "performance"} for n in range(1, 9)}),
        )
    )
    found = compare(first, again)
    assert found.surroundings.rows == [["job", "Slurm 1", "Slurm 2"]]
    assert found.says.endswith("Their configuration, machine, software and surroundings are the same.")
    found = compare(first, other)
    several = "6 (3 of 8 ranks), 1 (1 of 8 ranks), 2 (1 of 8 ranks), 3 (1 of 8 ranks), 2 more"
    assert found.surroundings.rows == [
        ["threads", "1", several],
        ["NCCL_ALGO", "Ring", "absent"],
        ["job", "Slurm 1", "absent"],
        ["governor", "absent", "performance"],
    ]
    assert "They also differ in surroundings (3 differences)" in found.says
    assert several in comparison_text(found)


def test_a_difference_is_chance_as_far_as_runs_of_one_configuration_differ(
    judged: Judged, other: Judged
) -> None:
    """Student's t of two degrees of freedom: 4.303 · √2 · 1 % of the mean is 6.09 %."""
    rates = {1: 99e9, 2: 100e9, 3: 101e9}
    repeats = tuple(Repeat(f"{seed}", seed, "", {"ops_per_second": rate}) for seed, rate in rates.items())
    known = RepeatedRuns("cifar10", 3.0, "a machine", 8, Origin.MEASURED, "", repeats)
    told = (
        "the spread: two runs of cifar10, 3 minutes, 8 devices differ by up to 6.09 % of their mean in 95 of "
        "100 cases (3 runs with 3 random seeds, a machine)."
    )
    for rate, word in ((106.2, "within"), (106.4, "larger than"), (94.2, "within"), (94.0, "larger than")):
        assert chance_text((100e9, 1e9 * rate), {1, 2}, 180.0, known) == f"The difference is {word} {told}", (
            rate
        )
    one_seed = replace(known, runs=tuple(replace(each, random_seed=1) for each in repeats))
    assert "larger than" in chance_text((100e9, 9e9), {1}, 180.0, one_seed)
    cases = ((9e9, 180.0, HARDLY), (9e9, 59.0, MAYBE), (72e9, 180.0, MAYBE), (71e9, 180.0, HARDLY))
    for rate, seconds, doubt in cases:
        assert chance_text((100e9, rate), {1, 2}, seconds, one_seed) == (
            "Their random seeds differ, and the spread is that of one seed (3 runs with 1 random seed, a "
            f"machine), {doubt}: `aiperf-hpc run --like RUN --repeats 5` measures that of several."
        ), (rate, seconds)
    assert (
        "% lower OPS than the first. The difference is larger than the spread"
        in compare(judged, other, known).says
    )
    why = "is a measured run of cifar10, 3 minutes, 8 devices; give the spread of such runs"
    for wrong in (replace(known, minutes=2.0), replace(known, origin=Origin.SIMULATED)):
        with pytest.raises(AiperfError, match=why):
            compare(judged, other, wrong)


def test_runs_of_two_lengths_need_not_be_equally_fast(judged: Judged, tmp_path: Path) -> None:
    short = examine(write_run(tmp_path / "short", resized(CIFAR, 2.0), Machine(groups=4)))
    kinds = "The first is of cifar10, 3 minutes, 8 devices, the second of cifar10, 2 minutes, 8 devices, so"
    assert (
        f"OPS than the first. {kinds} they need not be equally fast. They also" in compare(judged, short).says
    )


def test_where_there_is_nothing_to_compare_it_is_said(judged: Judged) -> None:
    nothing = replace(judged, score=replace(judged.score, ops_per_second=0.0))
    for pair, name in (((nothing, judged), "first"), ((judged, nothing), "second")):
        assert compare(*pair).says.startswith(f"The {name} run has no credited operations;")


def test_ceilings_are_compared_with_equal_threads(
    judged: Judged,
    other: Judged,
    monkeypatch: pytest.MonkeyPatch,
    comes_to_what_was_read: Callable[[str, Mapping[str, object]], None],
) -> None:
    """Each rank has products by number of threads, of which the first was used."""

    def compared(*runs: list[Mapping[str, float]]) -> Sequence[str]:
        for run, ranks in zip((judged, other), runs):
            ceilings = {}
            for rank, timed in enumerate(ranks, 1):
                rates = {count: Rate(fastest, fastest, 0.0) for count, fastest in timed.items()}
                used = next(iter(rates))
                kept = rates[used], rates[used]
                ceiling = Ceiling(rank, "node1", "a CPU", "bf16", 512, *kept, threads=int(used))
                ceilings[rank] = replace(ceiling, thread_products=rates if len(rates) > 1 else {})
            monkeypatch.setattr(run.replay.leg, "ceilings", ceilings)
        (found,) = [row for row in compare(judged, other).score.rows if row[0] == "ceiling of products"]
        return found[1:]

    comes_to_what_was_read("compared_ceilings.txt", {"compared": compared})


def test_the_report_names_the_ceiling_with_each_number_of_threads(
    judged: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = {str(count): Rate(count * 1e11, count * 1e11, 0.0) for count in (1, 2, 12)}
    one = Ceiling(1, "node1", "a CPU", "bf16", 512, rates["2"], rates["2"], threads=2)
    for thread_products, text in (
        (rates, "100.0 GOPS with 1 thread, 200.0 GOPS with 2 threads, 1.200 TOPS with 12 threads"),
        ({}, ""),
    ):
        ceilings = {1: replace(one, thread_products=thread_products)}
        monkeypatch.setattr(judged.replay.leg, "ceilings", ceilings)
        assert threads_text(judged.replay) == text


def test_text_and_page_say_the_same(judged: Judged, other: Judged) -> None:
    found = compare(judged, other)
    text, html = comparison_text(found), comparison_html(found).replace("\u00a0", " ")
    assert text.startswith(found.says)
    assert "software: no difference" in text
    for row in found.score.rows:
        assert row[0] in text
        assert row[0] in html
