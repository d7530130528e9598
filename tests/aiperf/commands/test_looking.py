"""`list` and `accept`: the runs of a directory, and the answer to whoever has to accept a machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aiperf.journal.events import Origin
from tests.aiperf.commands.typed import Typed
from tests.analysis.comparing.test_acceptance import GOOD, forged, study
from tests.journals import CIFAR, Machine, resized, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three that began at one time, a simulated one, a later one, one that cannot be read, and no run."""
    folder = tmp_path_factory.mktemp("runs")
    study(folder, GOOD)
    write_run(folder / "played", resized(CIFAR, 2.0), Machine(origin=Origin.SIMULATED))
    write_run(folder / "later", resized(CIFAR, 2.0), Machine(days=1))
    (folder / "no-run").mkdir()
    (folder / "torn").mkdir()
    (folder / "torn" / "journal.jsonl").write_text("no JSON\n")
    return folder


def test_runs_are_listed_in_the_order_of_their_starts(
    typed: Typed, runs: Path, tmp_path: Path, as_it_was_read: Callable[[str, str], None]
) -> None:
    """All with one that cannot be read, for other programs too; one alone; and where there is none."""
    words = (runs,), (runs, "--json"), (runs / "later",), (tmp_path,)
    said = [f"{typed('list', *each)}\n{typed.out}{typed.err}" for each in words]
    as_it_was_read("\n".join(said).replace(f"{runs}/", "").replace(str(tmp_path), "…"), "listed.txt")


def test_an_acceptance_is_written_for_other_programs_and_a_run_is_held_against_earlier_ones(
    typed: Typed, runs: Path, here: Path, as_it_was_read: Callable[[str, str], None]
) -> None:
    """With its exit codes: what is accepted or not, what is not VALID, what is and is not known of earlier
    runs, and what asks for none of them."""
    said = []

    def accept(criteria: str, *words: object) -> None:
        Path("criteria.toml").write_text(criteria)
        code = typed("accept", *words, "--criteria", "criteria.toml")
        said.append(f"{code}\n{typed.out}{typed.err}".replace(f"{runs}/", "").replace(f"{here}/", ""))

    seeds, forger = sorted(runs.glob("seed-*")), forged(here / "forged").directory
    written = ("--junit", "accept.xml", "--json", "accept.json", "--sheet", "accept.html")
    accept("max_error = 1.0\nmin_mfu = 0.99\n", *seeds, *written)
    said.append(Path("accept.xml").read_text())
    content = json.loads(Path("accept.json").read_text())
    assert (content["form"], content["accepted"]) == ("aiperf-hpc/acceptance/1", False)
    assert content["runs"] == [each.name for each in seeds]
    assert [each["node"] for each in content["nodes"]] == ["node0001", "node0002", "node0003", "node0004"]
    assert "<h2>Signatures</h2>" in Path("accept.html").read_text()
    accept("max_error = 1.0\n", seeds[0])
    accept("max_error = 1.0\n", forger)
    accept("max_drop = 0.5\nsame_environment = true\n", seeds[0], "--history", runs)  # none is earlier
    accept("max_drop = 0.5\n", seeds[0], "--history", runs / "absent")
    accept("max_error = 1.0\n", seeds[0], "--history", runs)
    as_it_was_read("\n".join(said), "accepted.txt")
