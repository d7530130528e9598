"""The sub-commands that make what leaves the machine, as a person types them."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import tarfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.commands import status, validate
from aiperf.journal.events import Dispatched
from aiperf.journal.run_files import RunFiles
from analysis.submissions.keys import read_keys
from tests.aiperf.commands.typed import Typed
from tests.analysis.packages import contents, described, make, packed
from tests.journals import Scene, told, write_run
from tests.tables import ComesTo

pytestmark = pytest.mark.usefixtures("undrawn")
PERSON = {"submitter": "Example University", "division": "open", "status": "Preview"}
PERSON["system_name"] = "Testbed"
"""What only a person knows of a system."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    return write_run(tmp_path_factory.mktemp("runs") / "simulated", told(Scene()))


@pytest.fixture
def system(typed: Typed, run: RunFiles, tmp_path: Path) -> Path:
    """A description as a person would complete it, by a template that says what to complete and how."""
    assert typed("package", run.directory, "--print-system") == 0
    template = json.loads(typed.out)
    assert [line.split(": ")[1] for line in typed.err.splitlines()] == list(PERSON)
    assert not any(template[name] for name in PERSON)
    assert "Research, Development, or Internal (RDI); Preview.\n" in typed.err
    (tmp_path / "system.json").write_text(json.dumps(template | PERSON))
    return tmp_path / "system.json"


