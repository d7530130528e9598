"""Processes that decode, and the death of the one that they decode for."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.aiperf.data.sets import write_folders

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

TRAINS = """
import sys, time
from itertools import repeat
from aiperf.data.decoders import Decoders, Item

if __name__ == "__main__":
    pieces = Decoders(3, 8, 2, pin=False).run(repeat([Item(sys.argv[1], 0, "")]))
    next(pieces)
    print("decodes", flush=True)
    time.sleep(100)
"""


def test_they_end_when_the_process_that_trains_is_killed(tmp_path: Path) -> None:
    write_folders(tmp_path / "images")
    image = next(path for path in (tmp_path / "images").rglob("*") if path.is_file())
    program = tmp_path / "trains.py"
    program.write_text(TRAINS)
    with subprocess.Popen([sys.executable, program, image], stdout=subprocess.PIPE, text=True) as trains:
        assert trains.stdout is not None
        assert trains.stdout.readline() == "decodes\n"
        theirs = psutil.Process(trains.pid).children(recursive=True)
        trains.kill()
    try:
        assert len(theirs) >= 4  # the server, two that it forked, and the tracker
        until = time.monotonic() + 20
        while (left := [each for each in theirs if each.is_running()]) and time.monotonic() < until:
            time.sleep(0.1)
        assert left == []
    finally:
        for each in theirs:
            with suppress(psutil.NoSuchProcess):
                each.kill()
