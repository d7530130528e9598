"""What a rule finds, and what it is given to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from aiperf.files import RunFiles
from aiperf.journal.replay import Replay
from aiperf.score.lineage import Recount
from aiperf.score.score import Score

NEVER_STARTED = "the clock never started"
"""What many rules say that then have nothing to look at."""

SHOWN = 3
"""Contradictions that a finding names; of more it gives the number."""


class Kind(Enum):
    """Of the two questions, which one a rule answers."""

    INTEGRITY = "integrity"
    """Whether the result is true: VALID or INVALID."""
    ELIGIBILITY = "eligibility"
    """Which class a valid result belongs to."""


class Outcome(Enum):
    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """There is nothing to judge by; the text says what is missing."""


@dataclass(frozen=True)
class Evidence:
    """A replayed run with what was computed from it."""

    replay: Replay
    recount: Recount
    score: Score
    files: RunFiles | None
    """Of the run, where they are at hand beside the journal."""


@dataclass(frozen=True)
class Seen:
    """What a rule saw: contradictions, or what it passed on, or that there was nothing to see."""

    text: str
    """When there are no contradictions."""
    contradictions: Sequence[str] = ()
    known: bool = True


def looked(at: object, nothing: str, text: str, contradictions: Sequence[str] = ()) -> Seen:
    """Of a rule that looks `at` something: where that is empty or 0 it saw nothing, and `nothing` says so."""
    return Seen(text, contradictions) if at else Seen(nothing, contradictions, known=False)


@dataclass(frozen=True)
class Finding:
    """A rule's answer."""

    rule: str
    kind: Kind
    outcome: Outcome
    text: str


@dataclass(frozen=True)
class Rule:
    """A question to a run."""

    name: str
    kind: Kind
    look: Callable[[Evidence], Seen]
    needs_graphs: bool = False
    """Only the rebuilt architectures can answer it. To rebuild them takes long, so the report of a long run
    takes the answer of an earlier `validate`, or says "unknown"."""

    def find(self, evidence: Evidence) -> Finding:
        seen = self.look(evidence)
        if seen.contradictions:
            shown = "; ".join(seen.contradictions[:SHOWN])
            more = len(seen.contradictions) - SHOWN
            text = f"{shown}; and {more} more" if more > 0 else shown
            return Finding(self.name, self.kind, Outcome.FAILED, text)
        return Finding(self.name, self.kind, Outcome.PASSED if seen.known else Outcome.UNKNOWN, seen.text)