def test_a_report_takes_name_and_price_from_the_site_file(typed: Typed, run: RunFiles, here: Path) -> None:
    site = 'name = "Cluster X"\nowner = "Example University"\nprice = "30EUR/node-hour"\n'
    (here / "site.toml").write_text(site)
    assert typed("report", run.directory) == 0
    assert typed.out == f"{run.report}\n"
    page = run.report.read_text()
    assert page.startswith("<!doctype html>")
    assert "<h1>Cluster X</h1>" in page
    assert "node-hours at 30 EUR per node-hour" in page
    assert typed("report", run.directory, "-o", "r.html", "--price", "7/node-hour") == 0
    assert "node-hours at 7 per node-hour" in Path("r.html").read_text()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_package_asks_a_person_for_what_it_cannot_know(
    typed: Typed, run: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that is none is asked for again; Return leaves out what may be."""
    archive = tmp_path / "asked.tar.gz"
    answers = ["Example University", "2", "9", "4", "Testbed", *[""] * 60]
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{answer}\n" for answer in answers)))
    named = ("--person", "A. Person", "--address", "person@example.org")
    assert typed("package", run.directory, "-o", archive, *named) == 0, typed.err
    assert "  3  Research, Development, or Internal (RDI)" in typed.err
    assert "9 is not in the range 1<=x<=4" in typed.out + typed.err
    with tarfile.open(archive) as packed:
        (name,) = [name for name in packed.getnames() if name.endswith("system.json")]
        written = packed.extractfile(name)
        assert written is not None
        assert PERSON.items() <= json.loads(written.read()).items()


def test_what_can_be_known_before_the_work_is_told_before_it(
    typed: Typed,
    run: RunFiles,
    system: Path,
    monkeypatch: pytest.MonkeyPatch,
    comes_to_what_was_read: ComesTo,
) -> None:
    monkeypatch.chdir(system.parent)
    whole = json.loads(system.read_text())

    def refused(fields: dict[str, object], options: tuple[str, ...] = ()) -> str:
        system.write_text(json.dumps(whole | fields))
        Path("twice.json").write_text('{"submitter": "x", "submitter": "y"}')
        output = ("--system", "system.json", "-o", "p.tar.gz", *options)
        assert typed("package", run.directory, "--address", "a@b", *output) == 1
        assert sorted(path.name for path in Path().iterdir()) == ["system.json", "twice.json"]
        return re.sub(r"position \d+", "position …", typed.err.replace(str(run.directory), "RUN"))

    comes_to_what_was_read("refused_packages.txt", {"refused": refused})


def test_a_package_is_made_signed_validated_and_ranked(
    typed: Typed, run: RunFiles, system: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    assert typed("key", tmp_path / "site.key", "--site", "Example University") == 0
    line, package = typed.out, folder / "a.tar.gz"
    assert typed("key", tmp_path / "site.key", "--show") == 0
    public = typed.out.strip()
    assert line == f"{public} Example University\n"
    options = ("--system", system, "--address", "a@example.org", "--key", tmp_path / "site.key")
    assert typed("package", run.directory, "-o", package, *options) == 0
    assert typed("validate", package) == 0
    assert typed.out.rstrip().endswith("package VALID")
    assert f"signed by {public}" in typed.out
    data = package.read_bytes()
    (folder / "b.tar.gz").write_bytes(data[:-20] + b"x" + data[-19:])
    assert typed("validate", folder / "b.tar.gz") == 2
    assert typed.err.count("\n") == 1
    assert typed("rank", folder, "-o", tmp_path / "site") == 0
    assert typed.out == f"0 ranked, 1 smoke, 1 refused: {tmp_path}/site/index.html\n"
    assert "not registered</em>" in (tmp_path / "site/index.html").read_text()
    (tmp_path / "register").write_text(f"# known sites\n\n{line}")
    assert typed("rank", folder, "-o", tmp_path / "site", "--keys", tmp_path / "register") == 0
    signed = '<em class="registered">signed by Example University</em>'
    assert signed in (tmp_path / "site/index.html").read_text()
    pages = {"index.html", "ranking.csv", "ranking.json", "example-university-testbed-simulated.html"}
    assert {path.name for path in (tmp_path / "site").iterdir()} == pages


def test_export_writes_a_file(typed: Typed, run: RunFiles, tmp_path: Path) -> None:
    assert typed("export", run.directory, "--csv", "-o", tmp_path / "x") == 0
    assert typed.out == f"{tmp_path}/x\n"
    assert (tmp_path / "x").read_text().startswith("trial,parent,")


def test_runs_scale_if_they_are_alike(typed: Typed, run: RunFiles, tmp_path: Path) -> None:
    one, other = (write_run(tmp_path / f"{n}", told(Scene(groups=1, epochs=n))).directory for n in (20, 5))
    assert typed("scaling", one, run.directory, "-o", tmp_path / "study") == 0
    assert typed.out.startswith("| run | nodes | devices | sustained OPS |")
    assert (tmp_path / "study" / "scaling.png").stat().st_size > 1000
    assert typed("scaling", other, run.directory, "-o", tmp_path / "study") == 1
    assert "training.epochs is (20,) there and (5,) here" in typed.err


VIEWS = (
    ("score", 2, "verdict                 NOT VALIDATED: "),
    ("score --json", 2, '"answer": "NOT VALIDATED"'),
    ("status", 0, "verdict                 NOT VALIDATED: "),
    ("list ..", 0, "NOT VALIDATED"),
    ("compare RUN", 0, "NOT VALIDATED"),
    ("export --openmetrics", 0, 'answer="NOT VALIDATED"'),
    ("export --mllog", 0, '"answer": "NOT VALIDATED"'),
    ("report --json -o OUT", 0, '"answer":"NOT VALIDATED"'),
    ("report -o OUT", 0, "NOT VALIDATED"),
)
"""What is typed with a run, the exit code, and what is shown of a long run that was not validated here."""


def test_of_a_long_run_every_view_says_what_was_validated_here(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forged one has forty times the operations, and findings next to its journal that know no fault."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("analysis.readings.judgement.COUNTED_AGAIN", 3)
    monkeypatch.setattr(validate, "COUNTED_AGAIN", 3)
    honest = told(Scene())
    forged = [(t, times_forty(event) if isinstance(event, Dispatched) else event) for t, event in honest]
    for name, lines, code, answer in (
        ("honest", honest, 0, "VALID, class smoke"),
        ("forged", forged, 1, "INVALID"),
    ):
        files = write_run(tmp_path / name / "run", lines)
        (files.directory / "validation.json").write_text('{"findings":[]}')
        before = sorted(files.directory.rglob("*"))
        assert shown_by(typed, files) == dict.fromkeys((words for words, *_ in VIEWS), (True, True))
        assert typed("validate", files.directory) == code
        assert not any(text for _, text in shown_by(typed, files).values())
        assert typed("score", files.directory) == code
        assert f"verdict                 {answer}\n" in typed.out
        assert sorted(files.directory.rglob("*")) == before


def times_forty(event: Dispatched) -> Dispatched:
    return replace(
        event, forward=event.forward * 40, backward=event.backward * 40, evaluate=event.evaluate * 40
    )


def shown_by(typed: Typed, files: RunFiles) -> dict[str, tuple[bool, bool]]:
    """For each view, whether its exit code and its text are those of a run that was not validated."""
    found, out = {}, files.directory.parent / "out"
    for words, code, text in VIEWS:
        command, *rest = words.replace("RUN", str(files.directory)).replace("OUT", str(out)).split()
        path = files.directory / rest.pop(0) if rest[:1] == [".."] else files.directory
        exit_code = typed(command, path, *rest)
        page = out.read_text() if str(out) in rest else typed.out + typed.err
        found[words] = exit_code == code, text in page
    return found


def test_status_watches_until_the_end(
    typed: Typed, run: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that another thread writes; the terminal shows its last state and the command returns."""
    monkeypatch.setattr(status, "LEAST_SECONDS", 0.01)
    growing = RunFiles(tmp_path / "growing")
    growing.directory.mkdir()
    lines = run.journal.read_bytes().splitlines(keepends=True)
    growing.journal.write_bytes(b"".join(lines[:10]))

    def write() -> None:
        for place in range(10, len(lines), 50):
            with growing.journal.open("ab") as file:
                file.write(b"".join(lines[place : place + 50]))
            time.sleep(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    assert typed("status", growing.directory, "--watch") == 0
    writer.join()
    assert "ended: deadline" in typed.out
    assert "credited so far" in typed.out


GROUPS = Path("tests/recorded/groups")
"""A real run that kept the weights of the network that it tested."""


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(GROUPS, tmp_path_factory.mktemp("runs") / "groups"))


@pytest.fixture
def options(groups: Path, tmp_path: Path) -> tuple[object, ...]:
    (tmp_path / "system.json").write_text(json.dumps(described(RunFiles(groups))))
    return "--system", tmp_path / "system.json", "--address", "a@example.org"


@pytest.fixture(scope="module")
def package(groups: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("packages") / "result.tar.gz", RunFiles(groups))


def test_score_report_export_and_compare_take_a_package(
    typed: Typed, groups: Path, package: Path, tmp_path: Path
) -> None:
    for words in (("score",), ("score", "--json"), ("export", "--csv")):
        assert typed(*words, groups) == 0
        told = typed.out.replace(str(groups), str(package))
        assert typed(*words, package) == 0
        assert typed.out == told
    assert typed("report", package) == 0
    assert typed.out == f"{package.parent}/result.report.html\n"
    page = (package.parent / "result.report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<h1>Testbed</h1>" in page
    assert '<p class="eyebrow">Example University · run ' in page
    assert typed("report", "--json", package, "-o", tmp_path / "own.json") == 0
    assert (tmp_path / "own.json").read_bytes() == contents(package)["runs/groups/result.json"]
    assert typed("compare", package, groups) == 0
    assert typed.out.startswith("The second run is as fast as the first.")
    assert {path.name for path in package.parent.iterdir()} == {"result.tar.gz", "result.report.html"}


def test_one_run_of_several_is_named(typed: Typed, groups: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree("tests/recorded/alone", tmp_path / "alone"))
    package = make(tmp_path / "two.tar.gz", RunFiles(groups), RunFiles(other))
    assert typed("score", package) == 1
    assert typed.err == (
        f"aiperf-hpc: {package} contains the runs groups, alone; give one of them, such as {package}/groups\n"
    )
    assert typed("score", package / "alone") == 0
    assert str(package / "alone" / "journal.jsonl") in typed.out
    assert typed("report", package / "alone") == 0
    assert typed.out == f"{tmp_path}/two.alone.report.html\n"
    assert typed("score", package / "third") == 1
    assert "contains the runs groups, alone" in typed.err


def test_a_package_that_is_not_as_it_was_sealed_is_not_shown(
    typed: Typed, package: Path, tmp_path: Path
) -> None:
    files = contents(package)
    files["runs/groups/journal.jsonl"] += b"\n"
    forged = packed(tmp_path / "forged.tar.gz", files)
    for words in (("score", forged), ("report", forged), ("compare", package, forged)):
        assert typed(*words) == 1
        assert typed.err == (
            f"aiperf-hpc: {forged} was changed after it was sealed: runs/groups/journal.jsonl: its checksum "
            f"differs from the manifest\n"
        )


@pytest.mark.torch
def test_weights_are_evaluated_again_by_whoever_has_the_package(
    typed: Typed, groups: Path, options: tuple[object, ...], package: Path, tmp_path: Path
) -> None:
    assert typed("validate", package, "--reevaluate") == 2
    assert typed.err.endswith(
        f"aiperf-hpc: {package}: runs/groups has no weights; ask for a package made with `package "
        f"--with-weights`\n"
    )
    whole = tmp_path / "whole.tar.gz"
    assert typed("package", groups, "-o", whole, "--with-weights", *options) == 0
    assert "passed  weights             the weights of trial 0 have the recorded hash" in typed.out
    assert "runs/groups/weights/0.safetensors" in contents(whole)
    assert typed("validate", whole, "--reevaluate", "--device", "cpu") == 0
    assert "reevaluated: trial 0, test: 0 of 64 wrong here, 0 of 64 wrong in the journal: agrees" in typed.out
    assert typed.out.endswith("package VALID\n")


def test_weights_that_are_not_there_are_not_packed(
    typed: Typed, options: tuple[object, ...], tmp_path: Path
) -> None:
    other = Path(shutil.copytree("tests/recorded/groups", tmp_path / "bare"))
    (other / "weights" / "0.safetensors").unlink()
    assert typed("package", other, "-o", tmp_path / "p.tar.gz", "--with-weights", *options) == 1
    assert "weights/0.safetensors: No such file or directory" in typed.err
    assert not (tmp_path / "p.tar.gz").exists()


KEY = "0123456789abcdef" * 4


def test_a_bad_register_is_one_line(here: Path, comes_to_what_was_read: ComesTo) -> None:
    path = Path("register")

    def read(text: str | bytes | None) -> object:
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_keys(path)

    comes_to_what_was_read("registers.txt", {"read": read, "KEY": KEY})
