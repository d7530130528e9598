"""The sub-command `simulate`: a study in a folder, its table, and what it refuses in one line."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from statistics import mean, stdev

import pytest

from aiperf.config import load_preset
from aiperf.pretending.assumptions import assumed
from aiperf.simulation.simulated_machine import SimulatedMachine
from tests.aiperf.commands.typed import Typed
from tests.aiperf.simulation.simulated import Played, config, steady

SHORT = ("--set", "limits.minutes=5")


def test_a_study_of_two_sizes(typed: Typed, tmp_path: Path) -> None:
    study = tmp_path / "study"
    assert typed("simulate", "--nodes", "1,2", *SHORT, "--directory", study) == 0, typed.err
    assert typed.out.startswith(f"SIMULATED, nothing was measured; machine model: {assumed('h100').name} (")
    assert re.findall("(. nodes? × 8): simulated in", typed.err) == ["1 node × 8", "2 nodes × 8"]
    rows = (
        "utilisation",
        "requests/s",
        "master busy",
        "wait for the master, 99th percentile",
        "journal",
        "lost work",
        "groups lost",
    )
    for row in rows:
        assert sum(line.startswith(row) for line in typed.out.splitlines()) == 1, row
    for name in ("scaling.html", "scaling.svg", "1-nodes/journal.jsonl", "2-nodes/config.toml"):
        assert (study / name).stat().st_size
    assert assumed(str(study / "1-nodes/assumptions.toml")) == assumed("h100")
    assert typed("simulate", "--nodes", "2,4", *SHORT, "--directory", study) == 1
    assert typed.err.count("\n") == 1
    assert "already exists" in typed.err
    assert not (study / "4-nodes").exists()
    assert typed("score", study / "2-nodes") == typed("validate", study / "2-nodes") == 4, (
        "nothing was measured"
    )


@pytest.mark.parametrize(
    ("words", "title", "random_seeds"),
    [
        ((), "sustained OPS over 3 random seeds, from 4", [4, 5, 6]),
        (("--same-search",), "sustained OPS over 3 draws of the machine, one search, from 4", [4, 4, 4]),
    ],
)
def test_repeats_show_how_far_equal_runs_lie_apart(
    words: tuple[str, ...], title: str, random_seeds: list[int], typed: Typed, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    words = ("--nodes", "1", "--repeats", "3", "--random-seed", "4", *SHORT, *words)
    assert typed("simulate", *words, "--directory", study) == 0, typed.err
    with (study / "simulation.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rates = [float(row["ops_per_second"]) for row in rows]
    assert [row["repeat"] for row in rows] == ["0", "1", "2"]
    assert len(set(rates)) == 3
    configs = [study / f"1-nodes{repeat}/config.toml" for repeat in ("", "-repeat-1", "-repeat-2")]
    assert [load_preset(str(config)).random_seed for config in configs] == random_seeds
    said, heads, row = typed.out.splitlines()[-3:]
    assert said == title
    assert heads.split() == ["nodes", "simulations", "median", "least", "greatest", "variation"]
    assert row.split()[:2] == ["1", "3"]
    assert row.endswith(f" {100 * stdev(rates) / mean(rates):.2f} %")
    assert typed.out.count("| 1-nodes, simulated |") == 1, "the table of sizes has the first of each"
    assert typed("score", study / "1-nodes-repeat-2") == 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--devices-per-trial 16", "1 node: --devices-per-trial 16 does not divide"),
        ("--set training.batch_size=20", "2 nodes: training.batch_size is 20, which the 8 ranks of a group"),
        ("--preset own", "2 nodes: preset own does not say how many images there are"),
    ],
)
def test_a_size_that_fails_does_not_lose_the_others(
    words: str, told: str, typed: Typed, tmp_path: Path
) -> None:
    options = (*words.split(), "--nodes", "1,2", *SHORT, "--directory", tmp_path / "study")
    assert typed("simulate", *options) == 1
    assert told in typed.err
    assert ("2 nodes × 8: simulated" in typed.err) == (told[0] == "1")


def test_a_size_that_credits_nothing_does_not_lose_the_others(typed: Typed, tmp_path: Path) -> None:
    study = tmp_path / "study"
    slow = ("--assume", "spread.node=2.5", "--random-seed", "2")  # the first node is far too slow
    words = ("--nodes", "1,3", "--set", "limits.minutes=6", "--directory", study)
    assert typed("simulate", *words, *slow) == 1
    assert "1-nodes: it has no credited work; left out of the scaling table" in typed.err
    assert "| 3-nodes, simulated |" in typed.out
    assert "| 1-nodes, simulated |" not in typed.out
    assert (study / "scaling.html").exists()
    rows = (study / "simulation.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[0] for row in rows] == ["origin", "simulated", "simulated"]


def test_a_run_is_predicted_from_what_it_tells(typed: Typed, tmp_path: Path) -> None:
    data = {"training.validate_every_examples": 50_000, "data.training_examples": 50_000}
    Played(
        tmp_path / "run", SimulatedMachine(1, 8), steady(), config(4.0, **data, **{"training.epochs": [1]})
    )
    machine = tmp_path / "machine.toml"
    words = ("--calibrate", tmp_path / "run", "--write", machine, "--directory", tmp_path / "again")
    assert typed("simulate", *words) == 0, typed.err
    assert f"{tmp_path / 'run'} is not a measurement. SIMULATED: " in typed.out
    assert f"simulated: {tmp_path / 'run'}; modelled: " in typed.out
    assert not [wrong for wrong in ("measured: ", "-0.0 %") if wrong in typed.out]
    names = ["utilisation", "trials", "steps", "examples", "ops", "seconds"]
    assert [line.split()[0] for line in typed.out.splitlines()[-6:]] == names
    assert "not known" in typed.out
    assert assumed(str(machine)).name == "as run run"
    assert assumed(str(machine)).source.startswith("calibrated by simulated run run: ")
    assert assumed(str(machine)).device == assumed("h100").device, "no mark appears twice"
    assert typed("simulate", "--nodes", "1", *SHORT, "--assume", machine, "--directory", tmp_path / "b") == 0


def test_a_run_that_only_opened_has_no_machine(typed: Typed, tmp_path: Path) -> None:
    played = Played(tmp_path / "run", SimulatedMachine(1, 8), steady(), config(1.0))
    played.files.journal.write_text(played.text.split("\n")[0] + "\n", encoding="utf-8")
    assert typed("simulate", "--predict", tmp_path / "run", "--directory", tmp_path / "again") == 1
    assert "no rank was ready, so there is no machine to simulate" in typed.err
