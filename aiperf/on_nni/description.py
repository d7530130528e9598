"""The file that `nnictl create` reads: this program's search as NNI's tuner, its trainer as the trials."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiperf.config import Config

HEAD = """\
# For NNI 3.0, its last release: pip install '.[run,nni]', then nnictl create --config THIS_FILE
# The run is written to {directory}; `aiperf-hpc score` shows its result, `nnictl stop` ends it.
"""


def description(config: Config, command: Sequence[str], directory: Path, concurrency: int) -> str:
    """The file as YAML, in which JSON is a valid value. `command` are the arguments of `aiperf-hpc` that
    describe the run. `concurrency` is the number of trials that NNI runs at the same time; `directory` that
    of the run."""
    limit = config.limits.max_trials
    here = str(Path(__file__).parent)
    entries: dict[str, Any] = {
        "experimentName": f"aiperf-hpc {Path(config.preset).stem}",
        # NNI requires a search space; the real one is in the configuration of the run.
        "searchSpace": {"search": {"_type": "choice", "_value": [config.search.name]}},
        "trialCommand": f"{sys.executable} -m aiperf nni trial",
        "trialCodeDirectory": here,
        "trialConcurrency": concurrency,
        **({"maxTrialNumber": limit} if limit else {}),
        "tuner": {
            "className": "aiperf.on_nni.tuner.SearchTuner",
            "codeDirectory": here,
            "classArgs": {
                "command": [*command, "--directory", str(directory.absolute())],
                "folder": str(Path.cwd()),
            },
        },
        "trainingService": {"platform": "local"},
    }
    return HEAD.format(directory=directory.absolute()) + "\n".join(_lines(entries, "")) + "\n"


def _lines(entries: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Lines of YAML: a mapping in a line per key, any other value as JSON."""
    for key, value in entries.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {json.dumps(value)}"
