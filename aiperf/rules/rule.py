"""A rule, the evidence that it checks, its finding, and the limits that several rules share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from aiperf.config import Config
from aiperf.journal.attempts import AFTER_LAST_LINE_SECONDS
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.score.lineage import Recount
from aiperf.score.score import Score
from aiperf.tasks.registry import task_of
from aiperf.tasks.task import Task
from nas.frozen import frozen

NEVER_STARTED = "the clock never started"
"""The answer of many rules, which then have nothing to check."""

SHOWN = 3
"""Contradictions listed in a finding; further ones are only counted."""

LEAST_SPAN_SECONDS = 3600.0
"""Shortest span of a ranked run in seconds."""
LATE_SECONDS = AFTER_LAST_LINE_SECONDS
"""Seconds by which a report of work may be late. It is late if the master was busy, never early; a master
that is silent for longer than a heartbeat is dead. A network or a file system may delay reports as long."""
DRIFT = 1e-3
"""Drift of one host's clock relative to another's, as a fraction of the time that both measure."""
JITTER_SECONDS = 0.5
"""Seconds by which two times of one event on different clocks may differ in addition to the drift."""


class Kind(Enum):
    """Which of two questions a rule answers."""

    INTEGRITY = "integrity"
    """Whether the result is true: VALID or INVALID."""
    ELIGIBILITY = "eligibility"
    """Which class a valid result belongs to."""


class Outcome(Enum):
    """The three answers of a rule."""

    PASSED = "passed"
    """What the rule checks holds."""
    FAILED = "failed"
    """There is a contradiction, or a condition of the class is not met."""
    UNKNOWN = "unknown"
    """There is nothing to judge; the text says what is missing."""


@frozen
class Evidence:
    """A replayed run with what was computed from it."""

    replay: Replay
    recount: Recount
    score: Score
    files: RunFiles | None
    """Files of the run directory; None if only the journal is available."""
    progress: Callable[[str], object] | None = None
    """Shows how far a rule has come that takes minutes. None in a process that must not be forked, such as
    the master of a run, which may have threads and MPI: it then checks alone."""

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.replay.opened.config

    @property
    def task(self) -> Task:
        """What the run learns."""
        return task_of(self.config.data)


@frozen
class Inspection:
    """What a rule saw: contradictions, or why it passed, or that there was nothing to check."""

    text: str
    """Shown if there are no contradictions."""
    contradictions: Sequence[str] = ()
    known: bool = True
    """False if there was nothing to check, or a part of it is missing."""


def unknown(text: str, contradictions: Sequence[str] = ()) -> Inspection:
    """The answer of a rule that could not check what it should; `text` says why. Contradictions that it found
    all the same fail it."""
    return Inspection(text, contradictions, known=False)


def inspection_of(at: object, nothing: str, text: str, contradictions: Sequence[str] = ()) -> Inspection:
    """The answer of a rule that checks `at`: if that is empty or 0, it is unknown, and `nothing` says why."""
    return Inspection(text, contradictions) if at else unknown(nothing, contradictions)


@frozen
class Finding:
    """A rule's answer."""

    rule: str
    kind: Kind
    outcome: Outcome
    text: str
    """What was seen, or the first contradictions."""


@frozen
class Rule:
    """A question about a run."""

    name: str
    kind: Kind
    look: Callable[[Evidence], Inspection]
    needs_graphs: bool = False
    """Only the rebuilt architectures can answer it. Rebuilding them takes long, so the report of a long run
    uses the answer of an earlier `validate`, or says "unknown"."""
    since: int = 1
    """Version of the rules that brought it. A journal of an earlier version is judged without it."""

    def find(self, evidence: Evidence) -> Finding:
        """The finding on a run: a contradiction fails the rule, whatever else is unknown."""
        seen = self.look(evidence)
        if seen.contradictions:
            shown = "; ".join(seen.contradictions[:SHOWN])
            more = len(seen.contradictions) - SHOWN
            text = f"{shown}; and {more} more" if more > 0 else shown
            return Finding(self.name, self.kind, Outcome.FAILED, text)
        return Finding(self.name, self.kind, Outcome.PASSED if seen.known else Outcome.UNKNOWN, seen.text)
