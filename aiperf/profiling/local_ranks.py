"""Starts the ranks of a profile on this host, one process each, and returns the record of the first one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiperf.errors import WorldError
from aiperf.profiling.work import ANSWER, LOG, WORK, ProfileWork
from aiperf.ranks.process import environment
from aiperf.wire.profile_records import Recorded
from nas.record import decode, encode

POLL_SECONDS = 0.05
"""Time in seconds between two looks at the processes."""
WORDS = 400
"""Maximum number of characters shown of a process's last line."""


def profile_locally(work: ProfileWork, directory: Path) -> Recorded:
    """Profiles the work and returns the record. If a trace is requested, it is written into the directory.

    Raises WorldError if a rank cannot make its steps. The directory is the caller's, and must be empty: files
    of an earlier profile would be taken for answers.
    """
    (directory / WORK).write_text(json.dumps(encode(work)), encoding="utf-8")
    ranks = [_start(directory, position) for position in range(work.ranks)]
    try:
        codes = _codes(ranks)
        while None in codes and not any(codes):  # if one rank fails, the others would wait for it forever
            time.sleep(POLL_SECONDS)
            codes = _codes(ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for position, code in enumerate(codes):
        if code:
            raise WorldError(_reason(directory, position, code))
    found: Recorded = decode(Recorded, _read(directory / ANSWER.format(0))["recorded"])
    return found


def _codes(ranks: Sequence[subprocess.Popen[bytes]]) -> list[int | None]:
    """The exit code of each process; None while it runs."""
    return [rank.poll() for rank in ranks]


def _start(directory: Path, position: int) -> subprocess.Popen[bytes]:
    """Starts the process of one rank, whose output goes into its log: a pipe that nobody reads could block
    it."""
    command = [sys.executable, "-m", "aiperf.profiling.rank_process", str(directory), str(position)]
    with open(directory / LOG.format(position), "wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(os.environ)
        )


def _reason(directory: Path, position: int, code: int) -> str:
    """Why a rank ended with an error, in one line: its own words if it wrote an answer, else its signal or
    the end of its log."""
    answer = directory / ANSWER.format(position)
    if answer.exists():
        return str(_read(answer)["refused"])
    if code == -signal.SIGKILL:
        return "the profiling process was killed, probably because memory ran out; use a smaller --batch"
    lines = (directory / LOG.format(position)).read_text(encoding="utf-8", errors="replace").splitlines()
    last = next((line for line in reversed(lines) if line.strip()), "nothing")
    return f"the profiling process of rank {position} ended with code {code}; error: {last[:WORDS]}"


def _read(path: Path) -> dict[str, Any]:
    """The JSON object in a file that a rank wrote."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
