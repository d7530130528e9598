"""What a package publishes: no secrets, names unless they are left out, and the same verdict either way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.journal.events import GroupLost, LegBegan
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from analysis.comparing.comparability import kind_key, unlike
from analysis.comparing.comparison import compare
from analysis.readings.judgement import Judged, examine
from analysis.readings.usage import read_usage
from analysis.submissions.package import published_text
from analysis.submissions.unpacking import opened_run
from analysis.submissions.verify import checked
from tests.aiperf.rules.forged import each, together
from tests.analysis.packages import contents, make, ranked
from tests.journals import CIFAR, Machine, Timed, events, record_power, resized, write_hidden, write_run
from tests.tables import ComesTo

SALT, OTHER = "5a" * 32, "5b" * 32
SETTINGS = {rank: {"job": "Slurm 471199", "container": "Apptainer site.sif"} for rank in range(1, 5)}
MACHINE = Machine(
    groups=2, devices_per_group=2, watts=400.0, settings=SETTINGS, lost_groups=(1,), failing=0.0
)
NAMES = ("alice", "471199", "site.sif", "login9", "node0", '"00000001"', "sesame")


def lines(name: str, seed: int = 1) -> list[Timed]:
    """A run whose command line, data and losses name a person and a site."""
    data = replace(CIFAR.data, path="/scratch/alice/cifar")
    machine = replace(MACHINE, random_seed=seed)
    command = ("/home/alice/bin/aiperf-hpc", "run", "--token", "sesame", "--minutes", "0.5")
    reason = "rank 3 on node0: no /home/alice/x; PASSWORD=sesame"
    named = together(
        each(LegBegan, lambda event: replace(event, command=command, host="login9")),
        each(GroupLost, lambda event: replace(event, reason=reason)),
    )
    return named([*events(name, replace(resized(CIFAR, 0.2), data=data), machine)])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    return hidden(tmp_path_factory.mktemp("runs") / "one", SALT)


@pytest.fixture(scope="module")
def judged(run: RunFiles) -> Judged:
    return examine(run)


def hidden(directory: Path, salt: str, seed: int = 1) -> RunFiles:
    files = RunFiles(directory)
    write_hidden(files, lines(directory.name, seed), salt)
    record_power(files, 400.0)
    return files


@pytest.fixture(scope="module")
def packages(run: RunFiles, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("packages")
    return {
        name: make(folder / f"{name}.tar.gz", run, redact=name == "redacted")
        for name in ("redacted", "whole")
    }


def outcomes(judged: Judged) -> list[tuple[str, object]]:
    return [(finding.rule, finding.outcome) for finding in judged.verdict.findings]


def test_a_redacted_package_names_nobody_and_no_package_a_secret(packages: dict[str, Path]) -> None:
    found = {
        name: [
            word
            for word in NAMES
            for file, data in contents(path).items()
            if word in f"{file} {data.decode()}"
        ]
        for name, path in packages.items()
    }
    assert found["redacted"] == []
    assert set(found["whole"]) == {*NAMES} - {"sesame"}
    private = {
        name: [each for each in contents(path) if "private" in each] for name, path in packages.items()
    }
    assert private == {"redacted": [], "whole": ["runs/one/private.jsonl"]}


def test_both_are_judged_alike_and_their_energy_is_known(
    run: RunFiles, judged: Judged, packages: dict[str, Path]
) -> None:
    own = judged
    assert own.verdict.valid
    for path in packages.values():
        with checked(path) as submission:
            (one,) = submission.runs
            assert (submission.valid, outcomes(one.judged)) == (True, outcomes(own))
            assert one.judged.score.goodput == own.score.goodput
            usage = read_usage(one.judged.files, one.judged.replay)
        assert usage.joules == read_usage(run, own.replay).joules > 0


def test_a_report_names_hosts_where_the_private_file_is(packages: dict[str, Path]) -> None:
    hosts = {}
    for name, path in packages.items():
        with opened_run(path) as files:
            ranks = replay(read_journal(files.journal)).ranks
            hosts[name] = {event.ready.host for event in ranks}
    assert all(host.startswith("node") for host in hosts["whole"])
    assert all(host.startswith("host-") for host in hosts["redacted"])
    assert len(hosts["whole"]) == len(hosts["redacted"])


@pytest.mark.parametrize(
    "change",
    [
        Path.unlink,
        lambda path: path.write_text(""),
        lambda path: path.write_text(path.read_text().replace(SALT, OTHER)),
        lambda path: path.write_text(path.read_text().replace("node0", "node1")),
        lambda path: path.write_bytes(path.read_bytes()[:200]),
        lambda path: path.write_bytes(b"\xff\x00"),
    ],
)
def test_no_private_file_changes_a_verdict(
    change: Callable[[Path], object], run: RunFiles, judged: Judged, tmp_path: Path
) -> None:
    copy = RunFiles(tmp_path / "one")
    shutil.copytree(run.directory, copy.directory)
    change(copy.private)
    was, now = judged, examine(copy)
    assert (now.verdict.answer, outcomes(now)) == (was.verdict.answer, outcomes(was))
    assert (now.score.goodput, now.score.ops_per_second) == (was.score.goodput, was.score.ops_per_second)
    assert read_usage(copy, now.replay).joules == read_usage(run, was.replay).joules


def test_redacted_runs_of_strangers_are_ranked_compared_and_grouped(
    run: RunFiles, judged: Judged, tmp_path: Path
) -> None:
    """Each has a salt of its own, so what is hidden is not taken for a difference."""
    other = hidden(tmp_path / "second", OTHER, seed=2)
    for name, files in (("one", run), ("two", other)):
        make(tmp_path / f"{name}.tar.gz", files, redact=True)
    standing, pages = ranked(tmp_path / "one.tar.gz")
    assert len(standing.entries) == 1
    assert not [word for word in NAMES for page in pages.values() if word in page]
    with checked(tmp_path / "one.tar.gz") as first, checked(tmp_path / "two.tar.gz") as second:
        one, two = first.runs[0].judged, second.runs[0].judged
        assert kind_key(one) == kind_key(two)
        for mine, its in ((one, two), (judged, two)):
            assert unlike(mine, its) == []
            found = compare(mine, its)
            assert [row for table in (found.machine, found.surroundings) for row in table.rows] == []


def test_a_journal_with_names_in_the_clear_is_packed_and_not_redacted(tmp_path: Path) -> None:
    files = write_run(tmp_path / "old", resized(CIFAR, 0.2), Machine(groups=1))
    with pytest.raises(
        AiperfError, match=r"recorded names in the clear, and its chain holds them; omit --redact"
    ):
        make(tmp_path / "a.tar.gz", files, redact=True)
    held = contents(make(tmp_path / "b.tar.gz", files))
    assert "runs/old/journal.jsonl" in held


def test_telemetry_is_packed_without_the_reasons_of_its_sensors(run: RunFiles, tmp_path: Path) -> None:
    copy = RunFiles(tmp_path / "one")
    shutil.copytree(run.directory, copy.directory)
    (first, *_) = sorted(copy.telemetry_directory.iterdir())
    reading = {
        "wall_seconds": 1.5,
        "host": {"unknown": "no /home/alice/lib"},
        "a new sensor": {"x": 2, "unknown": "no /home/alice/lib"},
        "devices": [{"id": "a", "unknown": "x"}],
    }
    with first.open("a") as file:
        file.write(json.dumps(reading) + "\n")
    packed = contents(make(tmp_path / "a.tar.gz", copy))[f"runs/one/telemetry/{first.name}"].decode()
    readings = {"host": {}, "a new sensor": {"x": 2}, "devices": [{"id": "a"}]}
    assert json.loads(packed.splitlines()[-1]) == {"wall_seconds": 1.5, **readings}


def test_one_line_says_what_is_published(comes_to_what_was_read: ComesTo) -> None:
    def published(*more: str, hides: bool) -> str:
        files = ("journal.jsonl", "logs/a.steps.jsonl", "logs/b.steps.jsonl", *more)
        return published_text(Path("a.tar.gz"), {f"runs/a/{name}": Path() for name in files}, hides)

    comes_to_what_was_read("published.txt", {"published": published})
