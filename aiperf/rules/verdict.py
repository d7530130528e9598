"""The rules: whether a result is true, and which class a true result belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from aiperf.journal.events import Origin
from aiperf.journal.file import RULES_VERSION
from aiperf.journal.mark import Mark, mark_of
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules import (
    accuracy,
    eligibility,
    integrity,
    measurements,
    participants,
    rank_logs,
    reproduction,
    times,
    trial_length,
)
from aiperf.rules.ending import Answer, Shortfall, shortfall
from aiperf.rules.rule import Evidence, Finding, Kind, Outcome, Rule
from aiperf.score import fabric
from aiperf.score.deviation import CHECKED_SINCE
from aiperf.score.disturbance import MEASURED_SINCE
from aiperf.score.lineage import recount
from aiperf.score.score import score
from aiperf.wording import counted
from nas.frozen import frozen


class RunClass(Enum):
    """Class of a valid run."""

    RANKED = "ranked"
    """It meets everything that a place in a ranking needs."""
    SMOKE = "smoke"
    """It is true, and lacks something for a ranking; the findings say what."""


KNOWN_IF_RANKED: Mapping[str, int] = {
    **dict.fromkeys(("search", "accuracy", "data", "measurements", "clocks", "witnesses"), 1),
    **dict.fromkeys(("speed", "times"), 2),
}
"""Rules of integrity that a ranked run must pass, each from that version of the rules on: if one of them is
unknown, the run is smoke. A journal of an earlier version is judged as it was."""

MAY_BE_UNKNOWN = frozenset({"ranked devices"})
"""Rules of eligibility that cost the class only if they fail: whether there are equal devices to compare with
is a matter of the machine, and no honest run can change it."""


@frozen
class Verdict:
    """All findings, what the run lacks for a result, and what follows from both."""

    findings: tuple[Finding, ...]
    shortfall: Shortfall | None = None
    origin: Origin = Origin.MEASURED
    rules: int = RULES_VERSION
    """Version of the rules under which the run was made."""

    @property
    def answer(self) -> Answer:
        """A contradiction makes a run INVALID, whatever else it lacks. What could not be checked does not
        count against it. A run that was not measured is SIMULATED, whatever the rules found, once there is
        something to judge."""
        if self.origin is not Origin.MEASURED:
            return Answer.SIMULATED if self.shortfall is None else self.shortfall.answer
        if self.failed(Kind.INTEGRITY):
            return Answer.INVALID
        return Answer.VALID if self.shortfall is None else self.shortfall.answer

    @property
    def mark(self) -> Mark | None:
        """The mark that must accompany every figure of the run."""
        return mark_of(self.origin)

    @property
    def valid(self) -> bool:
        """Whether the answer is VALID."""
        return self.answer is Answer.VALID

    @property
    def run_class(self) -> RunClass | None:
        """Ranked if valid and every rule of the ranking is met. Only a valid run has a class."""
        if not self.valid:
            return None
        return RunClass.SMOKE if self.unmet else RunClass.RANKED

    @property
    def class_text(self) -> str:
        """The class in words; empty without one. A run that is ranked by earlier rules than these is called
        so, because less was demanded of it, and because anyone can write a smaller version into a journal."""
        if self.run_class is RunClass.RANKED and self.rules < RULES_VERSION:
            return f"{RunClass.RANKED.value} by version {self.rules} of the rules"
        return self.run_class.value if self.run_class else ""

    @property
    def unmet(self) -> list[Finding]:
        """What keeps a valid run from the class ranked: rules of eligibility, and some of integrity."""
        needed = {rule for rule, since in KNOWN_IF_RANKED.items() if since <= self.rules}
        asked = [f for f in self.findings if f.kind is Kind.ELIGIBILITY or f.rule in needed]
        return [
            f
            for f in asked
            if f.outcome is Outcome.FAILED or (f.outcome is Outcome.UNKNOWN and f.rule not in MAY_BE_UNKNOWN)
        ]

    @property
    def cause(self) -> str:
        """Why the answer is not VALID, in one sentence; empty if it is."""
        if self.mark is None:
            return self._contradiction or self.lacks
        return "; ".join(filter(None, (self.lacks, self._contradiction)))

    @property
    def lacks(self) -> str:
        """Why a run without contradictions is not VALID: it has no result yet, or was not measured."""
        shortfall = self.shortfall.text if self.shortfall else ""
        return "; ".join(filter(None, (shortfall, self.mark.sentence() if self.mark else "")))

    @property
    def _contradiction(self) -> str:
        """The first contradiction with the number of further ones; empty without any."""
        if not (failed := self.failed(Kind.INTEGRITY)):
            return ""
        more = f"; {counted(len(failed) - 1, 'more rule')} failed" if failed[1:] else ""
        return f"{failed[0].rule}: {failed[0].text}{more}"

    def failed(self, kind: Kind) -> list[Finding]:
        """The findings of that kind that failed, in the order of the rules."""
        return [f for f in self.findings if f.kind is kind and f.outcome is Outcome.FAILED]


RULES: tuple[Rule, ...] = (
    Rule("chain", Kind.INTEGRITY, integrity.chain),
    Rule("order", Kind.INTEGRITY, integrity.order),
    Rule("lineage", Kind.INTEGRITY, integrity.lineage),
    Rule("seed", Kind.INTEGRITY, integrity.seed),
    Rule("operations", Kind.INTEGRITY, integrity.operations, needs_graphs=True),
    Rule("bounds", Kind.INTEGRITY, integrity.bounds, needs_graphs=True),
    Rule("search", Kind.INTEGRITY, reproduction.search, needs_graphs=True),
    Rule("steps", Kind.INTEGRITY, integrity.steps),
    Rule("examples", Kind.INTEGRITY, trial_length.examples),
    Rule("accuracy", Kind.INTEGRITY, accuracy.accuracy),
    Rule("data", Kind.INTEGRITY, integrity.data),
    Rule("times", Kind.INTEGRITY, times.times),
    Rule("span", Kind.INTEGRITY, times.span),
    Rule("speed", Kind.INTEGRITY, measurements.speed),
    Rule("measurements", Kind.INTEGRITY, measurements.measurements),
    Rule("ranks", Kind.INTEGRITY, participants.ranks),
    Rule("code", Kind.INTEGRITY, participants.code),
    Rule("clocks", Kind.INTEGRITY, participants.clocks),
    Rule("initialisation", Kind.INTEGRITY, participants.initialisation),
    Rule("precision", Kind.INTEGRITY, participants.precision),
    Rule("witnesses", Kind.INTEGRITY, rank_logs.witnesses),
    Rule("weights", Kind.INTEGRITY, rank_logs.weights),
    Rule("complete", Kind.ELIGIBILITY, eligibility.complete),
    Rule("ranked span", Kind.ELIGIBILITY, times.ranked_span),
    Rule("ranked precision", Kind.ELIGIBILITY, eligibility.width),
    Rule("ranked data", Kind.ELIGIBILITY, eligibility.data),
    Rule("ranked error", Kind.ELIGIBILITY, eligibility.error),
    Rule("ranked trials", Kind.ELIGIBILITY, eligibility.trials),
    Rule("ranked architecture", Kind.ELIGIBILITY, eligibility.architecture),
    Rule("ranked random seed", Kind.ELIGIBILITY, eligibility.random_seed),
    Rule("ranked control", Kind.ELIGIBILITY, eligibility.control),
    Rule("ranked speed", Kind.ELIGIBILITY, measurements.ranked_speed),
    Rule("ranked segments", Kind.ELIGIBILITY, eligibility.segments),
    Rule("ranked disturbance", Kind.ELIGIBILITY, eligibility.disturbance, since=MEASURED_SINCE),
    Rule("ranked devices", Kind.ELIGIBILITY, eligibility.devices, since=CHECKED_SINCE),
    Rule("ranked fabric", Kind.ELIGIBILITY, eligibility.fabric, since=fabric.MEASURED_SINCE),
    Rule("ranked coupled", Kind.ELIGIBILITY, eligibility.coupled, since=fabric.COUPLED_SINCE),
)
"""All rules in the order in which they are shown: those of integrity first. The name is what `validate`
prints and docs/rules.md explains."""


def rules_of(replay: Replay) -> tuple[Rule, ...]:
    """The rules by which a run is judged: those that there were when it was made."""
    return tuple(rule for rule in RULES if rule.since <= replay.opened.rules)


def judge(replay: Replay, files: RunFiles | None) -> Verdict:
    """Applies every rule to a run. `files`: its directory, with logs and weights next to the journal.

    Raises JournalError when the journal does not even hold a seed to count from.
    """
    return judge_by(evidence_of(replay, files))


def evidence_of(replay: Replay, files: RunFiles | None) -> Evidence:
    """Recounts every architecture, which takes most of the time. Raises JournalError like `judge`."""
    found = recount(replay)
    return Evidence(replay, found, score(replay, found.counts), files)


def judge_by(evidence: Evidence, earlier: Iterable[Finding] = ()) -> Verdict:
    """Applies every rule. What only rebuilt architectures can answer is taken from `earlier` findings on the
    same journal, if there are any, because it takes long and nothing but the journal decides it."""
    answers = {finding.rule: finding for finding in earlier}
    return concluded(
        evidence,
        (
            answers[rule.name] if rule.needs_graphs and rule.name in answers else rule.find(evidence)
            for rule in rules_of(evidence.replay)
        ),
    )


def concluded(evidence: Evidence, findings: Iterable[Finding]) -> Verdict:
    """The verdict that follows from the findings and from how the run ended."""
    directory = None if evidence.files is None else evidence.files.directory
    credited = evidence.score.goodput.segments > 0
    lacks = shortfall(evidence.replay, credited, directory)
    opened = evidence.replay.opened
    return Verdict(tuple(findings), lacks, opened.origin, opened.rules)
