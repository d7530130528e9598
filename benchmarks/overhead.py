"""What the program costs beside the work itself: a finished run against bare PyTorch loops.

    python benchmarks/overhead.py [--repeats 5] [--minutes 1] [--threads 1]

For each distinct network of a run, bare.py (which imports nothing of ours) times a training step and an
evaluation with the same batch, format and threads. Efficiency = Σ bare seconds of all credited work ÷
span. Runs and bare loops alternate. The machine should be quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from aiperf.files import RunFiles
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.score.credit import credit
from aiperf.score.lineage import rebuild
from aiperf.score.timeline import shares
from nas.record import graph_to_json

BARE = Path(__file__).with_name("bare.py")
DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=1.0, help="span of each run")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each bare loop")
    options = parser.parse_args()
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    efficiencies, spreads, rests = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            run = _run(Path(folder) / str(repeat), options.minutes, repeat + 1, environment)
            efficiency, spread = _efficiency(run, Path(folder), options.seconds, environment)
            rest = max(share.rest for share in shares(run))
            print(
                f"run {repeat + 1}: efficiency {efficiency:.4f}, bare loops' own spread ±{spread:.1%}, "
                f"{rest:.2%} of the span neither training nor validating",
                flush=True,
            )
            efficiencies.append(efficiency)
            spreads.append(spread)
            rests.append(rest)
    print(
        f"median of {options.repeats}: efficiency {statistics.median(efficiencies):.4f} "
        f"(goal ≥ 0.97), spread ±{statistics.median(spreads):.1%}, "
        f"rest {max(rests):.2%} at the most (goal ≤ 2 %)"
    )


def _run(directory: Path, minutes: float, seed: int, environment: dict[str, str]) -> Replay:
    command = [sys.executable, "-m", "aiperf", "run", "--directory", str(directory), "--device", "cpu"]
    command += ["--minutes", str(minutes), "--random-seed", str(seed)]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return replay(read_journal(RunFiles(directory).journal))


def _efficiency(
    run: Replay, folder: Path, seconds: float, environment: dict[str, str]
) -> tuple[float, float]:
    """Bare seconds of all credited work over the span, and the median spread of the bare loops."""
    credited, total, spreads = credit(run), 0.0, []
    dtype = DTYPES[run.opened.config.training.format]
    for attempt in run.attempts:
        segments = [v.segment for v in attempt.validations if credited.has(attempt, v)]
        if not segments:
            continue
        graph = folder / "graph.json"
        graph.write_text(json.dumps(graph_to_json(rebuild(run, attempt.trial.number))))
        command = [sys.executable, str(BARE), str(graph), str(attempt.trial.hyper.batch_size), dtype]
        command += [str(seconds), str(segments[0].of)]
        answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        bare = json.loads(answer.stdout)
        total += sum(s.train_images for s in segments) * statistics.median(bare["train"])
        total += sum(s.of for s in segments) * statistics.median(bare["evaluate"])
        spreads.append((bare["train"][-1] - bare["train"][0]) / bare["train"][2] / 2)
    return total / run.span_seconds, statistics.median(spreads)


if __name__ == "__main__":
    main()
