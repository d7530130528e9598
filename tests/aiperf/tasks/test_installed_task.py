"""A task of another package, tests/plugins/spectra, which no line of the program knows: a run of it is
configured, simulated, trained, judged, reported, counted and exported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.config import Config, from_toml, load_preset, parse_setting, to_toml, with_overrides
from aiperf.errors import ConfigError, JournalError
from aiperf.journal.file import read_journal
from aiperf.pretending.rank_report import pretended_manifest
from aiperf.rules.eligibility import foreseen
from aiperf.rules.rule import Kind
from aiperf.rules.verdict import Answer
from aiperf.run.checks import starting_graph
from aiperf.tasks import registry
from aiperf.tasks.data import data_names, installed
from aiperf.tasks.registry import task_of, task_of_graph
from aiperf.tasks.task import Task
from analysis.exports.counts import count_text
from analysis.exports.summary import summary_text
from analysis.readings.judgement import examine
from nas.head import Classes
from nas.record import encode, graph_from_json
from nas.seeds import residual
from tests.aiperf.simulation.simulated import Played, SimulatedMachine, steady
from tests.house.tree import ROOT
from tests.mpi.jobs import QUICK
from tests.nas.search.test_installed_searches import write_distribution

PLUGINS = ROOT / "tests" / "plugins"
PRESET = str(PLUGINS / "spectra" / "spectra.toml")
CACHES = (installed, registry._installed_task, registry._task_of_head)
LACKS = "'spectra' makes a manifest without training_examples, validation_examples, test_examples; correct"
OPERATIONS = "Operations for one spectrogram of 48 bins × 32 frames, 4 sounds"
OWN = "digits, idx, cifar10, imagefolder, packed, synthetic, text, synthetic-text"


def forget() -> None:
    for cached in CACHES:
        cached.cache_clear()


@pytest.fixture(autouse=True)
def no_task_is_known_yet() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PLUGINS)


@pytest.mark.contract
def test_its_data_have_a_key_of_their_own_and_its_runs_are_never_ranked(plugins: None) -> None:
    config = with_overrides(load_preset(PRESET), dict([parse_setting("data.bins=40")]))
    assert ", ".join(data_names()).startswith(f"{OWN}, ")
    assert "spectra" in data_names()
    assert from_toml(to_toml(config), where="it") == config
    assert encode(config)["data"]["bins"] == 40
    graph = starting_graph(config)
    assert (graph.input, graph.classes) == ((1, 40, 32), 4)
    assert task_of_graph(graph) is task_of(config.data)
    assert foreseen(config, {}) == [
        "runs of the task spectra are never ranked",
        "limits.minutes is 0.5; at least 60 are required",
    ]
    with pytest.raises(ConfigError, match=r"^data.classes is 5; spectrograms have 4$"):
        with_overrides(config, {"data.classes": 5})
    with pytest.raises(ConfigError, match=r"^unknown key data\.bins; known: name, "):
        with_overrides(config, {"data.name": "synthetic"})


@pytest.mark.contract
def test_it_is_simulated_judged_shown_and_refused_without_its_package(
    plugins: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = with_overrides(load_preset(PRESET), {"limits.minutes": 3.0})
    run = examine(Played(tmp_path / "run", SimulatedMachine(1, 2), steady(), wanted).files)
    assert run.verdict.answer is Answer.SIMULATED
    assert [finding.rule for finding in run.verdict.failed(Kind.INTEGRITY)] == ["code"], "that of `Played`"
    assert len(run.replay.trials) > 50
    assert run.replay.opened.libraries["aiperf-spectra"] == "1.0"
    shown = summary_text(run)
    assert "training spectrograms credited" in shown
    assert "spectrograms/s (a residual network of 16 to 64 channels" in shown
    assert count_text(starting_graph(wanted)).splitlines()[0] == OPERATIONS
    forget()
    seed = graph_from_json(run.replay.opened.seed_graph)
    assert task_of_graph(seed).name == "spectra", "by its head, before a configuration has named its data"
    assert task_of_graph(replace(seed, head=Classes())) is registry.IMAGES
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(PLUGINS)])
    installed.cache_clear()
    gone = rf"of a task that is not installed: data.name is 'spectra'; it must be one of {OWN}; install its "
    with pytest.raises(JournalError, match=gone):
        list(read_journal(run.files.journal))


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ("spectra = os:sep", "'spectra' stands for '/', which is no task with a `data_class` of this name"),
        ("spectra = gone:TASK", "'spectra' cannot be imported from gone:TASK: No module named 'gone'"),
        ("other = os:sep", f"is 'spectra'; it must be one of {OWN}, other"),
    ],
)
def test_what_is_no_task_is_one_line(
    entries: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_distribution(tmp_path, "first", "1.0", f"[aiperf.tasks]\n{entries}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=rf"^.*{re.escape(told)}.*\Z"):  # `.` is no end of a line
        load_preset(PRESET)


def test_two_of_one_name_are_refused_and_an_own_name_stays_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_distribution(tmp_path, "first", "1.0", "[aiperf.tasks]\nspectra = os:sep\ndigits = os:sep")
    write_distribution(tmp_path, "second", "1.0", "[aiperf.tasks]\nspectra = os:linesep")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"two tasks are named 'spectra': os:\w+ and os:\w+; uninstall one"):
        load_preset(PRESET)
    assert task_of(load_preset("digits").data) is registry.IMAGES


@pytest.mark.contract
def test_what_a_task_lacks_is_one_line(plugins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_preset(PRESET)
    found = task_of(config.data)
    of_images = {"spectra-small": lambda input, classes: residual(input, classes, (4, 8))}
    unfinished = replace(found.data, foreseen=lambda data: data.manifest(""))
    cases: list[tuple[Task, Callable[[Config], object], str]] = [
        (replace(found, data=unfinished), pretended_manifest, LACKS),
        (replace(found, error_law="sounds"), pretended_manifest, "error_law is 'sounds'; it must be one of"),
        (replace(found, seeds=of_images), starting_graph, "the head Classes; the task spectra asks Sound"),
    ]
    for changed, ask, told in cases:
        monkeypatch.setattr(registry, "installed", lambda name, changed=changed: changed)
        registry._installed_task.cache_clear()
        with pytest.raises(ConfigError, match=told):
            ask(config)


def typed(*words: object) -> str:
    command = [sys.executable, "-m", "aiperf", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{QUICK}:{PLUGINS}", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=250, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_it_is_trained_reported_counted_and_exported(tmp_path: Path) -> None:
    run = tmp_path / "run"
    few = ["--max-trials", 3, "--device", "cpu", "--set", "training.epochs=[6]", "--set", "limits.minutes=0"]
    ran = typed("run", "--preset", PRESET, "--directory", run, *few)
    assert "VALID, class smoke" in ran
    assert "· ranked data: runs of the task spectra are never ranked" in ran
    result = json.loads(typed("score", run, "--json"))
    assert result["quality"]["error"] < 0.65, "less than the chance of 0.75"
    assert "passed  search              3 of 3 proposals reproduced" in typed("validate", run)
    typed("report", run)
    assert "training spectrograms" in (run / "report.html").read_text(encoding="utf-8")
    graph, network = tmp_path / "graph.json", tmp_path / "network.py"
    typed("graph", run, "0", "-o", graph)
    assert OPERATIONS in typed("count", "--seed", graph)
    typed("graph", run, "--torch", network)
    script = subprocess.run([sys.executable, network], capture_output=True, text=True, check=True)
    assert script.stdout.startswith("tensor([[")
    typed("graph", run, "--onnx", tmp_path / "network.onnx")
    assert '"spectrograms": "test", "samples_count": 240' in typed("export", run, "--mllog")
