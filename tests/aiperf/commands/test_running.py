"""`run`: what it waits for when it goes on, and what it ends with."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from aiperf.commands import reference_run, single_run
from aiperf.commands.doctor import doctor
from aiperf.commands.reference_run import config_like, differences_text
from aiperf.commands.run import run
from aiperf.commands.run_options import take_request, typed_words
from aiperf.config import Config, with_overrides
from aiperf.journal import events
from aiperf.journal.events import Opened, Origin
from aiperf.journal.file import chained, read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from aiperf.wire.trial import Trial
from nas.graph import Graph
from nas.morphisms import EnlargeKernel
from nas.record import graph_to_json
from nas.seeds import residual
from tests import journals
from tests.aiperf.commands.typed import Typed
from tests.aiperf.data.sets import write_idx
from tests.analysis.packages import make
from tests.house.tree import ROOT
from tests.odd_inputs.cases import CONTENTS
from tests.tables import ComesTo

Make = Callable[[RunFiles], None]
GOING_ON = [line for line in journals.told() if not isinstance(line[1], (events.LegEnded, events.Tested))]


@pytest.mark.parametrize(("tested", "code"), [(True, 0), (False, 3)])
def test_a_run_without_a_tested_network_has_failed(
    tested: bool, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for line in journals.told() if tested or not isinstance(line[1], events.Tested)]
    files = journals.write_run(tmp_path / "run", lines)
    assert single_run._result(replay(read_journal(files.journal)), files) == code
    told = capsys.readouterr()
    resume = f"`aiperf-hpc resume {files.directory}` continues it and tests the best network"
    no_result = f"NO RESULT: no network was tested: the test did not finish; {resume}"
    assert told.err == (f"Next: aiperf-hpc report {files.directory}\n" if tested else "")
    assert told.out.count(no_result) == (not tested)


def test_the_next_command_has_the_options_of_this_one() -> None:
    """As they were typed: a path stays relative, a number has no ".0"."""
    words = ("--preset", "v1.0.toml", "--minutes", "5", "--data", "texts", "--set", "a=1", "--set", "b=2.0")
    words += ("--directory", "one", "--devices", "2", "--spread")
    context = doctor.make_context("aiperf-hpc doctor", [*words, "--wait-seconds", "300"])
    assert typed_words(context, {*context.params} - {"wait_seconds"}) == words


def test_a_preset_for_a_longer_text_fits_a_short_file(
    tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    def fitted(num_bytes: int, *words: str) -> tuple[int, int, int]:
        """The window, and the examples to train and to validate on."""
        (tmp_path / "text").write_bytes(bytes(num_bytes))
        context = run.make_context("run", ["--preset", "text", "--data", str(tmp_path / "text"), *words])
        data = take_request(dict(context.params)).config().data
        return data.size, data.training_examples, data.validation_examples

    comes_to_what_was_read("short_texts.txt", {"fitted": fitted})


@pytest.mark.parametrize(
    ("content", "seconds"),
    [
        (json.dumps({"pid": 1, "host": "elsewhere"}), 32.0),
        (json.dumps({"pid": 1, "host": os.uname().nodename}), 0.0),
        ("", 0.0),
        *((content.decode("utf-8", "replace"), 0.0) for content in CONTENTS.values() if b"{" not in content),
    ],
)
def test_a_lock_of_another_host_ages_by_the_clock_of_the_file_server(
    content: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record lock says whether a process of this host lives. What is no lock of ours holds nobody up."""
    files, slept, now = RunFiles(tmp_path), [0.0], time.time()
    files.journal.touch()
    files.lock.write_text(content)
    monkeypatch.setattr("time.time", lambda: now + 3600)
    monkeypatch.setattr("time.sleep", slept.append)
    single_run._let_the_lock_age(files)
    assert sum(slept) == pytest.approx(seconds, abs=1.0)
    files.lock.unlink()
    files.lock.mkdir()  # which `JournalWriter.resume` refuses
    single_run._let_the_lock_age(files)
    assert sum(slept) == pytest.approx(seconds, abs=1.0)


def test_a_folder_of_images_is_found_again_from_everywhere(here: Path) -> None:
    """Told relative to where the run began; it may be resumed elsewhere, and nothing in it be edited."""
    context = run.make_context("run", ["--preset", "ranked", "--data", "images"])
    assert take_request(dict(context.params)).config().data.path == str(here / "images")


