"""A submission folder of MLPerf Inference, by the rules of its submission checker.

The checker itself is in no package registry; docs/beyond.md says how to start it on a folder.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from hashlib import sha256
from operator import getitem
from pathlib import Path

import pytest

from aiperf.commands.main import main
from aiperf.journal import events
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from aiperf.scenarios.exchange import PERFORMANCE
from aiperf.score.lineage import rebuild
from analysis.submissions.inference_folder import LEAST, SCENARIOS
from nas.graph import INPUT, Graph, Node
from nas.layers import BatchNorm, Conv2d, Dense, GlobalPool, ReLU
from nas.ops import TENSOR_OPS
from nas.record import graph_to_json
from tests.aiperf.commands.typed import Typed
from tests.aiperf.inference.kept_run import kept_run
from tests.aiperf.rules.forged import said
from tests.house.tree import ROOT
from tests.journals import IMAGENET, Machine, Scene, told, write_run
from tests.tables import ComesTo

pytest.importorskip("mlperf_loadgen", reason="LoadGen has no wheel for this Python or processor")

# What the checker's constants.py of v6.1 requires (mlcommons/inference b66003e): fields of a system that are
# asked for, that may be empty, and all others; fields of measurements.json; files of a scenario; the size of
# a truncated log.
ASKED, MAY_BE_EMPTY, OTHERS, MEASUREMENTS, OF_SCENARIO = (
    line.partition(": ")[2].split()
    for line in Path(__file__).with_name("checker_fields.txt").read_text(encoding="utf-8").splitlines()
)
FIELDS = (*ASKED, *MAY_BE_EMPTY, *OTHERS)
TRUNCATED_BYTES = 10 * 1024
LOADGEN = {"single-stream": "SingleStream", "multi-stream": "MultiStream", "offline": "Offline"}
SYSTEM, RESULTS = "open/Example_University/systems/Testbed.json", "open/Example_University/results/Testbed"
ENTRY = ("--organization", "Example_University", "--platform", "Testbed", "--status", "research")


def answered(*words: object) -> int:
    """The exit code of a command, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["aiperf-hpc", *map(str, words)])
        return main()


