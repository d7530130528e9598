"""What a verdict follows from, what may keep a run from being judged, and what a class needs.

One file, because each demand of a class is left out of the same ranked run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from operator import methodcaller
from pathlib import Path

import pytest

from aiperf.config import with_overrides
from aiperf.journal import events
from aiperf.journal.events import (
    CeilingMeasured,
    Closed,
    ControlMeasured,
    Ended,
    LegBegan,
    LegEnded,
    Opened,
    RankReady,
    Released,
)
from aiperf.rules.eligibility import foreseen
from aiperf.rules.rule import Evidence, Finding, Inspection, Kind, Outcome, Rule
from aiperf.rules.verdict import KNOWN_IF_RANKED, RULES, RunClass, Verdict, judge, rules_of
from aiperf.tasks.images.tally import Classified
from aiperf.wire.reports import Coupled, DeviceCheck, Evaluated, Fabric, FabricNode, HostUse, TimedAllReduce
from tests.aiperf.presets import resolved_preset
from tests.aiperf.rules.forged import (
    Edit,
    each,
    failed,
    found,
    one,
    said,
    together,
    with_config,
    with_manifest,
    without,
)
from tests.journals import Scene, replayed, told, within, write_run
from tests.tables import ComesTo

TIMED = told(Scene(minutes=0.15))


def test_a_leg_without_any_time_left_ends_as_its_deadline_says() -> None:
    """As after a kill between the deadline and the test: the release is written just after it was decided."""
    again = each(LegBegan, lambda event: replace(event, index=1))(TIMED)
    starts = (LegBegan, RankReady, CeilingMeasured, ControlMeasured)
    again = [entry for entry in again if isinstance(entry[1], starts)]
    t = again[-1][0] + 1
    after = [(t, Released(t - 2e-5)), (t + 1, LegEnded("deadline", t - 2e-5))]
    assert failed([*without(TIMED, events.Tested), *again, *after]) == {}


def test_a_run_can_be_judged_while_it_goes_on() -> None:
    for end in range(1, len(TIMED), 11):
        assert failed(TIMED[:end]) == {}, TIMED[end - 1]


def test_a_finding_names_three_contradictions_and_how_many_more() -> None:
    rule = Rule("x", Kind.INTEGRITY, lambda evidence: Inspection("", ["a", "b", "c", "d", "e"]))
    finding = rule.find(Evidence(None, None, None, None))  # type: ignore[arg-type]
    assert (finding.outcome, finding.text) == (Outcome.FAILED, "a; b; c; and 2 more")


def test_the_kept_weights_are_those_that_were_recorded(tmp_path: Path) -> None:
    files, best = write_run(tmp_path / "run", TIMED), one(events.Tested, TIMED).evaluated.trial
    kept = said(Ended, best, weights=sha256(b"weights").hexdigest())(TIMED)
    assert found(TIMED, "weights", files).text == "no weights were kept"
    assert found(kept, "weights", files).outcome is Outcome.UNKNOWN
    files.weights_directory.mkdir()
    for content, outcome in ((b"weights", Outcome.PASSED), (b"other weights", Outcome.FAILED)):
        files.weights(best).write_bytes(content)
        assert found(kept, "weights", files).outcome is outcome


# Eligibility


IMAGENET: dict[str, object] = {
    "name": "imagefolder",
    "synthetic": False,
    "channels": 3,
    "size": 224,
    "classes": 1000,
    "sha256": "1ma6e",
    "official_training_examples": 1_281_167,
    "training_examples": 1_231_167,
    "validation_examples": 50_000,
    "test_examples": 50_000,
    "test_examples_per_class": [50, 50],
}
RANKED = resolved_preset("ranked")
IN_AN_HOUR = together(
    each(Opened, lambda event: replace(event, config=RANKED)),
    each(Closed, lambda event: within(event, train_examples=100 * event.segment.train_examples)),
    each(Closed, lambda event: replace(event, logs="1095" * 16)),
    said(Ended, weights="3e16" * 16),
    said(events.Tested, tally=Classified(50_000, 40_000)),
)(TIMED)


class Ranked:
    """What eligibility reads of a run that would be ranked, without an hour of it."""

    def __init__(self, data: Mapping[str, object] = IMAGENET) -> None:
        self.replay = replayed(said(RankReady, data=data)(IN_AN_HOUR))
        self.leg = self.replay.leg
        assert self.replay.best is not None
        assert self.leg.ended is not None
        self.best = self.replay.best
        self.first = next(attempt for attempt in self.replay.attempts if len(attempt.validations) > 1)
        self.join()
        self.end_at(3600)

    def join(self, **fields: object) -> None:
        """The fabric between its two hosts otherwise."""
        nodes = tuple(FabricNode(ready.host) for ready in self.leg.devices.values())
        once = TimedAllReduce(1 << 16, 1e-4)
        coupled = Coupled("", 224, 256, 20, 60.0, 200.0)
        fabric = Fabric(2, "nccl", nodes, (once,), ((1e10,),), {"NET/IB": 8}, 9.0, coupled=coupled)
        self.leg.fabric = replace(fabric, **fields)  # type: ignore[arg-type]

    def end_at(self, seconds: float, reason: str = "deadline") -> None:
        self.leg.deadline = 12.0 + seconds
        self.leg.ended = LegEnded(reason, self.leg.deadline)
        self.use(0.01)

    def use(self, others: float, seconds: float = 3600.0) -> None:
        """Others take this share of each host's processors, which are looked at for so long."""
        assert self.leg.released is not None
        taken = HostUse(0, seconds, 8 * seconds, (7 - 8 * others) * seconds, seconds, 0.0, 0.0)
        end = self.leg.released + seconds
        self.leg.uses = [events.HostUsed(replace(taken, rank=rank), end) for rank in self.leg.devices]

    def check(self, before: Mapping[int, str], after: Mapping[int, str]) -> None:
        """What devices computed before and after the span, by rank."""
        for checks, digests in ((self.leg.checks, before), (self.leg.end_checks, after)):
            checks.update({rank: DeviceCheck(rank, (each,), 2, 5.0) for rank, each in digests.items()})

    def test(self, correct: int) -> None:
        self.replay.tested = Evaluated(self.best.number, Classified(50_000, correct), 9.0)

    def configure(self, **overrides: object) -> None:
        opened = self.replay.opened
        self.replay._opened = replace(opened, config=with_overrides(opened.config, overrides))

    def validate(self, logs: str = "1095" * 16, **fields: object) -> None:
        """The first validation of a trial otherwise."""
        place, closed = self.first.places[0], self.replay.validations
        closed.logs[place] = logs
        for name, value in fields.items():
            closed.rows[name][place] = value

    def keep_nothing(self) -> None:
        best = self.best.attempts[-1]
        best.attempt_rows.weights[best.index] = ""

    def idle(self) -> None:
        self.replay.arrivals = [attempt for attempt in self.replay.arrivals if attempt.group == 0]

    def failed(self) -> dict[str, str]:
        return {f.rule: f.text for f in judge(self.replay, None).failed(Kind.ELIGIBILITY)}