def test_images_of_ones_own_need_one_option_and_contradict_what_is_stated(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx(tmp_path)
    own = ("run", "--data", tmp_path, "--dry-run", "--device", "cpu", "--examples-per-second", 100)
    assert typed(*own) == 0
    assert "idx, 4 classes, 12 x 12, 1 channel; 30 training, 10 validation, 20 test images" in typed.out
    assert typed.err == (
        f"aiperf-hpc: found in {tmp_path}: 4 classes of grey images, 12 px; name idx, "
        "validation_examples 10, epochs [60, 120, 240]\n"
    )
    found = {
        "data.name": "idx",
        "data.size": 12,
        "data.channels": 1,
        "data.classes": 4,
        "data.validation_examples": 10,
    }
    monkeypatch.setattr("aiperf.ranks.process.infer_data", lambda folder, stated: found)
    assert typed(*own, "--set", "data.classes=7", "--set", "data.channels=3") == 1
    assert "set data.channels = 1. Also: " in typed.err
    assert "set data.classes = 4" in typed.err


def test_a_rehearsal_of_a_run_that_is_there_trains_nothing(typed: Typed, tmp_path: Path) -> None:
    """Somebody adds --dry-run to the command of a job, which has --resume."""
    files = journals.write_run(tmp_path / "run", GOING_ON)
    before = files.journal.read_bytes()
    again = ("run", "--directory", files.directory, "--resume", "--dry-run")
    assert typed(*again, "--device", "cpu", "--examples-per-second", 100) == 0
    assert "trials per group" in typed.out
    assert files.journal.read_bytes() == before


def of_another_parent(trial: Trial) -> Trial:
    return replace(trial, parent=trial.number)


def by_another_morphism(trial: Trial) -> Trial:
    return replace(trial, morphisms=(EnlargeKernel("nowhere", 5),))


def with_children(change: Callable[[Trial], Trial]) -> list[journals.Timed]:
    """The lines of a run in progress, where each trial that has a parent is another one."""

    def other(event: events.Event) -> events.Event:
        if isinstance(event, events.Dispatched) and event.trial.parent:
            return replace(event, trial=change(event.trial))
        return event

    return [(t, other(event)) for t, event in GOING_ON]


def with_a_line_twice() -> list[journals.Timed]:
    place = next(place for place, (_, event) in enumerate(GOING_ON) if isinstance(event, events.Closed))
    return [*GOING_ON[:place], GOING_ON[place], *GOING_ON[place:]]


def past(lines: list[journals.Timed]) -> Make:
    """Makes one whose chain was computed again."""

    def make(files: RunFiles) -> None:
        files.directory.mkdir()
        files.journal.write_text("".join(f"{line}\n" for line in chained(lines)))

    return make


def run_of(*without: type[events.Event], first: int | None = None, edited: bool = False) -> Make:
    """Makes a run whose journal lacks some lines, has only this many, or was edited."""
    lines = [line for line in journals.told() if not isinstance(line[1], without)][:first]

    def make(files: RunFiles) -> None:
        journals.write_run(files.directory, lines)
        if edited:
            files.journal.write_text(files.journal.read_text().replace('"correct":', '"correct":1', 1))

    return make


def in_progress(files: RunFiles) -> None:
    run_of(first=20)(files)
    files.lock.write_text('{"pid": 1, "host": "another"}')
    ahead = files.lock.stat().st_mtime + 60  # it grows
    os.utime(files.journal, (ahead, ahead))


def killed_with_nothing(files: RunFiles) -> None:
    """Its time was over, and nothing is validated."""
    lines = journals.told()
    place = next(place for place, (_, event) in enumerate(lines) if isinstance(event, events.Closed))
    lost = [(99.0, events.GroupLost(group, "it said nothing")) for group in (0, 1)]
    journals.write_run(files.directory, [*lines[:place], *lost])


def without_a_line_of_private(files: RunFiles) -> None:
    """The journal hides where the data is, and the line that says it was lost."""
    lines = journals.told()[:20]
    (t, opened), *others = lines
    assert isinstance(opened, events.Opened)
    config = replace(opened.config, data=replace(opened.config.data, name="imagefolder", path="/a"))
    files.directory.mkdir()
    journals.write_hidden(files, [(t, replace(opened, config=config)), *others], "5" * 64)
    files.private.write_text(f"{files.private.read_text().splitlines()[0]}\n")


def a_pipe(files: RunFiles) -> None:
    files.directory.mkdir()
    os.mkfifo(files.journal)


def a_dangling_link(files: RunFiles) -> None:
    files.directory.mkdir()
    files.journal.symlink_to("nowhere")


WORK = (events.Dispatched, events.Began, events.Stepped, events.Closed, events.Ended, events.Tested)


def test_both_ways_to_go_on_answer_alike_and_take_no_other_options(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """The exit code, and what is said of the run."""
    monkeypatch.setattr(single_run, "seconds_until_dead", lambda path, beside: 0.0)  # only one waits for it
    numbers = count()

    def journal(files: RunFiles) -> bytes:
        return files.journal.read_bytes() if files.journal.is_file() else b""

    def resumed(make: Make, options: str = "") -> tuple[int, str]:
        files = RunFiles(tmp_path / str(next(numbers)) / "run")
        files.directory.parent.mkdir()
        make(files)
        run, before = str(files.directory), journal(files)
        code = typed("run", "--resume", "--directory", run, *options.replace("RUN", run).split())
        answer = code, typed.out, typed.err
        if not options:
            assert (typed("resume", run), typed.out, typed.err) == answer
        assert journal(files) == before, "it is as it was"
        return code, re.sub("keys: .*", "keys: …", answer[2].replace(run, "RUN"))

    comes_to_what_was_read("resumed.txt", {**vars(events), **globals(), "resumed": resumed})


SCENE = journals.Scene()


def run_in(directory: Path, **changes: Any) -> RunFiles:
    """A simulated run whose first line is another."""
    (t, opened), *others = journals.told(SCENE)
    assert isinstance(opened, Opened)
    return journals.write_run(directory, [(t, replace(opened, **changes)), *others])


def test_all_settings_are_those_of_the_run(tmp_path: Path) -> None:
    files = run_in(tmp_path / "run")
    run, package = files.directory, make(tmp_path / "package.tar.gz", files)
    assert config_like(run, {}) == config_like(package, {}) == (SCENE.config, [])
    rest = "data, devices and ranks are those of this machine"
    assert differences_text(run, []) == f"like {run}: same configuration; {rest}"


def test_another_program_search_and_library_is_said(tmp_path: Path) -> None:
    config = with_overrides(SCENE.config, {"search.name": "foresight"})
    was = {"config": config, "program": "0.0.9", "search": 0, "libraries": {"numpy": "0.1"}}
    run = run_in(tmp_path / "run", origin=Origin.PRETENDED, **was)
    differences, here = config_like(run.directory, {})[1], reference_run.libraries(config)["numpy"]
    assert differences == [
        "that run was pretended, and this one trains",
        f"the program is {reference_run.__version__}, there 0.0.9",
        "proposals are those of version 1 of the search, there 0",
        f"numpy is {here}, there 0.1",
    ]


THINNER = residual(widths=(4, 8, 12))
GONE = replace(SCENE.config, search=replace(SCENE.config.search, name="gone"))
FROM_FILE = with_overrides(SCENE.config, {"seed_architecture": "seed.json"})


def test_settings_that_differ_are_said_and_what_cannot_be_the_same_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """A seed file must be here and the same, the search installed, and the job long enough."""

    def like(
        given: dict[str, Any],
        config: Config = SCENE.config,
        seed: Graph | None = None,
        job_seconds: float | None = None,
    ) -> list[str]:
        """The settings that differ from those of a run with this configuration."""
        if seed is not None:
            Path("seed.json").write_text(json.dumps(graph_to_json(seed)), encoding="utf-8")
        shutil.rmtree("run", ignore_errors=True)
        recorded = {"seed_graph": graph_to_json(THINNER)} if config is FROM_FILE else {}
        run_in(Path("run"), config=config, **recorded)
        monkeypatch.setattr(reference_run, "job_seconds_left", lambda environment, now: job_seconds)
        found, differences = config_like(Path("run"), given)
        assert found == with_overrides(config, given)
        return differences

    comes_to_what_was_read("like.txt", globals() | {"like": like})


def test_a_run_of_text_is_rehearsed_as_it_was(typed: Typed) -> None:
    words = ("--like", ROOT / "tests/recorded/language", "--dry-run", "--examples-per-second", 500)
    assert typed("run", *words, "--device", "cpu") == 0, typed.err
    assert "language: proposals are those of version 3 of the search, there 2; data, devices" in typed.err
    assert "data ..................... text, windows of 256 bytes: " in typed.out
