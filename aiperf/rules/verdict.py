"""The rules: whether a result is true, and which class a true result belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from aiperf.files import RunFiles
from aiperf.journal.replay import Replay
from aiperf.rules import (
    answers,
    eligibility,
    image_sets,
    integrity,
    measurements,
    planned,
    proposals_again,
    rank_logs,
    times,
    who,
)
from aiperf.rules.rule import Evidence, Finding, Kind, Outcome, Rule
from aiperf.score.lineage import recount
from aiperf.score.score import score


class RunClass(Enum):
    """Of a valid run."""

    RANKED = "ranked"
    SMOKE = "smoke"


KNOWN_IF_RANKED = frozenset({"search", "accuracy", "data", "measurements", "witnesses"})
"""Rules of integrity that a ranked run has passed: where they found nothing to look at it is smoke."""


@dataclass(frozen=True)
class Verdict:
    """All findings, and what follows from them."""

    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        """No rule of integrity failed. What could not be looked at does not count against a run."""
        return not self.failed(Kind.INTEGRITY)

    @property
    def run_class(self) -> RunClass:
        """Ranked: valid, and nothing stands in the way of a rank."""
        return RunClass.RANKED if self.valid and not self.unmet else RunClass.SMOKE

    @property
    def unmet(self) -> list[Finding]:
        """Why a valid run is not ranked: rules of eligibility that failed, and what must not be unknown."""
        unknown = [f for f in self.findings if f.outcome is Outcome.UNKNOWN and f.rule in KNOWN_IF_RANKED]
        return self.failed(Kind.ELIGIBILITY) + unknown

    def failed(self, kind: Kind) -> list[Finding]:
        return [f for f in self.findings if f.kind is kind and f.outcome is Outcome.FAILED]


RULES: tuple[Rule, ...] = (
    Rule("chain", Kind.INTEGRITY, integrity.chain),
    Rule("order", Kind.INTEGRITY, integrity.order),
    Rule("lineage", Kind.INTEGRITY, integrity.lineage),
    Rule("seed", Kind.INTEGRITY, integrity.seed),
    Rule("operations", Kind.INTEGRITY, integrity.operations, needs_graphs=True),
    Rule("bounds", Kind.INTEGRITY, integrity.bounds, needs_graphs=True),
    Rule("search", Kind.INTEGRITY, proposals_again.search, needs_graphs=True),
    Rule("steps", Kind.INTEGRITY, integrity.steps),
    Rule("images", Kind.INTEGRITY, planned.images),
    Rule("accuracy", Kind.INTEGRITY, answers.accuracy),
    Rule("data", Kind.INTEGRITY, image_sets.data),
    Rule("times", Kind.INTEGRITY, times.times),
    Rule("span", Kind.INTEGRITY, times.span),
    Rule("speed", Kind.INTEGRITY, measurements.speed),
    Rule("measurements", Kind.INTEGRITY, measurements.measurements),
    Rule("ranks", Kind.INTEGRITY, who.ranks),
    Rule("code", Kind.INTEGRITY, who.code),
    Rule("clocks", Kind.INTEGRITY, who.clocks),
    Rule("initialisation", Kind.INTEGRITY, who.initialisation),
    Rule("precision", Kind.INTEGRITY, who.precision),
    Rule("witnesses", Kind.INTEGRITY, rank_logs.witnesses),
    Rule("weights", Kind.INTEGRITY, rank_logs.weights),
    Rule("complete", Kind.ELIGIBILITY, eligibility.complete),
    Rule("ranked span", Kind.ELIGIBILITY, eligibility.span),
    Rule("ranked precision", Kind.ELIGIBILITY, eligibility.width),
    Rule("ranked data", Kind.ELIGIBILITY, eligibility.data),
    Rule("ranked error", Kind.ELIGIBILITY, eligibility.error),
    Rule("ranked trials", Kind.ELIGIBILITY, eligibility.trials),
    Rule("ranked architecture", Kind.ELIGIBILITY, eligibility.architecture),
    Rule("ranked control", Kind.ELIGIBILITY, eligibility.control),
    Rule("ranked speed", Kind.ELIGIBILITY, eligibility.speed),
    Rule("ranked segments", Kind.ELIGIBILITY, eligibility.segments),
)


def judge(replay: Replay, files: RunFiles | None) -> Verdict:
    """Every rule on a run. `files`: its directory, where logs and weights lie beside the journal.

    Raises JournalError when the journal does not even hold a seed to count from.
    """
    found = recount(replay)
    evidence = Evidence(replay, found, score(replay, found.counts), files)
    return Verdict(tuple(rule.find(evidence) for rule in RULES))
