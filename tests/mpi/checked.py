"""What has to hold of every run, whatever happened to it."""

from __future__ import annotations

from pathlib import Path

from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Kind
from aiperf.rules.verdict import judge
from aiperf.score.lineage import recount
from aiperf.score.score import score
from tests.mpi.executed import tensor_operations
from tests.mpi.jobs import Job, told


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
