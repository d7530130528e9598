"""What is written for NNI, and the world that its trials come to; a real NNI is in tests/nni."""

from __future__ import annotations

import sys
from pathlib import Path

import aiperf.on_nni
from aiperf.commands.options import Asked
from aiperf.config import load_preset, with_overrides
from aiperf.on_nni.description import description

HERE = Path(aiperf.on_nni.__file__).parent


def test_the_description_whole(tmp_path: Path) -> None:
    config = with_overrides(load_preset("digits"), {"limits.max_trials": 8})
    asked = Asked(
        "digits", 5.0, None, ("training.epochs=[1]",), {"limits.max_trials": 8, "data.path": "/a b"}
    )
    assert (
        description(config, asked.words(), tmp_path / "run", 2)
        == f"""\
# For NNI 3.0, its last release: pip install 'aiperf-hpc[nni]', then nnictl create --config THIS_FILE
# The run is written to {tmp_path}/run; `aiperf-hpc score` shows its result, `nnictl stop` ends it.
experimentName: "aiperf-hpc digits"
searchSpace:
  search:
    _type: "choice"
    _value: ["evolution"]
trialCommand: "{sys.executable} -m aiperf nni trial"
trialCodeDirectory: "{HERE}"
trialConcurrency: 2
maxTrialNumber: 8
tuner:
  className: "aiperf.on_nni.tuner.SearchTuner"
  codeDirectory: "{HERE}"
  classArgs:
    command: ["--preset", "digits", "--minutes", "5.0", "--set", "training.epochs=[1]", \
"--set", "limits.max_trials=8", "--set", "data.path=\\"/a b\\"", "--directory", "{tmp_path}/run"]
    folder: "{Path.cwd()}"
trainingService:
  platform: "local"
"""
    )


def test_what_was_asked_is_said_again_without_loss() -> None:
    asked = Asked(
        "digits", None, 2.0, ("training.decay=linear",), {"search.name": "random", "random_seed": 3}
    )
    assert asked.words() == [
        *("--preset", "digits", "--hours", "2.0", "--set", "training.decay=linear"),
        *("--set", 'search.name="random"', "--set", "random_seed=3"),
    ]
