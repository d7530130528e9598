"""A run that was not measured, in every command: what it prints is marked, or it refuses with one line."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from aiperf.commands.looking.serving import LivePage
from aiperf.files import RunFiles
from aiperf.journal.events import Origin
from aiperf.journal.mark import mark_of
from aiperf.journal.replay import Replay
from aiperf.run.display import Display
from analysis.submissions.schema import SchemaError, check
from tests.aiperf.commands.typed import Typed
from tests.analysis.packages import make
from tests.journals import Scene, of_origin, told, write_run

WHOLE = told(Scene(groups=1))
UNMEASURED = [origin for origin in Origin if origin is not Origin.MEASURED]
Made = dict[Origin, RunFiles]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("runs")
    return {origin: write_run(folder / origin.value, of_origin(WHOLE, origin)) for origin in Origin}


def line_of(origin: Origin) -> str:
    mark = mark_of(origin)
    assert mark is not None
    return mark.line


@pytest.mark.parametrize("origin", UNMEASURED)
class TestARunThatWasNotMeasured:
    def test_has_an_answer_and_an_exit_code_of_its_own(
        self, origin: Origin, made: Made, typed: Typed
    ) -> None:
        directory = made[origin].directory
        assert typed("validate", directory) == 4
        *findings, last = typed.out.splitlines()
        assert len([line for line in findings if line.startswith("passed  ")]) > 20
        assert last.startswith(f"SIMULATED: the run is {origin.value}: no network was trained")
        assert typed("score", "--json", directory) == 4
        found = json.loads(typed.out)
        assert [found[key] for key in ("valid", "class", "answer", "origin")] == [
            *(False, None, "SIMULATED"),
            origin.value,
        ]

    def test_has_every_figure_marked_in_its_score(self, origin: Origin, made: Made, typed: Typed) -> None:
        assert typed("score", made[origin].directory) == 4
        first, head, _, *lines = typed.out.splitlines()
        assert first == line_of(origin)
        assert head.endswith(f", {origin.value}")
        names = [re.split(r"  +", line)[0] for line in lines]
        assert names[:10] == [
            f"{name}, {origin.value}"
            for name in (
                *("sustained OPS", "regulated score", "tensor OPS", "MFU", "of the ceiling", "energy"),
                *("best network", "trials", "time", "control"),
            )
        ]
        assert "verdict  " in typed.out
        starts = {len(re.match(r".*?  +", line).group()) for line in lines}  # type: ignore[union-attr]
        assert len(starts) == 1, "the values stand below one another"

    def test_is_marked_wherever_it_goes_on(
        self, origin: Origin, made: Made, typed: Typed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        running = write_run(tmp_path / "running", of_origin(WHOLE[: len(WHOLE) // 2], origin))
        for files in (made[origin], running):
            assert typed("status", files.directory) == 0
            assert typed.out.splitlines()[0] == line_of(origin)
            assert f"best network, {origin.value}  " in typed.out
        assert typed("status", "--watch", made[origin].directory) == 0
        assert typed.out.splitlines()[0].startswith(line_of(origin)[:40])
        page, metrics = LivePage(running).html(), LivePage(running).metrics()
        assert f'<p class="mark" role="note">{line_of(origin)}</p>' in page
        assert f"<title>{origin.value.upper()}: " in page
        assert page.count(f", {origin.value}</h3>") == 2
        assert len(re.findall(f"<dt>[^<]*, {origin.value}</dt>", page)) == 4
        assert f">{origin.value.upper()}</text>" in page
        samples = [line for line in metrics.splitlines() if not line.startswith("#")]
        assert [line for line in samples if f'origin="{origin.value}"' not in line] == []
        replay = Replay()
        with Display(running, terminal=False) as display:
            for t, event in of_origin(WHOLE[: len(WHOLE) // 2], origin):
                replay.add(t, event)
                if replay.legs:
                    display.show(replay, t)
        shown = capsys.readouterr().out.splitlines()
        assert shown[1] == line_of(origin)
        assert f"so far, {origin.value} · " in shown[-1]

    def test_has_a_page_and_figures_that_say_so(
        self, origin: Origin, made: Made, typed: Typed, tmp_path: Path
    ) -> None:
        assert typed("report", made[origin].directory, "-o", tmp_path / "r.html", "--figures") == 0
        html = (tmp_path / "r.html").read_text(encoding="utf-8")
        word = origin.value.upper()
        assert f'<p class="mark" role="note">{line_of(origin)}</p>' in html
        assert f"<title>{word}: simulated: SIMULATED</title>" in html
        assert f'@top-center {{ content: "{word}"' in html
        assert '<span class="badge unknown">SIMULATED</span>' in html
        assert re.findall("<h3>[^<]*</h3>", html) == re.findall(f"<h3>[^<]*, {origin.value}</h3>", html) != []
        assert re.findall("<dt>[^<]*</dt>", html) == re.findall(f"<dt>[^<]*, {origin.value}</dt>", html) != []
        drawings = html.split("<svg class=")[1:]
        assert drawings
        assert [part.split("</svg>")[0].count(f">{word}</text>") < 4 for part in drawings].count(True) == 0
        files = sorted(made[origin].figures.glob("*.svg"))
        assert len(files) == len(drawings) // 2
        for path in files:
            svg = path.read_text(encoding="utf-8")
            assert svg.count(f">{word}</text>") >= 4
            assert f", {origin.value}</text>" in svg

    def test_has_a_result_that_says_so_by_its_schema(
        self, origin: Origin, made: Made, typed: Typed, tmp_path: Path
    ) -> None:
        output = tmp_path / "result.json"
        assert typed("report", made[origin].directory, "--json", "-o", output) == 0
        found = json.loads(output.read_text(encoding="utf-8"))
        assert found["origin"] == origin.value
        assert found["verdict"]["answer"] == "SIMULATED"
        unmarked = {key: value for key, value in found.items() if key != "origin"}
        valid = {**found["verdict"], "valid": True, "class": "smoke"}
        del valid["answer"], valid["cause"]
        invalid = {**found["verdict"], "answer": "INVALID"}
        for wrong in (unmarked, {**found, "verdict": valid}, {**found, "verdict": invalid}):
            with pytest.raises(SchemaError, match="it"):
                check("result-1", wrong, "it")
        check("result-1", {**unmarked, "verdict": valid}, "it")

    def test_is_exported_with_its_mark_in_every_line(self, origin: Origin, made: Made, typed: Typed) -> None:
        directory = made[origin].directory
        assert typed("export", "--csv", directory) == 0
        rows = list(csv.DictReader(io.StringIO(typed.out)))
        assert {row["origin"] for row in rows} == {origin.value}
        assert typed("export", "--openmetrics", directory) == 0
        samples = [line for line in typed.out.splitlines() if not line.startswith("#")]
        assert len(samples) > 10
        assert [line for line in samples if f'origin="{origin.value}"' not in line] == []
        assert f'aiperf_valid{{origin="{origin.value}",run="simulated"}} 0.0' in samples

    @pytest.mark.parametrize(
        ("words", "what"),
        [
            (("export", "--mllog"), "be written as an MLPerf log"),
            (("package", "--print-system"), "be submitted"),
            (("package",), "be submitted"),
        ],
    )
    def test_is_refused_where_the_mark_would_be_lost(
        self, words: tuple[str, ...], what: str, origin: Origin, made: Made, typed: Typed
    ) -> None:
        directory = made[origin].directory
        before = directory.joinpath("journal.jsonl").read_bytes()
        assert typed(*words, directory) == 1
        assert typed.out == ""
        assert typed.err.startswith(
            f"aiperf-hpc: {directory} cannot {what}: the run is {origin.value}: no network was trained"
        )
        assert len(typed.err.splitlines()) == 1
        assert directory.joinpath("journal.jsonl").read_bytes() == before

    def test_goes_on_only_as_what_it_is(self, origin: Origin, made: Made, typed: Typed) -> None:
        """A simulated one does not; a pretended one does, and is shown once more where it is complete."""
        directory = made[origin].directory
        before = directory.joinpath("journal.jsonl").read_bytes()
        code, why = {
            Origin.SIMULATED: (1, "cannot be continued; start a new run: the run is simulated"),
            Origin.PRETENDED: (4, "is complete; this is its result"),
        }[origin]
        assert typed("resume", directory) == code
        assert why in typed.err
        assert len(typed.err.splitlines()) == 1
        assert directory.joinpath("journal.jsonl").read_bytes() == before

    def test_is_not_ranked_in_a_package_that_somebody_made_all_the_same(
        self, origin: Origin, made: Made, typed: Typed, tmp_path: Path
    ) -> None:
        packed = make(tmp_path / "p.tar.gz", made[origin])
        assert typed("validate", packed) == 4
        assert typed.out.splitlines()[-1] == "package SIMULATED"
        assert typed("rank", tmp_path, "-o", tmp_path / "site") == 0
        assert "0 ranked, 1 not" in typed.out
        listed = (tmp_path / "site/index.html").read_text(encoding="utf-8")
        assert f"SIMULATED: the run is {origin.value}: " in listed

    def test_stands_beside_a_measured_one_in_a_column_that_says_so(
        self, origin: Origin, made: Made, typed: Typed, tmp_path: Path
    ) -> None:
        page, measured = tmp_path / "c.html", made[Origin.MEASURED].directory
        assert typed("compare", measured, made[origin].directory, "-o", page) == 0
        assert typed.out.startswith(
            "Warning: the second run is SIMULATED, its figures must not be used as results (the run is"
        )
        assert f"simulated (first)  simulated (second), {origin.value}" in re.sub(r"  +", "  ", typed.out)
        html, word = page.read_text(encoding="utf-8"), origin.value.upper()
        assert f'<p class="mark" role="note">{word}: the second run is {origin.value}: no network' in html
        assert typed("scaling", measured, made[origin].directory, "-o", tmp_path / "s") == 1
        assert len(typed.err.splitlines()) == 1
        assert not (tmp_path / "s").exists()


def test_two_unmeasured_runs_of_different_kinds_are_told_apart(
    made: Made, typed: Typed, tmp_path: Path
) -> None:
    page, directories = tmp_path / "c.html", [made[origin].directory for origin in UNMEASURED]
    assert typed("compare", *directories, "-o", page) == 0
    html = page.read_text(encoding="utf-8")
    assert "the first run is pretended: no network" in html
    assert "; the second run is simulated: no network" in html
    assert typed("scaling", *directories, "-o", tmp_path / "s") == 1
    assert f"{directories[1]} is simulated and {directories[0]} is pretended; " in typed.err


def test_a_measured_run_has_no_mark(made: Made, typed: Typed) -> None:
    for words in (("score",), ("status",), ("export", "--csv"), ("export", "--openmetrics")):
        assert typed(*words, made[Origin.MEASURED].directory) == 0
        assert [word for word in ("SIMULATED", "PRETENDED", "origin") if word in typed.out] == []
