"""A run that is not VALID, or was not measured: all commands say the same of it, by words and exit codes."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.commands.serve import LivePage
from aiperf.journal.events import GroupLost, LegEnded, Opened, Origin
from aiperf.journal.mark import mark_of
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.run.display import Display
from analysis.submissions.schema import SchemaError, check
from tests.aiperf.commands.typed import Typed
from tests.analysis.packages import make
from tests.journals import Scene, Timed, of_origin, told, write_run

WHOLE = told(Scene(groups=1))
HALF = WHOLE[: len(WHOLE) // 2]
END = WHOLE[40][0]
LOST = [(END, GroupLost(0, "the node is gone")), (END, LegEnded("error: every group is lost", END))]
CAUSE = "every group was lost; the first, group 0: the node is gone"


def edited(timed: list[Timed]) -> list[Timed]:
    first = timed[0][1]
    assert isinstance(first, Opened)
    return [(0.0, replace(first, code_hash="f" * 64)), *timed[1:]]


MARKED = [origin.value for origin in Origin if origin is not Origin.MEASURED]
RUNS = {
    "measured": (WHOLE, "VALID", 0),
    "lost": ([*WHOLE[:40], *LOST], "NO RESULT", 3),
    "cut": (HALF, "INCOMPLETE", 75),
    "edited": (edited(WHOLE), "INVALID", 1),
    **{name: (of_origin(WHOLE, Origin(name)), "SIMULATED", 4) for name in MARKED},
}
OTHERS = [(name, *told[1:]) for name, told in RUNS.items() if name != "measured"]
LINES = {name: mark.line for name in MARKED if (mark := mark_of(Origin(name)))}
Made = dict[str, RunFiles]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("runs")
    return {name: write_run(folder / name, timed) for name, (timed, _, _) in RUNS.items()}


def listed(folder: Path) -> list[tuple[Path, int]]:
    return sorted((path, path.stat().st_size) for path in folder.rglob("*"))


@pytest.mark.parametrize(("name", "answer", "code"), OTHERS)
class TestARunThatIsNotValid:
    def test_ends_score_and_validate_with_a_code_of_its_own(
        self, name: str, answer: str, code: int, made: Made, typed: Typed
    ) -> None:
        directory = made[name].directory
        assert typed("validate", directory) == code
        assert typed.out.splitlines()[-1].startswith(answer)
        assert typed("score", directory) == code
        assert re.search(f"^verdict +{answer}", typed.out, re.M)
        assert "class " not in typed.out
        assert typed("score", "--json", directory) == code
        found = json.loads(typed.out)
        assert (found["valid"], found["class"], found["answer"]) == (False, None, answer)
        assert found["cause"]
        assert found.get("origin") == (name if name in MARKED else None)

    @pytest.mark.usefixtures("undrawn")
    def test_is_told_so_by_everything_that_shows_it(
        self, name: str, answer: str, code: int, made: Made, typed: Typed, tmp_path: Path
    ) -> None:
        directory, page, result = made[name].directory, tmp_path / "report.html", tmp_path / "result.json"
        assert typed("report", directory, "-o", page) == 0
        html = page.read_text(encoding="utf-8")
        assert f">{answer}</span>" in html
        assert f"<title>{name.upper() + ': ' if name in MARKED else ''}simulated: {answer}</title>" in html
        assert ('<dl class="key">' in html) == (answer != "NO RESULT")
        assert ("<s>" in html) == (answer == "INVALID")
        assert ("<dt>sustained OPS so far</dt>" in html) == (answer == "INCOMPLETE")
        assert typed("report", directory, "--json", "-o", result) == 0
        verdict = json.loads(result.read_text(encoding="utf-8"))["verdict"]
        assert [verdict[key] for key in ("valid", "class", "answer")] == [False, None, answer]
        origin = f'origin="{name}",' if name in MARKED else ""
        assert typed("export", "--openmetrics", directory) == 0
        assert f'aiperf_verdict_info{{answer="{answer}",{origin}run="simulated"}} 1.0' in typed.out
        assert f'aiperf_valid{{{origin}run="simulated"}} 0.0' in typed.out
        assert typed("compare", made["measured"].directory, directory) == 0
        assert typed.out.startswith(f"Warning: the second run is {answer}, its figures must not be used ")

    def test_is_not_packed_unless_for_others_to_see_what_is_wrong_with_it(
        self, name: str, answer: str, code: int, made: Made, typed: Typed, tmp_path: Path
    ) -> None:
        """And a package that somebody made all the same has the answer of its run."""
        directory, packed = made[name].directory, tmp_path / "p.tar.gz"
        before, cause = listed(directory), f"{answer}: "
        if name in MARKED:
            cause = f"the run is {name}: no network was trained"
            assert typed("package", directory, "--print-system") == 1
            assert typed.err.startswith(f"aiperf-hpc: {directory} cannot be submitted: {cause}")
        if answer != "INVALID":
            assert typed("package", directory, "-o", packed) == 1
            assert typed.err.startswith(f"aiperf-hpc: {directory} cannot be submitted: {cause}")
            assert (typed.out, typed.err.count("\n"), listed(directory)) == ("", 1, before)
            assert not packed.exists()
        assert typed("validate", make(packed, made[name])) == code
        assert typed.out.splitlines()[-1] == f"package {answer}"
        assert "aiperf-hpc resume /" not in typed.out, "the folder that it was unpacked into is gone"


def test_a_run_without_a_result_has_no_score_and_says_how_to_continue(made: Made, typed: Typed) -> None:
    lost, cut = made["lost"].directory, made["cut"].directory
    typed("score", lost)
    assert "OPS" not in typed.out.split("verdict")[0]
    typed("score", cut)
    assert "sustained OPS so far    " in typed.out
    for words, said in {
        ("score", lost): CAUSE,
        ("status", lost): f"{'verdict':<24}NO RESULT: {CAUSE}",
        ("status", "--watch", lost): f"NO RESULT: {CAUSE}",
        ("score", cut): f"`aiperf-hpc resume {cut}` continues it",
        ("status", cut): f"`aiperf-hpc resume {cut}` continues it",
        ("status", made["measured"].directory): f"{'verdict':<24}VALID, class smoke",
    }.items():
        typed(*words)
        assert " ".join(said.split()) in " ".join(typed.out.split()), words
    assert typed("scaling", lost, "-o", lost.parent) == 1
    assert f"{lost}: NO RESULT: {CAUSE}" in typed.err


def test_by_its_schema_a_result_has_an_answer_or_a_class_and_says_what_was_not_measured(
    made: Made, typed: Typed, tmp_path: Path
) -> None:
    def result(name: str) -> dict[str, dict[str, object]]:
        assert typed("report", made[name].directory, "--json", "-o", tmp_path / "r.json") == 0
        found: dict[str, dict[str, object]] = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
        check("result-1", found, "it")
        return found

    lost, played = result("lost"), result("simulated")
    valid: dict[str, object] = {"valid": True, "class": "smoke"}
    no_answer = {key: value for key, value in played["verdict"].items() if key not in ("answer", "cause")}
    for wrong in (
        *(
            lost | {"verdict": lost["verdict"] | each}
            for each in ({"answer": None}, {"class": "smoke"}, valid)
        ),
        played | {"verdict": played["verdict"] | {"answer": "INVALID"}},
        played | {"verdict": no_answer | valid},
        {key: value for key, value in played.items() if key != "origin"},
    ):
        with pytest.raises(SchemaError, match="it"):
            check("result-1", wrong, "it")


# Runs that were not measured


def rows(text: str) -> list[list[str]]:
    return [re.split("  +", line, maxsplit=1) for line in text.splitlines() if re.match(r"\w.*  ", line)]


def unmarked_samples(text: str, name: str) -> list[str]:
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(samples) > 5
    return [line for line in samples if f'origin="{name}"' not in line]


UNMARKED = ("journal", "verdict", "disturbed", "device check")
"""Lines of a summary without a figure of the run, and those that only a measured run has."""


@pytest.mark.parametrize("name", MARKED)
class TestARunThatWasNotMeasured:
    def test_has_every_figure_marked(self, name: str, made: Made, typed: Typed) -> None:
        for words in ("score", "status"):
            assert typed(words, made["measured"].directory) == 0
            assert not [word for word in ("SIMULATED", "PRETENDED", "origin") if word in typed.out]
            before = {key: value for key, value in rows(typed.out) if key not in UNMARKED}
            typed(words, made[name].directory)
            first, *others = typed.out.splitlines()
            assert first == LINES[name]
            after = dict(rows("\n".join(others)))
            plain = {key: value for key, value in before.items() if key in ("run", "slow", "machine")}
            marked = {f"{key}, {name}": value for key, value in before.items() if key not in plain}
            assert marked.items() <= after.items()
            assert len(marked) >= 3
            starts = {len(match.group()) for line in others if (match := re.match(r"\w.*?  +", line))}
            assert len(starts) == 1, "the values stand below one another"

    def test_is_marked_while_it_goes_on(
        self, name: str, made: Made, typed: Typed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        half = of_origin(HALF, Origin(name))
        running = write_run(tmp_path / "running", half)
        assert typed("status", running.directory) == 0
        assert typed.out.startswith(f"{LINES[name]}\n")
        assert typed("status", "--watch", made[name].directory) == 0
        assert typed.out.startswith(LINES[name][:40])
        page, word = LivePage(running).html(), name.upper()
        assert f'<p class="mark" role="note">{LINES[name]}</p>' in page
        assert f"<title>{word}: " in page
        assert page.count(f", {name}</h3>") == 2
        assert len(re.findall(f"<dt>[^<]*, {name}</dt>", page)) == 4
        assert f">{word}</text>" in page
        assert unmarked_samples(LivePage(running).metrics(), name) == []
        replay = Replay()
        with Display(running, terminal=False) as display:
            for t, event in half:
                replay.add(t, event)
                if replay.legs:
                    display.show(replay, t)
        shown = capsys.readouterr().out.splitlines()
        assert shown[1] == LINES[name]
        assert f"so far, {name} · " in shown[-1]

    def test_is_exported_with_its_mark_in_every_line(self, name: str, made: Made, typed: Typed) -> None:
        directory = made[name].directory
        assert typed("export", "--csv", directory) == 0
        assert {row["origin"] for row in csv.DictReader(io.StringIO(typed.out))} == {name}
        assert typed("export", "--openmetrics", directory) == 0
        assert unmarked_samples(typed.out, name) == []

    def test_goes_on_only_as_what_it_is(self, name: str, made: Made, typed: Typed) -> None:
        """A simulated one does not; a pretended one does, and is shown once more where it is complete."""
        before = listed(made[name].directory)
        code, why, lines = {
            "simulated": (1, "cannot be continued; start a new run: the run is simulated", 1),
            "pretended": (4, "is complete; this is its result", 2),
        }[name]
        assert typed("resume", made[name].directory) == code
        assert why in typed.err
        assert (typed.err.count("\n"), listed(made[name].directory)) == (lines, before)

    @pytest.mark.usefixtures("undrawn")
    def test_is_neither_ranked_nor_compared_unmarked(
        self, name: str, made: Made, typed: Typed, tmp_path: Path
    ) -> None:
        make(tmp_path / "p.tar.gz", made[name])
        assert typed("rank", tmp_path, "-o", tmp_path / "site") == 0
        assert "0 ranked, 0 smoke, 1 refused" in typed.out
        site = (tmp_path / "site/index.html").read_text(encoding="utf-8")
        assert f"SIMULATED: the run is {name}: " in site
        page, measured, other = tmp_path / "c.html", made["measured"].directory, made[name].directory
        assert typed("compare", measured, other, "-o", page) == 0
        assert f"simulated (first)  simulated (second), {name}" in re.sub(r"  +", "  ", typed.out)
        mark = f'<p class="mark" role="note">{name.upper()}: the second run is {name}: no network'
        assert mark in page.read_text(encoding="utf-8")
        assert typed("scaling", measured, other, "-o", tmp_path / "s") == 1
        assert typed.err.count("\n") == 1
        assert not (tmp_path / "s").exists()


def test_a_page_and_figures_that_were_not_measured_say_so(made: Made, typed: Typed, tmp_path: Path) -> None:
    files = made["simulated"]
    assert typed("report", files.directory, "-o", tmp_path / "r.html", "--figures") == 0
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert f'<p class="mark" role="note">{LINES["simulated"]}</p>' in html
    assert '@top-center { content: "SIMULATED"' in html
    assert '<span class="badge unknown">SIMULATED</span>' in html
    for tag in ("h3", "dt"):
        heads = re.findall(f"<{tag}>([^<]*)</{tag}>", html)
        assert heads
        assert [head for head in heads if not head.endswith(", simulated")] == []
    drawings = [part.split("</svg>")[0] for part in html.split("<svg class=")[1:]]
    figures = [path.read_text(encoding="utf-8") for path in files.figures.glob("*.svg")]
    assert len(figures) == len(drawings) // 2 > 0
    assert [svg for svg in (*drawings, *figures) if svg.count(">SIMULATED</text>") < 4] == []
    assert all(", simulated</text>" in svg for svg in figures)


def test_two_unmeasured_runs_of_different_kinds_are_told_apart(
    made: Made, typed: Typed, tmp_path: Path
) -> None:
    page, directories = tmp_path / "c.html", [made[name].directory for name in MARKED]
    assert typed("compare", *directories, "-o", page) == 0
    html = page.read_text(encoding="utf-8")
    assert "the first run is pretended: no network" in html
    assert "; the second run is simulated: no network" in html
    assert typed("scaling", *directories, "-o", tmp_path / "s") == 1
    assert f"{directories[1]} is simulated and {directories[0]} is pretended; " in typed.err