def tiny(side: int, channels: int) -> Graph:
    """A network of few operations that can grow."""
    nodes = (
        Node("conv", Conv2d(4, 1, side // 8), (INPUT,)),
        Node("norm", BatchNorm(), ("conv",)),
        Node("relu", ReLU(), ("norm",)),
        Node("pool", GlobalPool(), ("relu",)),
        Node("dense", Dense(1000), ("pool",)),
    )
    return Graph((channels, side, side), nodes)


SMALL, TINY = tiny(8, 1), tiny(224, 3)
DEVICE_OPS = 5e8
"""Speed of a device of the simulated run: some trials of such networks within its hour."""


SAMPLES = 50_000
"""What ImageNet has to test."""


@pytest.fixture(scope="module", autouse=True)
def one_second() -> Iterator[None]:
    """MLPerf's tests take 600 s; here one that takes 1 s is long enough, and nothing else is made easier."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LEAST[PERFORMANCE], "effective_min_duration_ms", 1000)
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    """ImageNet is not to be had in a test. LoadGen really tests a tiny network, on as many generated images,
    for a second and in one pass over all. What it found is then put next to the journal of a simulated run on
    ImageNet, whose networks are as tiny, and which gets the same test result."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "seed.json").write_text(json.dumps(graph_to_json(SMALL)))
    data = {"name": "synthetic", "size": 8, "classes": 1000, "training_examples": 200}
    changes = {f"data.{key}": value for key, value in (data | {"test_examples": SAMPLES}).items()}
    changes |= {"seed_architecture": str(folder / "seed.json"), "training.format": "fp32"}
    small, number = kept_run(
        folder / "small", Scene(groups=1, minutes=0.1, max_trials=1, changes=(*changes.items(),))
    )
    for name in SCENARIOS:
        words = ("--scenario", name, "--seconds", "1", "--accuracy", "--device", "cpu")
        assert answered("infer", small.directory, *words) == 0
    recorded = replay(read_journal(small.journal)).tested
    assert recorded is not None
    (folder / "tiny.json").write_text(json.dumps(graph_to_json(TINY)))
    config = replace(IMAGENET, seed_architecture=str(folder / "tiny.json"))
    plain = write_run(folder / "plain", config, Machine(1, 8, device_ops_per_second=DEVICE_OPS))
    lines = [(line.t, line.event) for line in read_journal(plain.journal)]
    tested = {"tally": recorded.tally, "top5": None}
    files = write_run(folder / "imagenet", said(events.Tested, **tested)(lines))
    run = replay(read_journal(files.journal))
    assert run.tested is not None
    operations = rebuild(run, run.tested.trial).cost.evaluate.price(TENSOR_OPS)
    for name in SCENARIOS:
        shutil.copytree(small.inference_logs(number, name), files.inference_logs(run.tested.trial, name))
        found = json.loads(small.inference(number, name).read_text())
        found |= {"begin_chain": run.begin_chain, "run_id": run.opened.run_id, "trial": run.tested.trial}
        found["measured"]["tensor_ops"] = operations
        files.inference(run.tested.trial, name).write_text(json.dumps(found))
    return files


@pytest.fixture
def system(tmp_path: Path) -> Path:
    path = tmp_path / "system.json"
    path.write_text(json.dumps(dict.fromkeys(ASKED, "N/A")))
    return path


@pytest.fixture
def export(typed: Typed, system: Path, tmp_path: Path) -> Callable[..., int]:
    """Exports a run into tmp_path/submission, unless further words say otherwise."""
    words = ("--mlperf-inference", *ENTRY, "--system", system, "-o", tmp_path / "submission")
    return lambda directory, *more: typed("export", directory, *words, *more)


def breaches(folder: Path) -> list[str]:
    """Breaches of the checker's rules on the form of a folder: files, fields, sizes, names."""
    top = f"{RESULTS}/aiperf-hpc"
    wanted = [f"{top}/{scenario}/{name}" for scenario in LOADGEN.values() for name in OF_SCENARIO]
    wanted += [SYSTEM, "open/Example_University/model_mapping.json", "open/Example_University/src"]
    if missing := [name for name in wanted if not (folder / name).exists()]:
        return missing
    found = [path for path in folder.rglob("*") if re.search(r"^\.| ", path.name)]
    found += [path for path in folder.rglob("*") if path.is_file() and not path.stat().st_size]
    system = json.loads((folder / SYSTEM).read_text())
    lacking = [name for name in FIELDS if not (name in system and (system[name] or name in MAY_BE_EMPTY))]
    mapping = json.loads((folder / "open/Example_University/model_mapping.json").read_text())
    lacking += [] if mapping == {"aiperf-hpc": "resnet"} else ["model_mapping"]
    for scenario in LOADGEN.values():
        where = folder / top / scenario
        measurements = json.loads((where / "measurements.json").read_text())
        lacking += [name for name in MEASUREMENTS if not measurements.get(name)]
        text = (where / "accuracy/accuracy.txt").read_text()
        patterns = (r"^accuracy=[\d.]+%, good=\d+, total=50000$", r"^hash=\w+$")
        lacking += [pattern for pattern in patterns if not re.search(pattern, text, re.MULTILINE)]
        if (where / "accuracy/mlperf_log_accuracy.json").stat().st_size > TRUNCATED_BYTES:
            lacking.append("truncated log")
    return [*map(str, found), *lacking]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_its_form_breaches_no_rule_of_the_checker(
    export: Callable[..., int], measured: RunFiles, tmp_path: Path
) -> None:
    assert export(measured.directory) == 0
    exported = tmp_path / "submission"
    assert breaches(exported) == []
    files = {str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_file()}
    number = next(measured.inference_directory.glob("*-offline.json")).name.partition("-")[0]
    assert len(files) == 3 * len(OF_SCENARIO) + 3
    assert f"open/Example_University/src/aiperf-hpc/trial-{number}.json" in files
    for name, loadgen in LOADGEN.items():
        whole = (
            measured.inference_logs(int(number), name) / "accuracy/mlperf_log_accuracy.json"
        ).read_bytes()
        part = exported / RESULTS / "aiperf-hpc" / loadgen / "accuracy"
        start, _, end = (part / "mlperf_log_accuracy.json").read_bytes().partition(b"\n\n...\n\n")
        assert whole.startswith(start)
        assert whole.endswith(end)
        assert f"hash={sha256(whole).hexdigest()}" in (part / "accuracy.txt").read_text().splitlines()


def change(key: str, value: str, test: str = "performance") -> Callable[[RunFiles, int], None]:
    def changed(files: RunFiles, number: int) -> None:
        log = files.inference_logs(number, "offline") / test / "mlperf_log_detail.txt"
        text, times = re.subn(rf'(?<="key": "{key}", "value": )[^,]+', value, log.read_text())
        assert times == 1
        log.write_text(text)

    return changed


def written(name: str, text: str) -> Callable[[RunFiles, int], object]:
    """Another content of a file of LoadGen."""
    return lambda files, number: (files.inference_logs(number, "offline") / name).write_text(text)


def result(name: str, value: object, *keys: str) -> Callable[[RunFiles, int], None]:
    """Another value of what was measured in a scenario."""

    def changed(files: RunFiles, number: int) -> None:
        found = json.loads(files.inference(number, name).read_text())
        *outer, last = ("measured", *keys)
        reduce(getitem, outer, found)[last] = value
        files.inference(number, name).write_text(json.dumps(found))

    return changed


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_results_and_descriptions_that_are_no_submission_are_refused(
    measured: RunFiles,
    export: Callable[..., int],
    typed: Typed,
    system: Path,
    tmp_path: Path,
    folders: Iterator[Path],
    comes_to_what_was_read: ComesTo,
) -> None:
    number = int(next(measured.inference_directory.glob("*-offline.json")).name.partition("-")[0])

    def refused(directory: Path) -> str:
        assert export(directory) == 1
        assert typed.err.count("\n") == 1
        text = re.sub(r"(?<=[ `])/\S*/", "", typed.err.strip().partition("; known")[0])
        return re.sub(r"infer \S+ \d+|(?<=measured )'[^']+'", "…", text).replace(f"{number}-", "")

    def changed(change: Callable[[RunFiles, int], object]) -> str:
        shutil.copytree(measured.directory, (files := RunFiles(next(folders))).directory)
        change(files, number)
        text = refused(files.directory)
        assert not (tmp_path / "submission").exists()
        return text

    def described(given: Mapping[str, str]) -> str:
        honest = system.read_text()
        system.write_text(json.dumps(given))
        text = refused(measured.directory)
        system.write_text(honest)
        return text

    def into_a_folder_with_a_file() -> str:
        (tmp_path / "submission").mkdir()
        (tmp_path / "submission" / "file").touch()
        return refused(measured.directory)

    names = {
        "changed": changed,
        "described": described,
        "into_a_folder_with_a_file": into_a_folder_with_a_file,
    }
    comes_to_what_was_read("refused_results.txt", {**globals(), **names})


def test_other_runs_are_refused_and_options_that_cannot_be(
    export: Callable[..., int], typed: Typed, tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    digits = write_run(tmp_path / "digits", told(Scene())).directory

    def answer(directory: Path, *words: str) -> tuple[int, str]:
        code = export(directory, *words)
        return code, re.sub(r" /\S*/", " ", typed.err.splitlines()[-1])

    def without(*words: str) -> tuple[int, str]:
        """Without a description or a folder."""
        return typed("export", digits, *words), typed.err.splitlines()[-1]

    language = ROOT / "tests" / "recorded" / "language"
    names = {"answer": answer, "without": without, "digits": digits, "language": language, "ENTRY": ENTRY}
    comes_to_what_was_read("refused_exports.txt", names)
