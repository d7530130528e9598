"""How long a group waits between two trials: the next one is prepared beside the one that trains."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from aiperf.journal.replay import Replay
from aiperf.trial import State
from tests.mpi.checked import checked
from tests.mpi.jobs import OPEN_MPI, TINY, started

pytestmark = [pytest.mark.mpi, pytest.mark.slow, pytest.mark.timeout(900)]

TRIAL_SECONDS = 20.0
MINUTES = 1.75
TRIAL_EPOCHS = 20
IDLE_SHARE = 0.01


def run(directory: Path, epochs: int, *limits: object) -> Replay:
    """Two groups of one; all trials are of about the same length, for the seed's own size is the largest."""
    words = ["run", "--preset", TINY, "--directory", directory, "--devices-per-trial", 1, *limits]
    words += ["--set", f"training.epochs=[{epochs}]", "--set", "search.bounds.max_operations=1.5"]
    words += ["--set", "search.bounds.min_operations=0.75"]
    with started(OPEN_MPI.run(3, *words), directory) as job:
        assert job.end(300.0) == 0, job.text()
    return checked(directory)


def lengths(replay: Replay) -> list[float]:
    """Seconds of the completed trials."""
    return [
        attempt.ended.end - attempt.began.end
        for attempt in replay.attempts
        if attempt.state is State.COMPLETE and attempt.began and attempt.ended
    ]


def gaps(replay: Replay, group: int) -> Iterator[float]:
    """Seconds from the last work of a trial to the first step of the next one."""
    mine = [attempt for attempt in replay.attempts if attempt.group == group and attempt.began]
    for one, following in pairwise(mine):
        assert one.ended is not None
        assert following.began is not None
        yield following.began.end - one.ended.end


def test_a_group_waits_less_than_a_hundredth_of_the_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = lengths(run(tmp_path / "first", TRIAL_EPOCHS, "--max-trials", 2, "--set", "limits.minutes=0"))
    epochs = round(TRIAL_EPOCHS * TRIAL_SECONDS / (sum(first) / len(first)))
    replay = run(tmp_path / "run", epochs, "--minutes", MINUTES)
    shares = [sum(gaps(replay, group)) / replay.span_seconds for group in range(2)]
    trials = lengths(replay)
    with capsys.disabled():
        longest = max(gap for group in range(2) for gap in gaps(replay, group))
        print(
            f"\n{len(trials)} trials of {sum(trials) / len(trials):.1f} s on two groups: idle between trials "
            f"{', '.join(f'{share:.3%}' for share in shares)} of the span; "
            f"the longest gap {1000 * longest:.0f} ms"
        )
    assert len(trials) >= 4
    assert max(shares) <= IDLE_SHARE
