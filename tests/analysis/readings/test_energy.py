"""Energy by level: what a site's own meters and the nodes' sensors add up to, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner

from aiperf.commands.power import power
from aiperf.errors import AiperfError
from aiperf.journal.run_files import RunFiles
from analysis.comparing.acceptance import Criteria, accept
from analysis.comparing.comparison import compare
from analysis.exports.result import result
from analysis.readings.energy import Energy, Level, energy_at, kept_power, read_energy, site_spans
from analysis.readings.judgement import examine
from analysis.submissions.archive import read_archive
from analysis.submissions.verify import checked
from tests.analysis.packages import contents, make, packed, resealed
from tests.journals import CIFAR, Machine, resized, write_run
from tests.tables import ComesTo

DEVICES = Machine(groups=2, devices_per_group=2, watts=300.0)
SALT = "5a" * 32
Rows = list[tuple[float, str, object]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    return write_run(tmp_path_factory.mktemp("runs") / "run", resized(CIFAR, 0.5), DEVICES, SALT)


@pytest.fixture
def run(finished: RunFiles, tmp_path: Path) -> RunFiles:
    """A run of 30 s on two nodes, whose four devices drew 300 W each; its journal hides the names."""
    import shutil

    return RunFiles(shutil.copytree(finished.directory, tmp_path / "run"))


def rows(start: float, every: float, until: float, **watts: Callable[[float], object]) -> Rows:
    """The samples of these meters, by seconds of the span."""
    times = [every * number for number in range(int(-10 / every), int(until / every) + 1)]
    return [(start + at, name, value(at)) for at in times for name, value in watts.items()]


def csv(path: Path, lines: Rows, heads: str = "time,node,watts") -> Path:
    path.write_text(heads + "\n" + "".join(f"{at},{name},{value}\n" for at, name, value in lines))
    return path


def start_of(run: RunFiles) -> float:
    return site_spans(examine(run).replay)[0][0]


def measured(run: RunFiles, level: Level = Level.L1) -> Energy:
    return energy_at(level, read_energy(run, examine(run).replay))


def put(run: RunFiles, lines: Rows, heads: str = "time,node,watts", level: Level = Level.L1) -> Energy:
    """What follows from a file that was put next to the journal by hand."""
    run.power(level.name).parent.mkdir(exist_ok=True)
    csv(run.power(level.name), lines, heads)
    return measured(run, level)


def test_the_command_keeps_the_span_hides_the_names_and_every_row_has_its_level(
    run: RunFiles, tmp_path: Path
) -> None:
    """The site's file has other nodes and hours, full host names and times in ISO 8601. One node draws
    1,000 W, the other 40 W more each second."""
    start = start_of(run)
    lines = rows(
        start, 1.0, 45, **{"node0001.example.org": lambda at: 1000, "node0002": lambda at: 1000 + 40 * at}
    )
    lines += [(start + 5, "node0777", 9e5), (start - 7200, "node0001.example.org", 9e5)]
    iso = [(datetime.fromtimestamp(at, timezone.utc).isoformat(), name, value) for at, name, value in lines]
    file = csv(tmp_path / "site.csv", iso)  # type: ignore[arg-type]
    ended = CliRunner().invoke(power, [str(run.directory), str(file), "--level", "L1"])
    joules = 1000 * 30 + 1000 * 30 + 40 * 30**2 / 2
    assert ended.exit_code == 0, ended.output
    judged = examine(run)
    devices, nodes = read_energy(run, judged.replay)
    assert (devices.level, devices.joules) == (Level.L0, pytest.approx(4 * 300 * 30))
    assert (nodes.level, nodes.joules, nodes.coverage) == (Level.L1, pytest.approx(joules), 1.0)
    assert f"(L1, nodes; by the site's meters, {file}: 100.0 % of the span)" in ended.output
    kept = run.power("L1").read_text()
    assert kept.startswith("node,time,watts\nhost-")
    assert "node0" not in kept
    operations = judged.score.goodput.operations
    (entry,) = result(judged)["energy"]["levels"]
    assert (entry["level"], entry["joules"], entry["coverage"]) == ("L1", nodes.joules, 1.0)
    assert entry["ops_per_joule"] == pytest.approx(operations / joules)
    compared = [row[0] for row in compare(judged, judged).score.rows if "OPS/W" in row[0]]
    assert compared == ["OPS/W (L0, devices only)", "OPS/W (L1, nodes)"]
    asked = Criteria(min_ops_per_joule=1.0, min_ops_per_joule_l1=1.0, min_ops_per_joule_l2=1.0)
    answers = {each.criterion: each for each in accept(asked, [judged]).judgements}
    assert [answers[f"min_ops_per_joule{level}"].passed for level in ("", "_l1", "_l2")] == [True, True, None]
    assert answers["min_ops_per_joule_l1"].measured.endswith("OPS/W (L1, nodes)")
    unknown = "unknown: no L2 power was measured (L2, nodes, network and storage)"
    assert answers["min_ops_per_joule_l2"].measured == unknown


def test_a_package_carries_it_with_its_hash_and_computes_it_again(run: RunFiles, tmp_path: Path) -> None:
    start = start_of(run)
    before = put(run, rows(start, 1.0, 45, node0001=lambda at: 900, node0002=lambda at: 700))
    part = read_energy(run, examine(run).replay, until=10.0)
    assert energy_at(Level.L1, part).joules == pytest.approx(1600 * 10), "up to an error, as `cost` asks"
    package = make(tmp_path / "p.tar.gz", run)
    with checked(package) as found:
        assert found.valid, found.reasons
        (only,) = found.runs
        assert only.reasons == []
        assert measured(only.judged.files).joules == pytest.approx(before.joules) == pytest.approx(1600 * 30)
    folder = tmp_path / "unpacked"
    folder.mkdir()
    assert "runs/run/power/L1.csv" in read_archive(package, folder)
    listed = json.loads((folder / "manifest.json").read_text())["files"]["runs/run/power/L1.csv"]
    assert listed["bytes"] == (folder / "runs/run/power/L1.csv").stat().st_size
    assert "node0" not in (folder / "runs/run/power/L1.csv").read_text()
    files = contents(package)
    half = files["runs/run/power/L1.csv"].replace(b",700.0", b",350.0").replace(b",900.0", b",850.0")
    with checked(
        packed(tmp_path / "half.tar.gz", resealed({**files, "runs/run/power/L1.csv": half}))
    ) as found:
        (reason,) = found.runs[0].reasons
        assert reason.text.startswith("energy.levels is [{")


def test_gaps_and_contradictions_are_unknown_with_the_reason(
    run: RunFiles, comes_to_what_was_read: ComesTo
) -> None:
    """A sample is missing where it is empty; 4 s apart is near enough for a leg of 30 s, 6 s is not. Each
    node has a meter of its own, or all have one together."""

    def gaps(lines: Rows, heads: str) -> tuple[object, str]:
        found = put(run, lines, heads)
        return found.joules and round(found.joules, 3), found.missing

    comes_to_what_was_read("gaps.txt", {"gaps": gaps, "rows": rows, "t": start_of(run)})


def test_the_whole_machine_is_the_sum_of_its_meters_and_not_less_than_its_nodes(run: RunFiles) -> None:
    start = start_of(run)
    put(run, rows(start, 1.0, 45, node0001=lambda at: 900, node0002=lambda at: 900))
    parts = {"row 1": lambda at: 1850.0, "switches": lambda at: 100.0, "storage": lambda at: 250.0}
    found = put(run, rows(start, 1.0, 45, **parts), level=Level.L2)
    assert (found.missing, found.joules) == ("", pytest.approx(2200 * 30))
    found = put(run, rows(start, 1.0, 45, switches=lambda at: 1700.0), level=Level.L2)
    assert found.joules is None
    assert found.missing.endswith("is less than the 54.00 kJ of L1, nodes, which it includes")


def test_a_node_s_own_meter_is_its_energy_and_its_processors_are_not(run: RunFiles) -> None:
    start = start_of(run)
    paths = sorted(run.telemetry_directory.glob("*.jsonl"))

    def record(values: dict[str, float], which: list[Path]) -> Energy:
        for path in which:
            at = [start + second for second in range(-2, 45)]
            lines = [{"wall_seconds": t, "node": {"wall_seconds": t, **values}} for t in at]
            kept = [line for line in path.read_text().splitlines() if '"node"' not in line]
            path.write_text("\n".join([*kept, *map(json.dumps, lines)]) + "\n")
        return measured(run)

    assert record({"processors_power_watts": 400.0}, paths).missing == "no L1 power was measured"
    one = record({"power_watts": 1000.0}, paths[:1])
    assert re.fullmatch("no power of the node node000[12] is known over the whole span", one.missing)
    both = record({"power_watts": 1000.0}, paths)
    assert (both.joules, both.source) == (pytest.approx(60e3), "the nodes' own sensors (hwmon)")
    site = put(run, rows(start, 1.0, 45, all=lambda at: 2500), "time,,watts")
    assert site.joules == pytest.approx(75e3), "the site's own meter is the one that the site answers for"


def test_a_file_that_is_no_record_of_power_is_refused_in_one_line(
    run: RunFiles, tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    """By the command, which keeps nothing; and where it was put by hand, no energy is read."""

    def kept(text: str | None) -> tuple[str, str]:
        run.power("L1").unlink(missing_ok=True)
        file = tmp_path / "site.csv"
        if text is not None:
            file.write_text(text)
        ended = CliRunner().invoke(power, [str(run.directory), str(file), "--level", "L1"])
        assert isinstance(ended.exception, AiperfError)
        assert not run.power("L1").exists()
        missing = ""
        if text is not None:
            run.power("L1").parent.mkdir(exist_ok=True)
            run.power("L1").write_text(text)
            assert measured(run).joules is None
            missing = measured(run).missing
        return str(ended.exception).replace(f"{tmp_path}/", ""), missing

    comes_to_what_was_read("refused_power.txt", {"kept": kept})


def test_what_is_kept_is_kept_again_as_it_is(run: RunFiles) -> None:
    """So that a package made of what a package held is the same."""
    put(run, rows(start_of(run), 0.5, 45, node0001=lambda at: 900.25, node0002=lambda at: 1e3 / 3))
    once = kept_power(run, examine(run).replay, Level.L1, run.power("L1"))
    run.power("L1").write_text(once)
    assert kept_power(run, examine(run).replay, Level.L1, run.power("L1")) == once
