"""A run that is not VALID, or was not measured: all commands say the same of it, by words and exit codes."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

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
from tests.tables import ComesTo

WHOLE = told(Scene(groups=1))
HALF = WHOLE[: len(WHOLE) // 2]
END = WHOLE[40][0]
LOST = [(END, GroupLost(0, "the node is gone")), (END, LegEnded("error: every group is lost", END))]


def edited(timed: list[Timed]) -> list[Timed]:
    first = timed[0][1]
    assert isinstance(first, Opened)
    return [(0.0, replace(first, code_hash="f" * 64)), *timed[1:]]


MARKED = [origin.value for origin in Origin if origin is not Origin.MEASURED]
RUNS = {
    "measured": WHOLE,
    "lost": [*WHOLE[:40], *LOST],
    "cut": HALF,
    "edited": edited(WHOLE),
    **{name: of_origin(WHOLE, Origin(name)) for name in MARKED},
}
LINES = {name: mark.line for name in MARKED if (mark := mark_of(Origin(name)))}
Made = dict[str, RunFiles]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("runs")
    return {name: write_run(folder / name, timed) for name, timed in RUNS.items()}


ANSWERS = "(?:VALID|INVALID|INCOMPLETE|NO RESULT|SIMULATED|PRETENDED)"
SAID = re.compile(
    rf"^(?:package )?{ANSWERS}\b.*|^verdict .*|^sustained OPS(?: so far|, \w+)?|^Warning: .*|^aiperf-hpc: .*"
    r"|^aiperf_(?:verdict_info|valid)\{.*|^\d+ ranked, .*"
    r'|"(?:valid|class|answer|cause|origin)": ?(?:"[^"]*"|\w+)|<title>.*?</title>|<p class="mark".*?</p>'
    r'|<span class="badge[^>]*>[^<]*</span>|<dl class="key">|<s>|<dt>sustained OPS[^<]*</dt>'
    rf"|{ANSWERS}: the run[^<]*",
    re.MULTILINE,
)
"""What is printed or written of what a run is, and of what its figures are worth."""


@pytest.mark.usefixtures("undrawn")
def test_all_commands_say_the_same_of_a_run_and_change_nothing_of_it(
    made: Made, typed: Typed, here: Path, comes_to_what_was_read: ComesTo
) -> None:
    """By words and exit codes. It is packed only for others to see what is wrong with it; a package that
    somebody made all the same has the answer of its run, and the folder that it was unpacked into is gone."""
    folder, out = made["lost"].directory.parent, Path("out")
    for name, files in made.items():
        make(here / f"{name}.tar.gz", files)

    def sizes() -> list[tuple[Path, int]]:
        return sorted((path, path.stat().st_size) for path in folder.rglob("*"))

    before = sizes()

    def said(words: str) -> tuple[int, list[str]]:
        code = typed(*(made[word].directory if word in made else word for word in words.split()))
        assert typed.out or typed.err.count("\n") == 1
        assert (sizes(), out.exists()) == (before, "out" in words.split() and code == 0)
        text = re.sub("\n  +", " ", typed.out + typed.err)
        for page in (out / "index.html", out):
            if page.is_file():
                text += page.read_text(encoding="utf-8")
        out.is_dir() and rmtree(out)
        out.unlink(missing_ok=True)
        return code, [each.replace(f"{folder}/", "") for each in dict.fromkeys(SAID.findall(text))]

    comes_to_what_was_read("answers.txt", {"said": said})


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
