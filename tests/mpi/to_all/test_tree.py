"""What goes to all ranks, when all those die or hang that would give it on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mpi.jobs import FAULT_TOLERANT, OPEN_MPI, started

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "spoken.py"
RANKS = 16
VICTIMS = {1, 2, 14, 15}


@pytest.mark.parametrize(("how", "options"), [("SIGKILL", FAULT_TOLERANT), ("SIGSTOP", ())])
def test_the_others_hear_and_leave(
    how: str, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = OPEN_MPI.command(RANKS, OPEN_MPI.python, str(PROGRAM), how, options=options)
    with started(command, tmp_path / "run") as job:
        code = job.end(200.0)
        text = job.output.read_text()
    heard = re.search(r"all others heard it after ([\d.]+) s", text)
    assert heard, text
    left = re.search(r"left: \[([\d, ]+)\] within ([\d.]+) s", text)
    assert left, text
    everybody = set(range(1, RANKS)) - (VICTIMS if how == "SIGKILL" else set())
    assert {int(rank) for rank in left[1].split(",")} == everybody
    assert float(heard[1]) < 10, "before the next beat of the master"
    assert float(left[2]) < 10
    assert how == "SIGKILL" or code == 0
    with capsys.disabled():
        print(f"\n{how}: heard after {heard[1]} s, left after {left[2]} s")