def test_ranked_needs_every_rule_an_intact_run_and_known_rules_of_integrity() -> None:
    """A rule is unknown as `search` of a journal with another code's hash or search."""
    assert {rule.name for rule in RULES} >= KNOWN_IF_RANKED.keys()
    verdict = judge(Ranked().replay, None)
    eligible = tuple(finding for finding in verdict.findings if finding.kind is Kind.ELIGIBILITY)
    assert Verdict(eligible).run_class is RunClass.RANKED
    assert (verdict.valid, verdict.run_class) == (False, None), "it never happened"
    for rule in KNOWN_IF_RANKED:
        unknown = Finding(rule, Kind.INTEGRITY, Outcome.UNKNOWN, "made by another version")
        doubtful = Verdict((*eligible, unknown))
        assert (doubtful.valid, doubtful.run_class, doubtful.unmet) == (True, RunClass.SMOKE, [unknown])
        assert Verdict((*eligible, replace(unknown, outcome=Outcome.PASSED))).run_class is RunClass.RANKED
        earlier = replace(doubtful, rules=KNOWN_IF_RANKED[rule] - 1)
        assert earlier.run_class is RunClass.RANKED, "a journal of an earlier version is judged as it was"
        assert earlier.class_text == f"ranked by version {earlier.rules} of the rules"
    assert Verdict(eligible).class_text == "ranked"


