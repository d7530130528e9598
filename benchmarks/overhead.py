"""What the program costs beside the work itself: a finished run against bare PyTorch loops.

    python -m benchmarks.overhead [--repeats 5] [--minutes 1] [--trials N] [--seconds 2]

For each distinct network of a run, bare.py (which imports nothing of ours) times a training step and an
evaluation with the same batch and format, on one thread. Efficiency = Σ bare seconds of all credited work ÷
span. Runs and bare loops alternate. The machine should be quiet. The steps of both are eager.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiperf.journal.replay import Replay
from aiperf.proposing.plan import EXAMPLES_AT_ONCE
from aiperf.score.credit import credit
from aiperf.score.lineage import rebuild
from aiperf.score.timeline import shares
from benchmarks.script import ONE_THREAD, answer_of, made_run
from nas.record import graph_to_json

BARE = Path(__file__).with_name("bare.py")


@dataclass(frozen=True)
class Compared:
    """The credited work of one attempt, and the same work by a bare loop."""

    trial: int
    own_seconds: float
    bare_seconds: float
    spread: float
    """Spread of the bare loop's own rates: half the difference of the fastest and the slowest, as a share of
    the median."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=1.0, help="span of each run")
    parser.add_argument("--trials", type=int, help="of each run; default: as many as its minutes allow")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each bare loop")
    options = parser.parse_args()
    efficiencies, spreads, rests = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats):
            words = ["--random-seed", repeat + 1, "--minutes", options.minutes, "--step", "eager"]
            words += ["--max-trials", options.trials] if options.trials else []
            run = made_run(Path(folder) / str(repeat), *words)
            found = compared(run, Path(folder), options.seconds, ONE_THREAD, "cpu")
            efficiency = sum(each.bare_seconds for each in found) / run.span_seconds
            spread = statistics.median(each.spread for each in found)
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
        f"(goal ≥ 0.98), spread ±{statistics.median(spreads):.1%}, "
        f"rest {max(rests):.2%} at the most (goal ≤ 2 %)"
    )


def compared(
    run: Replay,
    folder: Path,
    seconds: float,
    environment: Mapping[str, str],
    device: str,
    most: int | None = None,
) -> list[Compared]:
    """Compares attempts that have credited work with bare loops of `seconds` each: all attempts, or `most` of
    them, spread evenly over the run."""
    credited = credit(run)
    segments = {
        index: [v.segment for v in attempt.validations if credited.has(attempt, v)]
        for index, attempt in enumerate(run.attempts)
    }
    own = {
        index: sum(segment.train_seconds + segment.validate_seconds for segment in found)
        for index, found in segments.items()
        if found
    }
    number = min(most or len(own), len(own))
    chosen = [list(own)[place * len(own) // number] for place in range(number)]
    found = []
    for index in chosen:
        trial = run.attempts[index].trial
        graph = folder / "graph.json"
        graph.write_text(json.dumps(graph_to_json(rebuild(run, trial.number))))
        held_out = min(segments[index][0].of, EXAMPLES_AT_ONCE)
        numbers = [trial.hyper.batch_size, run.opened.config.training.format, seconds, held_out]
        bare = answer_of(BARE, graph, *numbers, device, environment=environment)
        total = sum(s.train_examples for s in segments[index]) * statistics.median(bare["train"])
        total += sum(s.of for s in segments[index]) * statistics.median(bare["evaluate"])
        spread = (bare["train"][-1] - bare["train"][0]) / bare["train"][2] / 2
        found.append(Compared(trial.number, own[index], total, spread))
    return found


if __name__ == "__main__":
    main()
