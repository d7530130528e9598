"""The sub-commands that read a run, as a person types them; and where their words go: a disk that is full, a
reader that has left, a locale of few letters."""

from __future__ import annotations

import errno
import io
import json
import os
import runpy
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnxruntime
import pytest
import torch

from aiperf.commands.optional_libraries import extra
from aiperf.data import load
from aiperf.errors import DataError, MissingExtra
from aiperf.journal.events import Origin
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Kind, Outcome
from aiperf.rules.verdict import RULES
from aiperf.run.display import Display
from analysis.exports.watch import watch_text
from analysis.pages.report import report_html
from analysis.readings.judgement import examine
from analysis.readings.live import Follower
from nas.record import graph_to_json
from nas.seeds import residual
from nas.text_seeds import gpt_4x128
from tests.aiperf.commands.typed import Typed
from tests.analysis.comparing.test_acceptance import GOOD, forged, study
from tests.analysis.packages import written
from tests.house.tree import ROOT
from tests.journals import CIFAR, Machine, Scene, resized, told, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    return write_run(tmp_path_factory.mktemp("runs") / "simulated", told(Scene(groups=1)))


def test_a_run_that_has_not_begun_is_told_so(typed: Typed, run: RunFiles, tmp_path: Path) -> None:
    begun = RunFiles(tmp_path / "begun")
    begun.directory.mkdir()
    begun.journal.write_bytes(run.journal.read_bytes().splitlines(keepends=True)[0])
    assert typed("status", begun.directory) == 0
    assert "not started, or killed before it started" in typed.out
    assert typed("validate", begun.directory) == 75
    unknown = {f.rule for f in examine(begun).verdict.findings if f.outcome is Outcome.UNKNOWN}
    integrity = {rule.name for rule in RULES if rule.kind is Kind.INTEGRITY}
    assert integrity - unknown == {"chain", "order", "seed"}  # each has the first line to look at


def test_graph_rebuilds_what_count_reads(typed: Typed, run: RunFiles, tmp_path: Path) -> None:
    output = tmp_path / "three.json"
    assert typed("graph", run.directory, 3, "-o", output) == 0
    assert typed("count", "--seed", output, "--json") == 0
    counted = json.loads(typed.out)
    assert (
        counted["graph_key"] == replay(read_journal(run.journal)).trials[3].attempts[0].dispatched.graph_key
    )
    assert typed("graph", run.directory, "best", "-o", output) == 0
    assert typed("graph", run.directory) == 0
    assert typed.out == output.read_text()
    assert typed("count", "--seed", output, "--json") == 0
    of_best = json.loads(typed.out)
    assert typed("count", run.directory, "--json") == 0
    assert json.loads(typed.out) == of_best != counted


def test_what_is_counted_may_be_a_text_of_any_length_or_come_through_a_pipe(typed: Typed) -> None:
    assert typed("count", "--seed", "gpt-4x128", "--positions", 100, "--classes", 90, "--json") == 0
    counted = json.loads(typed.out)
    assert (counted["input"], counted["symbols"]) == ([100], 90)
    assert counted["graph_key"] == gpt_4x128((100,), 90).key
    read, write = os.pipe()
    os.write(write, json.dumps(graph_to_json(residual())).encode())
    os.close(write)
    assert typed("count", "--seed", f"/dev/fd/{read}", "--json") == 0
    assert json.loads(typed.out)["graph_key"] == residual().key
    os.close(read)


def test_preset_prints_a_file_to_edit(typed: Typed) -> None:
    assert typed("preset", "digits") == 0
    assert 'name = "digits"' in typed.out
    assert typed("preset") == 0
    presets = ["digits", "own", "ranked", "ranked-text", "synthetic", "synthetic-text", "text"]
    assert [line.split()[0] for line in typed.out.splitlines()] == presets
    assert f"{'digits':<14}  The default: scikit-learn's handwritten digits, about two min" in typed.out


ESCAPES = "\x1b[2J\x1b]0;title\x07\nVALID, class ranked\u202e"
"""Clears a terminal, names its window, writes a line of its own, and turns what follows."""


