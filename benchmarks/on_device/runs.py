"""A short run, as a user starts it: its rate, its verdict, and what its journal tells."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from aiperf.config import AUTO_STEP
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.wire.reports import Fallback
from aiperf.wording import percent
from analysis.readings.judgement import read_run
from benchmarks.on_device.parts import Setting, run_of
from benchmarks.on_device.rows import Figures, Row, figures, row
from nas.record import encode

MOST_REST = 0.02
"""Largest share of the span with neither training nor validation: the goal of benchmarks/overhead.py."""
REST_GOAL = "goal, at most"
# A processor does not train ResNet-50 at 224² to a validation within a minute.
SMALL_SYNTHETIC = {
    "data.size": "32",
    "data.classes": "10",
    "data.training_examples": "640",
    "data.validation_examples": "128",
    "data.test_examples": "128",
    "training.validate_every_examples": "64",
    "training.batch_size": "16",
}
SMALL_SEED = "residual-4-8-16"


def measure(setting: Setting, preset: str) -> Figures:
    """A run that is not VALID, or a trial that was trained by another engine than the one chosen for it, is a
    fault."""
    if preset == "digits" and find_spec("sklearn") is None:
        return figures([], left_out="scikit-learn, which has the digits, is not installed")
    directory = setting.run(run_of(preset))
    shutil.rmtree(directory, ignore_errors=True)  # of a part that was not over in time
    command = ["run", "--preset", preset, "--device", setting.kind, "--devices", "1", "--step", AUTO_STEP]
    command += ["--minutes", str(setting.span_seconds / 60), "--directory", str(directory)]
    is_small = setting.is_small and preset == "synthetic"
    if is_small:
        command += ["--seed", SMALL_SEED]
        command += [word for pair in SMALL_SYNTHETIC.items() for word in ("--set", "=".join(pair))]
    code, told = program(command, subprocess.STDOUT)
    invalid, validation = program(["validate", str(directory)])
    answer = validation[-1] if validation else "nothing to validate"
    if not RunFiles(directory).journal.exists():
        fault = f"the run ended with exit code {code}: {(told or ['no reason was given'])[-1]}"
        return figures([row("verdict", answer)], faults=[fault])
    run = read_run(RunFiles(directory))
    faults = [] if not invalid else [f"the run is not VALID, but: {answer}"]
    faults += [f"trial {each.trial}: no {each.engine} steps: {each.reason}" for each in _fallbacks(run)]
    scored = json.loads("\n".join(program(["score", "--json", str(directory)])[1]) or "{}")
    rows = [row("verdict", answer), *_of_score(run, scored), *_of_journal(run)]
    slow = [
        f"{percent(each['found'])} of the span is neither training nor validation; goal: {percent(MOST_REST)}"
        for each in rows
        if each["by"] == REST_GOAL and each["found"] > MOST_REST and not setting.is_small
    ]
    return figures(
        rows,
        faults=faults,
        slow=slow,
        smaller=f"{SMALL_SEED} at 32² in place of ResNet-50 at 224²" if is_small else "",
        score={name: value for name, value in scored.items() if name != "timeline"},
        step_times=[encode(ceiling.steps) for leg in run.legs for ceiling in leg.ceilings.values()],
        validation=validation,
        command=["aiperf-hpc", *command],
    )


def program(words: Sequence[str], errors: int | None = None) -> tuple[int, list[str]]:
    """The exit code and the lines of a command of the program, with its errors where those are STDOUT. All of
    it goes to the part's log at once, because a run may hang."""
    command, lines = [sys.executable, "-m", "aiperf", *words], list[str]()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines += [line.rstrip()] if line.strip() else []
    return process.returncode, lines


def _fallbacks(run: Replay) -> list[Fallback]:
    """Trials whose engine failed, so that they were trained eagerly."""
    return [attempt.fallback for attempt in run.attempts if attempt.fallback is not None]


def _of_score(run: Replay, scored: dict[str, Any]) -> list[Row]:
    """Rows of the score; none if there was none."""
    if "ops_per_second" not in scored:
        return []
    ceilings = [ceiling.fastest for leg in run.legs for ceiling in leg.ceilings.values()]
    tensor, rest = scored["tensor_ops_per_second"], max(share["rest"] for share in scored["shares"])
    peak = scored["peak_ops_per_second"]
    quality, control = scored["quality"] or {}, scored["control"] or {}
    done = [scored[name]["operations"] for name in ("goodput", "raw")]
    return [
        row("sustained OPS", scored["ops_per_second"], "OPS"),
        row("tensor OPS", tensor, "OPS", max(ceilings, default=None), "ceiling of the run"),
        *([row("tensor OPS: MFU", tensor, "OPS", peak, "listed peak")] if peak else []),
        row("credited operations", done[0], "", done[1], "all that was done"),
        row("neither training nor validating", rest, "%", MOST_REST, REST_GOAL),
        row("test error", quality.get("error"), "%"),
        row("control", control.get("examples_per_second"), "images/s"),
    ]


def _of_journal(run: Replay) -> list[Row]:
    """Rows of what only the journal says: who made the steps, and why."""
    begun = [attempt for attempt in run.attempts if attempt.began is not None]
    engines = Counter(attempt.engine for attempt in begun)
    reasons = Counter(attempt.chosen for attempt in begun).most_common(1)
    named = ", ".join(f"{name} {count} ×" for name, count in engines.most_common()) or "none"
    rows = [row("engines of trials", named)]
    rows += [row("mostly because", reason) for reason, _ in reasons]
    for leg in run.legs:
        for ceiling in leg.ceilings.values():
            for name, time in ceiling.steps.items():
                told = (
                    time.why_not or f"{1e3 * time.seconds:.3g} ms, prepared in {time.prepare_seconds:.1f} s"
                )
                rows.append(row(f"the seed's step, {name}", told))
    return rows
