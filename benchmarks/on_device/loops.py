"""What the program costs beside the work itself: a run that was made, against bare loops on its device."""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median

from aiperf.journal.run_files import RunFiles
from aiperf.score.timeline import shares
from analysis.readings.judgement import read_run
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, figures, row
from benchmarks.overhead import compared

TRIALS, SMALL_TRIALS = 6, 3
SECONDS, SMALL_SECONDS = 2.0, 1.0
GOAL = 0.97


def measure(setting: Setting, name: str) -> Figures:
    """Efficiency: bare seconds of the same work over those of the trials, less the rest of the span."""
    run = read_run(RunFiles(setting.run(name)))
    threads = {ceiling.threads for leg in run.legs for ceiling in leg.ceilings.values()} - {0}
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(min(threads))} if threads else {})}
    seconds = setting.sized(SECONDS, SMALL_SECONDS)
    most = setting.sized(TRIALS, SMALL_TRIALS)
    with tempfile.TemporaryDirectory() as folder:
        found = compared(run, Path(folder), seconds, environment, setting.kind, most)
    if not found:
        return figures([], left_out="nothing was credited")
    bare, own = sum(each.bare_seconds for each in found), sum(each.own_seconds for each in found)
    rest = max(share.rest for share in shares(run))
    efficiency = (1 - rest) * bare / own
    rows = [
        row("trials compared", len(found)),
        row("their credited seconds", own, "s", bare, "bare loop"),
        row("rest of the span", rest, "%"),
        row("efficiency", efficiency, "", GOAL, "goal, at least"),
        row("spread of the bare loops, ±", median(each.spread for each in found), "%"),
    ]
    notes = [f"Trials spread evenly over {name}; the bare loop is eager PyTorch."]
    smaller = f"{SMALL_TRIALS} trials in place of {TRIALS}" if setting.is_small else ""
    slow = [f"{efficiency:.3f} of the bare loop's rate; goal: {GOAL}"] if efficiency < GOAL else []
    return figures(rows, slow=slow, notes=notes, smaller=smaller, trials=[asdict(each) for each in found])