@pytest.mark.usefixtures("undrawn")
def test_names_move_no_cursor_and_write_no_line(typed: Typed, run: RunFiles, tmp_path: Path) -> None:
    def named(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: named(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [named(item, key) for item in value]
        return value + ESCAPES if key in ("host", "device", "reason", "run_id", "torch") else value

    lines = [json.loads(line) for line in run.journal.read_text().splitlines()]
    files = written([named(line) for line in lines], tmp_path / "hostile")
    follower = Follower(files)
    follower.update()
    texts = [watch_text(follower.snapshot(), 300, 40), report_html(examine(files))]
    own = files.directory
    commands = (("status", own), ("score", own), ("validate", own), ("compare", own, run.directory))
    for words in (*commands, ("scaling", own, "-o", tmp_path / "study"), ("export", own, "--csv")):
        typed(*words)
        texts += [typed.out, typed.err]
    assert sum("title" in text for text in texts) > len(commands)
    for text in texts:
        assert not set("\x1b\x07\u202e") & set(text)
        assert not any(line.startswith("VALID, class ranked") for line in text.splitlines())


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


# Where the words go


def test_a_full_disk_under_the_output_is_one_line(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:  # closing writes what is left of it
        monkeypatch.setattr(sys, "stdout", full)
        assert typed("count") == 1
    assert typed.err == "aiperf-hpc: No space left on device; free some space on this file system\n"


@pytest.mark.parametrize("words", [("count",), ()])
def test_a_reader_that_has_left_is_told_nothing(
    words: tuple[str, ...], typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.close(read)
    pipe = os.fdopen(write, "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", pipe)
    with pytest.raises(SystemExit, match="1") if words else nullcontext():
        assert typed(*words) == 0
    sys.stdout.flush()  # as at the exit
    assert typed.capsys.readouterr().err == ""
    with suppress(BrokenPipeError):
        pipe.close()


def test_a_locale_of_few_letters_takes_nothing_but_letters_away(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_run(tmp_path / "run", told())
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", write_through=True))
    assert (typed("score", files.directory), typed.err) == (0, "")
    assert b"VALID, class smoke" in written.getvalue()


class Full(io.StringIO):
    """A log on a disk without room."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_run_goes_on_when_nobody_can_see_it(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Replay()
    monkeypatch.setattr(sys, "stdout", Full())
    with Display(RunFiles(Path("runs/one")), terminal=False) as display:
        for t, event in told():
            replay.add(t, event)
            if replay.legs:
                display.show(replay, t)
    told_once = "aiperf-hpc: progress cannot be shown any more (No space left on device)\n"
    assert typed.capsys.readouterr().err == told_once


def test_a_library_of_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)  # an import raises
    with pytest.raises(MissingExtra) as missing, extra("report"):
        import jinja2  # noqa: F401
    assert str(missing.value) == (
        f"jinja2 is not installed; remedy: {sys.executable} -m pip install 'jinja2>=3.1' "
        "'markupsafe>=2.1' 'matplotlib>=3.8' 'jsonschema>=4.20' 'prometheus-client>=0.20'"
    )
    with pytest.raises(ModuleNotFoundError, match=r"numpy\.absent"), extra("report"):
        import numpy.absent  # noqa: F401


# Networks for other programs

RUN = ROOT / "tests/recorded/groups"


def test_both_files_answer_as_the_journal_says(typed: Typed, tmp_path: Path) -> None:
    python, onnx = tmp_path / "best.py", tmp_path / "best.onnx"
    assert typed("graph", RUN, "--torch", python, "--onnx", onnx) == 0, typed.err
    assert typed.out.split() == [str(python), str(tmp_path / "best.safetensors"), str(onnx)]
    run = replay(read_journal(RUN / "journal.jsonl"))
    config = run.opened.config
    test = load(config.data, torch.device("cpu"), config.random_seed).test
    parts = [(images.numpy(), targets.numpy()) for images, targets in test.sweep(16, 0, 1)]
    images, targets = (np.concatenate(part) for part in zip(*parts))
    (by_onnx,) = onnxruntime.InferenceSession(str(onnx)).run(["logits"], {"images": images})
    by_torch = runpy.run_path(str(python))["load"]()(torch.from_numpy(images)).detach().numpy()
    np.testing.assert_allclose(by_onnx, by_torch, rtol=1e-4, atol=1e-4)
    for logits in (by_onnx, by_torch):
        assert (int((logits.argmax(1) == targets).sum()), len(targets)) == (run.tested.tally.correct, 64)
    assert np.bincount(targets).max() < 40  # no answer that is always the same does it
    assert "network: trial 0 of groups\n" in python.read_text(encoding="utf-8")
    assert "test: 0 of 64 wrong\n" in python.read_text(encoding="utf-8")


def test_without_the_data_a_line_says_that_prepare_is_missing(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = Mock(side_effect=DataError("/data is not a folder"))
    monkeypatch.setattr("aiperf.training.found_network.preparation_of", refuse)
    assert typed("graph", RUN, "--torch", tmp_path / "best.py") == 0
    assert typed.err == (
        "aiperf-hpc: no prepare() in the file, for the data cannot be read here: /data is not a folder\n"
    )
    assert "prepare" not in (tmp_path / "best.py").read_text(encoding="utf-8")
