"""Packages where a run may be given, weights in them, keys and their register: as a person types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from aiperf.journal.run_files import RunFiles
from analysis.submissions.keys import read_keys
from tests.aiperf.commands.typed import Typed
from tests.analysis.packages import contents, described, make, packed
from tests.tables import ComesTo

GROUPS = Path("tests/recorded/groups")
"""A real run that kept the weights of the network that it tested."""

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(GROUPS, tmp_path_factory.mktemp("runs") / "groups"))


@pytest.fixture
def options(run: Path, tmp_path: Path) -> tuple[object, ...]:
    (tmp_path / "system.json").write_text(json.dumps(described(RunFiles(run))))
    return "--system", tmp_path / "system.json", "--address", "a@example.org"


@pytest.fixture(scope="module")
def package(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("packages") / "result.tar.gz", RunFiles(run))


def test_score_report_export_and_compare_take_a_package(
    typed: Typed, run: Path, package: Path, tmp_path: Path
) -> None:
    for words in (("score",), ("score", "--json"), ("export", "--csv")):
        assert typed(*words, run) == 0
        told = typed.out.replace(str(run), str(package))
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
    assert typed("compare", package, run) == 0
    assert typed.out.startswith("The second run is as fast as the first.")
    assert {path.name for path in package.parent.iterdir()} == {"result.tar.gz", "result.report.html"}


def test_one_run_of_several_is_named(typed: Typed, run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree("tests/recorded/alone", tmp_path / "alone"))
    package = make(tmp_path / "two.tar.gz", RunFiles(run), RunFiles(other))
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
    typed: Typed, run: Path, options: tuple[object, ...], package: Path, tmp_path: Path
) -> None:
    assert typed("validate", package, "--reevaluate") == 2
    assert typed.err.endswith(
        f"aiperf-hpc: {package}: runs/groups has no weights; ask for a package made with `package "
        f"--with-weights`\n"
    )
    whole = tmp_path / "whole.tar.gz"
    assert typed("package", run, "-o", whole, "--with-weights", *options) == 0
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
