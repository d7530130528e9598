"""Wrong input is one line with the remedy, at once; it changes nothing."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from aiperf.errors import installation
from tests.aiperf.commands.typed import Typed
from tests.journals import Scene, told, write_run

WRONG_USE = [
    ("run --minuts 1", "no option --minuts; did you mean '--minutes'? Options: --preset"),
    ("--minutes 1", "no option --minutes before a command; for a run: aiperf-hpc run --minutes 1\n"),
    ("run --minutes", "requires an argument. Try 'aiperf-hpc run --help'.\n"),
    ("rum", "Commands: accept, compare, cost, count, "),
    ("launch slrum", "init-site, kubernetes, lsf, "),
    ("launch slurm --nodes 2 --seed resnet18", "it: aiperf-hpc launch slurm --nodes 2 -- --seed resnet18\n"),
    ("launch slurm -- --presett x", "--presett; did you mean '--preset'? Options: "),
    ("run --minutes nan", "'nan' is not a valid number"),
    ("run --minutes five", "'five' is not a valid number. Try 'aiperf-hpc run --help'.\n"),
    ("run --max-trials 1.5", "'1.5' is not a valid whole number. Try 'aiperf-hpc run --help'.\n"),
    ("run --minutes 5m", "'5m' has a unit; give the number alone: 5. Try"),
    ("run --device gpu", "not one of auto, cuda, npu, xpu, cpu: auto takes an available accelerator"),
    ("run --format bfloat16", "'bfloat16' is not one of auto, fp32, tf32, bf16, fp16: bfloat16 is bf16."),
    ("run --dry-run --examples-per-second inf", "inf is not in the range"),
    ("run --examples-per-second 9", "--examples-per-second is only for --dry-run"),
    ("run --like R --preset digits", "give --preset or --like, not both. Try 'aiperf-hpc run --help'.\n"),
    ("run --resume", "--resume needs the --directory of the run"),
    ("count --batch-size 7", "--batch-size is only for --roofline"),
    ("validate p.tar.gz", "p.tar.gz does not exist; give a run directory or a package\n"),
    ("validate R --data R", "--data is only for --reevaluate"),
    ("validate R --device npu", "--device is only for --reevaluate"),
    ("profile", "give a RUN, or --seed NAME"),
    ("profile R --seed resnet50", "give a RUN, or --seed NAME"),
    ("profile --seed resnet50 --sizes 0", "'0' is not a list of sizes"),
    ("profile --seed resnet50 --sizes 64,big", "'64,big' is not a list of sizes; give sizes such as 64,128"),
    ("profile --seed resnet50 --batch 1", "Invalid value for '--batch': 1 is not in the range x>=2"),
    ("profile --seed resnet50 --data here", "--data is only for RUN"),
    ("profile R --sizes 64", "--sizes is only for --seed"),
    ("profile --seed resnet50 --ceiling peak.json", "--ceiling is for one format: also give --format"),
    ("rank . --require-notary", "--require-notary is only for --notaries"),
    ("validate R --notaries absent.txt", "absent.txt: No such file or directory; give a file with one"),
    ("notary .", "Missing option '--key'. Try 'aiperf-hpc notary --help'.\n"),
    ("simulate", "give the sizes with --nodes"),
    ("simulate --nodes 4 --predict R", "--predict is only for a single run; --nodes is for a study"),
    ("simulate --predict R --hours 2", "--hours is only for a study with --nodes"),
    ("simulate --predict R --set ranked=false", "--set is only for a study with --nodes"),
    ("simulate --calibrate R --measure-master", "--measure-master is only for a study"),
    ("count R --seed resnet50", "--seed is only for an architecture without RUN"),
    ("export R --json", "no option --json here; `aiperf-hpc report RUN --json` writes the result as JSON\n"),
    ("graph R --onnx a -o b", "-o is for the JSON only. Try 'aiperf-hpc graph --help'."),
    ("export R", "--csv, --mllog, --openmetrics, --dawnbench or --mlperf-inference"),
    ("export R --csv --mllog", "--csv and --mllog are given; choose one"),
    ("report R --json --price 7/node-hour", "--price is only for the page, not for --json"),
    ("accept R --criteria absent.toml", "No such file"),
    ("accept R --criteria wrong.toml", "unknown key"),
    ("accept R --criteria .", "director"),
]
FAILS = [
    ("run --data '' --dry-run", "--data is empty; give a file or a folder, or omit the option\n"),
    ("run --pretend '' --dry-run", "no machine model ''; use h100, laptop, or a file NAME.toml\n"),
    ("doctor --pretend ''", "no machine model ''; use h100, laptop, or a file NAME.toml\n"),
    ("run --preset ''", "no preset ''; presets: digits"),
    ("run --preset imagenet", "no preset 'imagenet'; did you mean 'ranked'? presets: "),
    ("run --preset ranked --data /absent", "data.path is '/absent', which does not exist; give another"),
    ("run --preset text --data images", "images: holds images, not text; omit --preset"),
    ("run --preset own", "preset own is for your own images; give their folder with --data"),
    ("run --data nowhere", "nowhere is not a folder; give the folder of your images with --data"),
    ("run --minutes 1 --hours 1", "give only one"),
    ("run --set data.nmae=digits", "no key 'data.nmae'; did you mean 'data.name'? keys: preset"),
    ("run --set batchsize=8", "no key 'batchsize'; did you mean 'training.batch_size'? keys: preset"),
    ("run --preset part.toml", "part.toml: it lacks data, limits, preset; change a whole one: aiperf-hpc"),
    ("run --seed gpt-4x128", "seed_architecture: gpt-4x128 is for text, not for"),
    ("run --directory R", "resume it, or choose another"),
    ("run --like .", "--like .: no journal found; give a run directory or a package\n"),
    ("run --notary --pretend laptop", "a notary signs measured runs only; omit --notary, or set notary"),
    ("simulate --nodes 1 --set notary=true", "a notary signs measured runs only"),
    ("notary . --key absent.pem", "absent.pem: No such file or directory; give a private key file"),
    ("run --directory wrong.toml", "wrong.toml already exists; it is not a directory; choose another -"),
    ("resume nowhere", "no journal at nowhere/journal.jsonl"),
    ("count --seed gpt-4x128 --image 8", "this architecture reads text: use --positions"),
    ("count --seed resnet18 --positions 8", "this architecture reads images: use --image"),
    ("score nowhere", "nowhere does not exist; give a run directory or a package"),
    ("graph R 99", "this run has no trial 99; it has: 0 to "),
    ("count R --image 8", "the network of R has the input and the classes of its run"),
    ("score R/journal.jsonl", "R/journal.jsonl is one file of a run; give the run directory R\n"),
    ("score /dev/null", "/dev/null is neither a directory nor a file; give a run directory or a pack"),
    ("report Q", "Q does not exist; did you mean runs/Q?\n"),
    ("status Q", "no journal at Q/journal.jsonl; give a run directory, such as runs/Q\n"),
    ("score wrong.toml", "give a run directory or a package\n"),
    ("report .", "no journal at journal.jsonl; give a run directory, such as R\n"),
    ("serve .", "no journal at"),
    ("report R -o absent/r.html", "r.html cannot be written: No such file or directory; choose another"),
    ("rank nowhere", "nowhere is not a directory; give the directory that holds the packages"),
    ("rank .", "no package (*.tar.gz) in .; "),
    ("profile --seed resnet50 --batch 3 --devices 2", "cannot be shared evenly by 2 ranks"),
    ("simulate --nodes 4,x", "whole numbers"),
    ("simulate --nodes 4,4", "each size once"),
    ("simulate --nodes 0", "--nodes has 0"),
    ("simulate --nodes 4 --assume b200", "no machine model 'b200'; use h100"),
    ("simulate --nodes 4 --assume h100 --assume h100", "give one name or file"),
    ("simulate --nodes 4 --assume failures.hours=3", "unknown key failures.hours; known: speed."),
    ("simulate --nodes 4 --assume group.overlap=3", "it is a fraction"),
    ("simulate --nodes 4 --assume failures.node_hours=often", "failures.node_hours=often"),
    ("simulate --nodes 4 --write file.txt", "must end in .toml"),
    ("simulate --calibrate nowhere", "no journal"),
    ("simulate --predict nowhere", "no journal"),
]


RUNNING = (
    *("run --directory never", "run --dry-run", "resume never", "doctor", "peak", "infer never", "profile"),
    *("count --roofline", "validate . --reevaluate", "nni master --directory never", "nni trial"),
    *("data verify never", "data pack never packed", "data bench"),
)
"""Commands that need the extra `run`."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("refusals")
    for run in ("R", "runs/Q"):
        write_run(found / run, told(Scene(groups=1))).lock.touch()
    (found / "wrong.toml").write_text("speed = 1")
    (found / "part.toml").write_text("seed_architecture = 'resnet18'\n[training]\nbatch_size = 8")
    (found / "images" / "cats").mkdir(parents=True)
    (found / "images" / "cats" / "1.JPG").touch()
    return found


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("words", "code", "answer"),
    [*((words, 2, answer) for words, answer in WRONG_USE), *((words, 1, answer) for words, answer in FAILS)],
)
def test_wrong_input_is_one_line_with_the_remedy(
    words: str, code: int, answer: str, typed: Typed, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = sorted((path, path.stat().st_size) for path in folder.rglob("*"))
    assert typed(*shlex.split(words)) == code, typed.err
    assert typed.err.startswith("aiperf-hpc: ")
    assert answer in typed.err
    assert (typed.out, typed.err.count("\n")) == ("", 1)
    assert sorted((path, path.stat().st_size) for path in folder.rglob("*")) == before


@pytest.mark.parametrize("words", RUNNING)
def test_without_torch_what_trains_or_measures_says_which_extra_it_needs(
    words: str, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)  # it cannot be found
    assert typed(*words.split()) in (1, 2)  # 2: nothing was validated
    assert typed.err == f"aiperf-hpc: torch is not installed; remedy: {installation('run')}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("library", ["safetensors", "sklearn", "PIL", "psutil"])
def test_every_library_of_the_extra_is_looked_for(
    library: str, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, library, None)
    assert typed("run", "--directory", "never") == 1
    assert typed.err == f"aiperf-hpc: {library} is not installed; remedy: {installation('run')}\n"


@pytest.mark.parametrize("data", ["absent", "images"])
def test_data_are_judged_before_a_device_is_described(
    data: str, typed: Typed, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To describe a device takes seconds, because a process imports torch for it."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("aiperf.ranks.process.describe_device", pytest.fail)
    assert typed("run", "--preset", "text", "--data", data) == 1
    assert data in typed.err
