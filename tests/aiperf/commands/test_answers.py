"""What is said of a run that is not valid: the same by every command, in words and by exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.files import RunFiles
from aiperf.journal.events import GroupLost, LegEnded, Opened
from analysis.submissions.schema import SchemaError, check
from tests.aiperf.commands.typed import Typed
from tests.analysis.packages import make
from tests.journals import Scene, Timed, told, write_run

WHOLE = told(Scene(groups=1))
END = WHOLE[40][0]
LOST = [(END, GroupLost(0, "the node is gone")), (END, LegEnded("error: every group is lost", END))]
CAUSE = "every group was lost; the first, group 0: the node is gone"


def edited(timed: list[Timed]) -> list[Timed]:
    first = timed[0][1]
    assert isinstance(first, Opened)
    return [(0.0, replace(first, code_hash="f" * 64)), *timed[1:]]


RUNS = {
    "lost": ([*WHOLE[:40], *LOST], "NO RESULT", 3),
    "cut": (WHOLE[: len(WHOLE) // 2], "INCOMPLETE", 75),
    "edited": (edited(WHOLE), "INVALID", 1),
}
Made = dict[str, RunFiles]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("runs")
    whole = {"whole": write_run(folder / "whole", WHOLE)}
    return whole | {name: write_run(folder / name, timed) for name, (timed, _, _) in RUNS.items()}


@pytest.mark.parametrize(("name", "answer", "code"), [(name, *told[1:]) for name, told in RUNS.items()])
class TestARunThatIsNotValid:
    def test_ends_score_and_validate_with_a_code_of_its_own(
        self, name: str, answer: str, code: int, made: Made, typed: Typed
    ) -> None:
        directory = made[name].directory
        assert typed("validate", directory) == code
        assert typed.out.splitlines()[-1].startswith(answer)
        assert typed("score", directory) == code
        assert f"{'verdict':<24}{answer}" in typed.out
        assert ("class " in typed.out) is False
        assert typed("score", "--json", directory) == code
        found = json.loads(typed.out)
        assert found["answer"] == answer
        assert found["cause"]

    @pytest.mark.usefixtures("undrawn")
    def test_is_told_so_by_everything_that_shows_it(
        self, name: str, answer: str, code: int, made: Made, typed: Typed, tmp_path: Path
    ) -> None:
        directory, page, result = made[name].directory, tmp_path / "report.html", tmp_path / "result.json"
        assert typed("report", directory, "-o", page) == 0
        html = page.read_text(encoding="utf-8")
        assert f">{answer}</span>" in html
        assert f"<title>simulated: {answer}</title>" in html
        assert ('<dl class="key">' in html) == (answer != "NO RESULT")
        assert ("<s>" in html) == (answer == "INVALID")
        assert ("<dt>sustained OPS so far</dt>" in html) == (answer == "INCOMPLETE")
        assert typed("report", directory, "--json", "-o", result) == 0
        verdict = json.loads(result.read_text(encoding="utf-8"))["verdict"]
        assert [verdict[key] for key in ("valid", "class", "answer")] == [False, None, answer]
        assert typed("export", "--openmetrics", directory) == 0
        assert f'aiperf_verdict_info{{answer="{answer}",run="simulated"}} 1.0' in typed.out
        assert 'aiperf_valid{run="simulated"} 0.0' in typed.out
        assert typed("export", "--mllog", directory) == 0
        assert f'"answer": "{answer}"' in typed.out
        assert typed("compare", made["whole"].directory, directory) == 0
        assert typed.out.startswith(f"Warning: the second run is {answer}, its figures must not be used (")

    def test_is_not_packed_without_a_result(
        self, name: str, answer: str, code: int, made: Made, typed: Typed, tmp_path: Path
    ) -> None:
        if answer == "INVALID":
            pytest.skip("it can be packed, for others to see what is wrong with it")
        packed = tmp_path / "p.tar.gz"
        assert typed("package", made[name].directory, "-o", packed) == 1
        (line,) = typed.err.splitlines()
        assert line.startswith(f"aiperf-hpc: {made[name].directory} cannot be submitted: {answer}: ")
        assert not packed.exists()


def test_a_result_of_a_run_that_is_not_valid_has_its_answer(made: Made, typed: Typed, tmp_path: Path) -> None:
    """By the schema, as no class and no `valid` may stand beside it."""
    output = tmp_path / "result.json"
    assert typed("report", made["lost"].directory, "--json", "-o", output) == 0
    found = json.loads(output.read_text(encoding="utf-8"))
    check("result-1", found, "it")
    for wrong in ({"answer": None}, {"class": "smoke"}, {"valid": True}, {"valid": True, "class": "smoke"}):
        with pytest.raises(SchemaError, match="it: verdict"):
            check("result-1", {**found, "verdict": {**found["verdict"], **wrong}}, "it")


def test_the_text_of_a_run_without_a_result_has_no_score(made: Made, typed: Typed) -> None:
    typed("score", made["lost"].directory)
    assert "OPS" not in typed.out.split("verdict")[0]
    assert CAUSE in typed.out
    typed("score", made["cut"].directory)
    assert "sustained OPS so far    " in typed.out
    assert f"`aiperf-hpc resume {made['cut'].directory}` continues it" in typed.out


def test_status_says_how_to_go_on(made: Made, typed: Typed) -> None:
    assert typed("status", made["whole"].directory) == 0
    assert f"{'verdict':<24}VALID, class smoke\n" in typed.out
    assert typed("status", made["lost"].directory) == 0
    assert f"{'verdict':<24}NO RESULT: {CAUSE}" in typed.out
    assert typed("status", made["cut"].directory) == 0
    assert f"`aiperf-hpc resume {made['cut'].directory}` continues it" in typed.out
    assert typed("status", "--watch", made["lost"].directory) == 0
    assert f"NO RESULT: {CAUSE}" in " ".join(typed.out.split())


def test_what_has_no_result_is_left_out_of_a_study(made: Made, typed: Typed, tmp_path: Path) -> None:
    assert typed("scaling", made["lost"].directory, "-o", tmp_path) == 1
    assert f"{made['lost'].directory}: NO RESULT: {CAUSE}" in typed.err


@pytest.mark.parametrize(("name", "answer", "code"), [(name, *told[1:]) for name, told in RUNS.items()])
def test_a_package_that_somebody_made_all_the_same_has_the_answer_of_its_run(
    name: str, answer: str, code: int, made: Made, typed: Typed, tmp_path: Path
) -> None:
    packed = make(tmp_path / "p.tar.gz", made[name])
    assert typed("validate", packed) == code
    *_, last = typed.out.splitlines()
    assert last == f"package {answer}"
    assert "aiperf-hpc resume /" not in typed.out, "the folder that it was unpacked into is gone"
