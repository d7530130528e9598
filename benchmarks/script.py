"""What several scripts of this folder need: rows of a table, runs and other processes, steps in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from analysis.readings.judgement import read_run

LEAST_TURNS = 7
"""Fewest times that a step is timed: a median of fewer is not stable."""
ONE_THREAD: Mapping[str, str] = {**os.environ, "OMP_NUM_THREADS": "1"}
"""An environment in which other programs on the machine disturb a measurement least."""


def row(*cells: object) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(map(str, cells))} |"


def head(*columns: object) -> str:
    """The first two rows: the columns' names, and that all but the first are aligned right."""
    return f"{row(*columns)}\n|-|{'-:|' * (len(columns) - 1)}"


def made_run(directory: Path, *words: object) -> Replay:
    """A run of one thread with these options, read when it has ended."""
    options = ["--directory", directory, "--device", "cpu", "--devices", "1", *words]
    command = [sys.executable, "-m", "aiperf", "run", *map(str, options)]
    subprocess.run(command, env=ONE_THREAD, check=True, stdout=subprocess.DEVNULL)
    return read_run(RunFiles(directory))


def answer_of(script: Path, *words: object, environment: Mapping[str, str] = ONE_THREAD) -> Any:
    """The JSON that a script prints; it is run by itself, because it imports nothing of this program."""
    command = [sys.executable, str(script), *map(str, words)]
    answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(answer.stdout)


def in_turn(
    steps: Sequence[Callable[[], None]], seconds: float, once: Callable[[Callable[[], None]], float]
) -> list[list[float]]:
    """The seconds of each step, by `once`, after two untimed ones of each. They are made in turn, so that a
    machine that slows down slows all of them."""
    for _ in range(2):
        for step in steps:
            step()
    times: list[list[float]] = [[] for _ in steps]
    until = perf_counter() + seconds
    while len(times[0]) < LEAST_TURNS or perf_counter() < until:
        for step, into in zip(steps, times):
            into.append(once(step))
    return times


def torchrun_variables(size: int, name: str, port: int = 0) -> list[dict[str, str]]:
    """The variables that torchrun sets for each rank of a job called `name`, on one host."""
    shared = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": name}
    each = [{**shared, "RANK": rank, "LOCAL_RANK": rank} for rank in range(size)]
    return [{variable: str(value) for variable, value in one.items()} for one in each]
