"""The way in: what a command imports, and what is answered before there is a command."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.house.tree import ROOT

INTERRUPTED = """
import os, signal, sys

class AsItImports:
    def find_spec(self, name, path=None, target=None):
        if name == "aiperf.commands.main":
            os.kill(os.getpid(), signal.SIGINT)

from aiperf.start import main
sys.meta_path.insert(0, AsItImports())
sys.argv[1:] = ["run"]
sys.exit(main())
"""
# One process for all lines, from the lightest to the heaviest: what one imports the next ones have.
IMPORTED = """
import io, json, sys
from contextlib import redirect_stdout
from importlib import import_module
from aiperf.start import main
HEAVY = (
    "torch numpy numpy.ma numpy.random multiprocessing matplotlib jinja2 rich simpy cryptography jsonschema "
    "prometheus_client"
)
OURS = ("aiperf", "nas", "analysis", "launch")
answers = []
for line in json.loads(sys.argv[1]):
    verb, *words = line.split()
    sys.argv = ["aiperf-hpc", *words]
    with redirect_stdout(io.StringIO()):
        code = main() if verb == "aiperf-hpc" else import_module(*words) and 0
    heavy = {*HEAVY.split()} & {*sys.modules}
    ours = sum(name.partition(".")[0] in OURS for name in sys.modules)
    answers.append([line, code, sorted(heavy), ours])
print(json.dumps(answers))
"""
RUN = "tests/recorded/alone"


def test_ctrl_c_during_the_imports_is_one_line() -> None:
    answer = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "aiperf-hpc: interrupted\n")


def test_a_command_imports_what_it_uses(tmp_path: Path) -> None:
    """An answer in 0.3 s: numpy where a journal is read into its arrays, without its generators; torch in no
    master, whose start it would make a second longer and whose node some hundred megabytes fuller. What is
    not imported need not be installed: reading, counting and validating need no extra, and a simulation no
    torch. The numbers limit the modules of this program: to define a data class takes tenths of a
    millisecond."""
    predict = f"aiperf-hpc simulate --predict {RUN} --directory {tmp_path}"
    expected: list[tuple[str, list[str], int]] = [
        ("aiperf-hpc --help", [], 12),
        ("aiperf-hpc --version", [], 12),
        ("aiperf-hpc run --help", [], 68),
        ("aiperf-hpc preset digits", [], 68),
        ("aiperf-hpc launch slurm --help", [], 74),
        ("import launch.script", [], 74),
        (f"aiperf-hpc list {RUN}", ["numpy"], 200),
        (f"aiperf-hpc status {RUN}", ["numpy"], 220),
        (f"aiperf-hpc score {RUN}", ["numpy"], 220),
        ("aiperf-hpc count --seed resnet18", ["multiprocessing", "numpy"], 230),
        (f"aiperf-hpc validate {RUN}", ["multiprocessing", "numpy"], 235),
        ("import aiperf.commands.single_run", ["multiprocessing", "numpy", "rich"], 270),
    ]
    if find_spec("simpy"):  # an extra, which the pure environments lack
        heavy = ["multiprocessing", "numpy", "numpy.ma", "rich", "simpy"]
        expected.append((predict, heavy, 285))
    lines = json.dumps([line for line, _, _ in expected])
    answer = subprocess.run(
        [sys.executable, "-c", IMPORTED, lines], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert answer.stderr.startswith(f"Next: aiperf-hpc report {RUN}\nNext: aiperf-hpc package {RUN}\n")
    found = json.loads(answer.stdout)
    assert [each[:3] for each in found] == [[line, 0, heavy] for line, heavy, _ in expected]
    assert [(line, num) for (line, *_, num), (_, _, most) in zip(found, expected) if num > most] == [], found
