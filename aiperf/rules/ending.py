"""Whether a run has a result, and what is missing if it has none."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from aiperf.journal.attempts import Attempt
from aiperf.journal.events import TERMINATED, Origin
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.wire.reports import NOTHING_KEPT
from aiperf.wire.trial import State
from nas.frozen import frozen

ERROR = "error: "
"""Prefix of the reason of a leg that ended with an error."""
EVERY_GROUP_LOST = "every group is lost"
"""Reason of a leg that ended because no group was left."""
STOPPED = "the run was stopped by its scheduler or launcher"
"""Cause of a run that its scheduler or launcher ended."""
EVERY_TRIAL_FAILED = "every trial fails for the same reason"
"""Beginning of the reason of a leg in which all trials failed alike; the shared reason follows."""
FIX = "fix this, then start a new run"
"""Remedy where the cause is a failure of trials."""
TESTING = "the best network is being tested"
"""Shown while the journal still grows after the deadline."""
REASON_SHOWN = 600
"""Maximum number of characters shown of a worker's message, which ends with the remedy."""


class Answer(Enum):
    """The verdict on a run as a whole."""

    VALID = "VALID"
    INVALID = "INVALID"
    SIMULATED = "SIMULATED"
    """The run was not measured: workers pretended, or the clock was virtual. It is never a result."""
    NO_RESULT = "NO RESULT"
    """The run ended, and has nothing that can be judged."""
    INCOMPLETE = "INCOMPLETE"
    """The run is in progress, or can be continued."""

    @property
    def exit_code(self) -> int:
        """Exit code of every command that gives this answer. 75 is EX_TEMPFAIL of sysexits.h: try again
        later."""
        return {
            Answer.VALID: 0,
            Answer.INVALID: 1,
            Answer.NO_RESULT: 3,
            Answer.SIMULATED: 4,
            Answer.INCOMPLETE: 75,
        }[self]


@frozen
class Shortfall:
    """Why a run has no result, or none yet."""

    answer: Answer
    """NO_RESULT or INCOMPLETE."""
    cause: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """Cause and remedy in one line."""
        return f"{self.cause}; {self.remedy}" if self.remedy else self.cause


def can_go_on(replay: Replay) -> bool:
    """Whether `resume` has something to do: to train in the time left, or to test the best network. A
    simulation is not resumed but started again. A run that was tested is over, whatever time is left."""
    if replay.opened.origin is Origin.SIMULATED:
        return False
    limit = replay.opened.config.limits.minutes * 60
    over = bool(limit) and replay.span_seconds >= limit
    return replay.tested is None and not (over and replay.best is None)


def shortfall(
    replay: Replay, credited: bool, directory: Path | None = None, growing: bool = False
) -> Shortfall | None:
    """Why a run has no result; None if it ended with a tested network and with credited work.

    `credited`: whether any segment is credited. `directory`: the run directory, for the command that
    continues the run. `growing`: whether the journal has just grown, so that a test that has not ended is
    still in progress.
    """
    files = RunFiles(directory or Path("RUN"))
    pretending = f" --pretend {files.assumptions}" if replay.opened.origin is Origin.PRETENDED else ""
    resume = f"`aiperf-hpc resume {files.directory}{pretending}`"
    ended = replay.leg.ended if replay.legs else None
    if ended is None:
        begun = "is in progress, or was killed" if replay.legs else "has not started, or was killed before"
        over = "it is not continued" if replay.opened.origin is Origin.SIMULATED else "it has no time left"
        then = f"{resume} continues it" if can_go_on(replay) else f"{over}: start a new run"
        return Shortfall(Answer.INCOMPLETE, f"the run {begun}", f"if it was killed, {then}")
    # However the leg ended: the result is there.
    if credited and replay.tested is not None:
        return None
    if ended.reason.removeprefix(ERROR).startswith(TERMINATED) and can_go_on(replay):
        return Shortfall(Answer.INCOMPLETE, STOPPED, f"{resume} continues it")
    tests = not ended.reason.startswith(ERROR) and replay.best is not None and replay.leg.alive
    if growing and replay.tested is None and tests:
        return Shortfall(Answer.INCOMPLETE, TESTING)
    return Shortfall(
        Answer.NO_RESULT, _cause(replay, ended.reason, credited), _remedy(replay, ended.reason, resume)
    )


def _cause(replay: Replay, reason: str, credited: bool) -> str:
    """The first cause; its consequences are omitted."""
    error = reason.removeprefix(ERROR)
    if not replay.released:
        return f"the clock never started: {error.removesuffix(' before the clock started')}"
    if error == EVERY_GROUP_LOST and replay.leg.losses:
        first = replay.leg.losses[0]
        return f"every group was lost; the first, group {first.group}: {first.reason:.{REASON_SHOWN}}"
    if error.startswith(EVERY_TRIAL_FAILED):
        return f"{error:.{REASON_SHOWN}}"
    if error != reason:
        return f"the run ended with an error: {error}"
    if replay.tested is not None:
        return "no segment was credited"
    if replay.best is not None:
        return "no network was tested: the test did not finish"
    if any(attempt.kept == NOTHING_KEPT for attempt in replay.attempts if attempt.num_closed):
        return "no network was tested: the first validation ended too late for its network to be kept"
    failed = _first_failure(replay)
    if credited or failed:
        what = "completed or reached a limit" if credited else "was validated"
        text = f"no network was tested: no trial {what}"
        if failed is None:
            return text
        return f"{text}; the first failure, trial {failed.trial.number}: {failed.reason:.{REASON_SHOWN}}"
    before = {"deadline": "the deadline", "interrupted": "the interrupt", TERMINATED: "the run was stopped"}
    return f"no validation ended before {before.get(reason, f'the run did: {reason}')}"


def _remedy(replay: Replay, reason: str, resume: str) -> str:
    """What the user can do; empty if nothing helps."""
    if reason.startswith(f"{ERROR}{EVERY_TRIAL_FAILED}"):
        return FIX
    if replay.tested is not None:
        return ""
    if replay.best is not None:
        return f"{resume} continues it and tests the best network" if can_go_on(replay) else ""
    if can_go_on(replay) and (reason == "interrupted" or reason.startswith(ERROR)):
        return f"{resume} continues it"
    if replay.released and _first_failure(replay):
        return FIX
    return "start a new run with more --minutes" if reason in ("deadline", TERMINATED) else ""


def _first_failure(replay: Replay) -> Attempt | None:
    """The first attempt that failed; None if none did."""
    return next((attempt for attempt in replay.attempts if attempt.state is State.FAILED), None)
