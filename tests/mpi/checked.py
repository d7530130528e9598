"""What has to hold of every run, whatever happened to it; and what it executed, summed without the counter of
this project.

Steps and examples come from the ranks' own logs; operations of an example from torch's FlopCounterMode, which
watches the rebuilt network train and evaluate one batch. Of attention it counts T² pairs; those that are not
masked are (T + 1) / 2T of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Kind
from aiperf.rules.verdict import judge
from aiperf.score.lineage import rebuild, recount
from aiperf.score.score import score
from nas.graph import Graph
from tests.mpi.jobs import Job, told
from tests.nas.test_oracle import by_torch


def seen_by_witnesses(directory: Path) -> str:
    """What the rule on the ranks' own logs says."""
    findings = judge(told(directory), RunFiles(directory)).findings
    (text,) = [finding.text for finding in findings if finding.rule == "witnesses"]
    return text


def checked(directory: Path) -> Replay:
    """The run as its journal tells it: without a contradiction, and credited with exactly what its
    ranks wrote down and torch's own counter finds in the rebuilt networks."""
    replay = told(directory)
    verdict = judge(replay, RunFiles(directory))
    assert verdict.failed(Kind.INTEGRITY) == []
    credited = score(replay, recount(replay).counts).goodput.tensor_operations
    assert credited == tensor_operations(replay, directory)
    assert credited > 0
    return replay


def finished(job: Job) -> Replay:
    """The run of a job, whose end is waited for and must be good; checked."""
    assert job.end() == 0, job.text()
    assert " VALID, class smoke" in job.text()
    return checked(job.directory)


def tensor_operations(replay: Replay, directory: Path) -> int:
    """Tensor operations of all credited segments: trained examples forward and backward, validated ones
    forward."""
    trained, validated = Counter[int](), Counter[int]()
    credited = set(_credited(replay))
    for path in directory.glob("logs/*.steps.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if (record["trial"], record["attempt"], record["segment"]) in credited:
                trained[record["trial"]] += record.get("examples", 0)
                validated[record["trial"]] += record.get("of", 0)
    total = 0
    for trial in trained:
        training, evaluation = example_operations(rebuild(replay, trial))
        total += training * trained[trial] + evaluation * validated[trial]
    return total


def example_operations(graph: Graph) -> tuple[int, int]:
    """Tensor operations of one image, or of one window: trained, evaluated."""
    counted = by_torch(graph)
    positions = graph.input[0]
    unmasked = Fraction(positions + 1, 2 * positions)
    forward, backward = (
        counted["layers", direction] + counted["attention", direction] * unmasked
        for direction in ("forward", "backward")
    )
    assert (forward + backward).denominator == forward.denominator == 1
    return int(forward + backward), int(forward)


def _credited(replay: Replay) -> Iterator[tuple[int, int, int]]:
    """Every segment that was validated before the deadline, the first time."""
    seen = set()
    for attempt in replay.attempts:
        for validation in attempt.validations:
            segment = validation.segment
            deadline = attempt.leg.deadline
            in_time = deadline is None or validation.end <= deadline
            if in_time and (segment.trial, segment.index) not in seen:
                seen.add((segment.trial, segment.index))
                yield segment.trial, segment.attempt, segment.index