configured, validated, joined = (partial(methodcaller, name) for name in ("configure", "validate", "join"))


def coupled(over_all: int = 1 << 16, **fields: object) -> Callable[[Ranked], None]:
    """Another coupled control, and another measurement, which may contradict it."""

    def change(run: Ranked) -> None:
        assert run.leg.fabric is not None
        assert run.leg.fabric.coupled is not None
        other = replace(run.leg.fabric.coupled, **fields)  # type: ignore[arg-type]
        run.join(coupled=other, over_all=(TimedAllReduce(over_all, 1.0),))

    return change


DIED = "node2: rank 2, the first coupled step: its process was killed by signal 9"
HUNG = (FabricNode("node1"), FabricNode("node2", reason="connecting to all other ranks: no answer in 60 s"))


def spoilt(rule: str, spoil: Callable[[Ranked], object]) -> str:
    """What a rule of eligibility says is missing."""
    run = Ranked()
    spoil(run)
    return run.failed()[rule]


def unmet(rule: str, spoil: Callable[[Ranked], object]) -> list[str]:
    """What it says of something that must be known, and whose figures convict nobody."""
    run = Ranked()
    assert run.failed() == {}
    spoil(run)
    assert rule not in run.failed()
    return [finding.text for finding in judge(run.replay, None).unmet if finding.rule == rule]


def devices(before: Mapping[int, str], after: Mapping[int, str]) -> tuple[str, str]:
    """What is said of them where it costs no class."""
    run = Ranked()
    run.check(before, after)
    verdict = judge(run.replay, None)
    finding = found(verdict, "ranked devices")
    assert finding not in verdict.unmet
    return finding.outcome.name, finding.text


def fails(meet: Callable[[Ranked], None]) -> dict[str, str]:
    """Nothing, if a run meets every rule."""
    run = Ranked()
    meet(run)
    return run.failed()


def packed(side: int) -> dict[str, str]:
    """What images fail that were packed at this side."""
    return Ranked({**IMAGENET, "name": "packed", "packed": {"side": side}}).failed()


def again(rule: str, edit: Edit) -> str:
    """The outcome of what is made again, which is unknown where it cannot be."""
    return found(edit(TIMED), rule).outcome.name


def data(**changes: object) -> str:
    return found(with_manifest(**{**IMAGENET, **changes})(IN_AN_HOUR), "ranked data").text


def test_each_rule_of_eligibility_says_what_is_missing_and_what_stands_in_its_way_is_foreseen(
    comes_to_what_was_read: ComesTo,
) -> None:
    names = {"foreseen": foreseen, "with_overrides": with_overrides, "with_config": with_config}
    comes_to_what_was_read("eligibility.txt", {**globals(), **names})


@pytest.mark.parametrize(
    ("name", "rules"), [("disturbance", 1), ("fabric", 1), ("devices", 1), ("coupled", 2)]
)
def test_a_run_of_older_rules_is_not_asked_for_what_they_did_not_ask(name: str, rules: int) -> None:
    run, asked = Ranked(), list[set[str]]()
    for version in (rules + 1, rules):
        run.replay._opened = replace(run.replay.opened, rules=version)
        asked.append({rule.name for rule in rules_of(run.replay)})
    assert f"ranked {name}" in asked[0] - asked[1]


def test_every_rule_has_a_name_of_its_own_and_is_broken_by_a_test() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    paths = [path for kind in ("test_*.py", "*.txt") for path in Path(__file__).parent.glob(kind)]
    texts = "".join(path.read_text(encoding="utf-8") for path in paths)
    assert [rule.name for rule in RULES if f'"{rule.name}"' not in texts] == []
