"""What a verdict follows from, what may keep a run from being judged, and what a class needs.

One file, because each demand of a class is left out of the same ranked run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

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
from aiperf.wire.messages import Coupled, DeviceCheck, Evaluated, Fabric, FabricNode, HostUse, TimedAllReduce
from tests.aiperf.presets import resolved_preset
from tests.aiperf.rules.forged import (
    Edit,
    each,
    failed,
    found,
    judged,
    one,
    said,
    together,
    with_config,
    with_manifest,
    without,
)
from tests.journals import Scene, replayed, told, within, write_run

TIMED = told(Scene(minutes=0.15))


def test_a_good_run_passes_every_rule_of_integrity_that_has_something_to_look_at() -> None:
    verdict = judged(TIMED)
    integrity = [f for f in verdict.findings if f.kind is Kind.INTEGRITY]
    not_passed = {f.rule: f.outcome for f in integrity if f.outcome is not Outcome.PASSED}
    assert not_passed == {"witnesses": Outcome.UNKNOWN, "weights": Outcome.UNKNOWN}
    assert verdict.valid
    assert verdict.run_class is RunClass.SMOKE


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


@pytest.mark.parametrize(
    ("rule", "edit", "outcome"),
    [
        ("seed", with_config(seed_architecture="mine.json"), Outcome.UNKNOWN),
        ("search", each(Opened, lambda event: replace(event, search=event.search + 1)), Outcome.UNKNOWN),
        # Other code that proposes the same can be asked again.
        ("search", each(Opened, lambda event: replace(event, code_hash="other")), Outcome.PASSED),
    ],
)
def test_what_cannot_be_made_again_is_unknown(rule: str, edit: Edit, outcome: Outcome) -> None:
    assert found(edit(TIMED), rule).outcome is outcome


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
        last = self.best.attempts[-1]
        assert last.ended is not None
        last.ended = within(last.ended, weights="")

    def idle(self) -> None:
        self.replay.arrivals = [attempt for attempt in self.replay.arrivals if attempt.group == 0]

    def failed(self) -> dict[str, str]:
        return {f.rule: f.text for f in judge(self.replay, None).failed(Kind.ELIGIBILITY)}


@pytest.mark.parametrize(
    "meet",
    [
        lambda run: None,
        lambda run: run.test(35_000),  # an error of thirty percent
        lambda run: setattr(run.leg, "deadline", 12.0 + 3600 - 1e-9),  # of two times that are rounded
    ],
)
def test_a_run_that_meets_every_rule_of_eligibility_fails_none(meet: Callable[[Ranked], None]) -> None:
    run = Ranked()
    meet(run)
    assert run.failed() == {}


@pytest.mark.parametrize(
    ("side", "wrong"), [(256, {}), (64, {"ranked data": "the images are packed at 64², not 256² or more"})]
)
def test_packed_images_are_those_of_the_folder_where_they_are_large_enough(
    side: int, wrong: dict[str, str]
) -> None:
    assert Ranked({**IMAGENET, "name": "packed", "packed": {"side": side}}).failed() == wrong


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


def configured(**overrides: object) -> Callable[[Ranked], None]:
    return lambda run: run.configure(**overrides)


def validated(**fields: Any) -> Callable[[Ranked], None]:
    return lambda run: run.validate(**fields)


def joined(**fields: object) -> Callable[[Ranked], None]:
    return lambda run: run.join(**fields)


ELSEWHERE = "the fabric was measured by 2 ranks on 2 hosts, and 2 ranks on 2 hosts trained, not all the same"
DEVIATED = "rank 2 on node2 (NVIDIA H200) computed other bits after the span than before it"
SPOILT = {
    "ranked span": [
        (lambda run: run.end_at(3599), "the span is 59.98 minutes; at least 60 are required"),
        (lambda run: run.replay.legs.insert(0, replace(run.leg)), "the run has 2 legs, not one"),
    ],
    "complete": [
        (lambda run: run.end_at(3600, "interrupted"), "did not end at a deadline: interrupted"),
        (lambda run: setattr(run.leg, "ended", None), "the run has not ended"),
    ],
    "ranked error": [
        (lambda run: run.test(34_999), "the error is 30.0 %, above the limit of 30 %"),
        (Ranked.keep_nothing, "the weights of the tested network were not kept"),
    ],
    "ranked segments": [
        (validated(logs=""), "no hash of the rank logs at 1 validation"),
        (validated(train_seconds=601.0), "trial 0, segment 0 took 601 s"),
        (validated(train_examples=50 * 3000), "after 150000 images, less than an eighth of an epoch"),
    ],
    "ranked trials": [(Ranked.idle, "group 1 completed no trial")],
    "ranked control": [(lambda run: run.leg.controls.pop(2), "rank 2 has no control in leg 0")],
    "ranked precision": [(configured(**{"training.format": "auto"}), "fewer than 16 bits")],
    "ranked architecture": [
        (configured(seed_architecture="resnet18"), "the seed is resnet18, not resnet50"),
        (configured(**{"search.bounds.max_operations": 8.0}), "search.bounds are not the defaults"),
    ],
    "ranked random seed": [(configured(random_seed=7), "random_seed is 7, not this season's 1")],
    "ranked fabric": [
        (joined(nodes=(FabricNode("node1"), FabricNode("node9"))), ELSEWHERE),
        (joined(ranks=16), "measured by 16 ranks on 2 hosts, and 2 ranks on 2 hosts trained"),
    ],
    "ranked disturbance": [
        (lambda run: run.use(0.051), "5.1 % of the CPU time of node1 went to other programs; at most 5.0 %"),
    ],
    "ranked devices": [
        (lambda run: run.check({1: "a", 2: "a"}, {1: "a", 2: "b"}), DEVIATED),
        (
            lambda run: run.check({1: "a"}, {1: "a"}),
            "rank 2 has no device check in leg 0, though others have",
        ),
    ],
}


@pytest.mark.parametrize(
    ("rule", "spoil", "text"), [(rule, *case) for rule, cases in SPOILT.items() for case in cases]
)
def test_each_rule_of_eligibility_says_what_is_missing(
    rule: str, spoil: Callable[[Ranked], object], text: str
) -> None:
    run = Ranked()
    spoil(run)
    assert text in run.failed()[rule]


def test_a_ranked_run_must_know_how_its_hosts_were_used() -> None:
    run = Ranked()
    run.use(0.01, seconds=2800)
    verdict = judge(run.replay, None)
    unknown = [f.text for f in verdict.unmet if f.rule == "ranked disturbance"]
    assert unknown == ["how the processors of node1; node2 were used was not reported"]


@pytest.mark.parametrize(
    ("name", "rules"), [("disturbance", 1), ("fabric", 1), ("devices", 1), ("coupled", 2)]
)
def test_a_run_of_older_rules_is_not_asked_for_what_they_did_not_ask(name: str, rules: int) -> None:
    run, asked = Ranked(), list[set[str]]()
    for version in (rules + 1, rules):
        run.replay._opened = replace(run.replay.opened, rules=version)
        asked.append({rule.name for rule in rules_of(run.replay)})
    assert f"ranked {name}" in asked[0] - asked[1]


DIED = "node2: rank 2, the first coupled step: its process was killed by signal 9"


@pytest.mark.parametrize(
    ("fields", "over_all", "text"),
    [
        ({"reason": DIED}, 1 << 16, f"the coupled control was not measured: {DIED}"),
        ({"seconds": 20.0}, 1 << 16, "the devices are 2.56 times as fast together as by themselves"),
        ({"uncoupled_per_second": 29.0, "seconds": 400.0}, 1 << 16, "the control is 7.00 times as fast as"),
        ({}, 4 << 20, "the coupled control sent its gradients 8.1 times as fast as the all-reduces"),
    ],
)
def test_a_ranked_run_must_know_its_coupled_control_and_another_measurement_may_contradict_it(
    fields: dict[str, object], over_all: int, text: str
) -> None:
    run = Ranked()
    assert run.failed() == {}
    assert run.leg.fabric is not None
    assert run.leg.fabric.coupled is not None
    coupled = replace(run.leg.fabric.coupled, **fields)  # type: ignore[arg-type]
    run.join(coupled=coupled, over_all=(TimedAllReduce(over_all, 1.0),))
    (unknown,) = [f.text for f in judge(run.replay, None).unmet if f.rule == "ranked coupled"]
    assert text in unknown


HUNG = (FabricNode("node1"), FabricNode("node2", reason="connecting to all other ranks: no answer in 60 s"))
NO_FABRIC = "the fabric between 2 hosts was not measured"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"nodes": HUNG}, f"{NO_FABRIC}: the others waited for node2"),
        *((each, NO_FABRIC) for each in ({"missing": (2,)}, {"rounds": ()}, {"over_all": ()})),
        *((each, NO_FABRIC) for each in ({"rounds": ((0.0,),)}, {"rounds": ((1e9, 1e9),)})),
    ],
)
def test_a_ranked_run_must_know_its_fabric_and_no_figure_of_it_convicts(
    fields: dict[str, object], text: str
) -> None:
    run = Ranked()
    run.join(rounds=((1.0,),), transports={"NET/Socket": 1})  # as slow as can be
    assert run.failed() == {}
    for fabric in (None, replace(run.leg.fabric, **fields)):  # type: ignore[arg-type, type-var]
        run.leg.fabric = fabric
        verdict = judge(run.replay, None)
        unknown = [f.text for f in verdict.unmet if f.rule == "ranked fabric"]
        assert unknown == [NO_FABRIC if fabric is None else text]
        assert "ranked fabric" not in run.failed()


@pytest.mark.parametrize(
    ("before", "after", "outcome", "text"),
    [
        ({}, {}, Outcome.UNKNOWN, "no device was checked"),
        ({1: "a", 2: "b"}, {1: "a", 2: "b"}, Outcome.UNKNOWN, "2 equal devices (NVIDIA H200) all computed"),
        ({1: "a", 2: "a"}, {1: "a", 2: "a"}, Outcome.PASSED, "2 devices computed the same bits before and"),
    ],
)
def test_devices_that_cannot_be_compared_cost_no_class(
    before: Mapping[int, str], after: Mapping[int, str], outcome: Outcome, text: str
) -> None:
    run = Ranked()
    run.check(before, after)
    verdict = judge(run.replay, None)
    (finding,) = [each for each in verdict.findings if each.rule == "ranked devices"]
    assert finding.outcome is outcome
    assert finding.text.startswith(text)
    assert finding not in verdict.unmet


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"classes": 100}, "classes is 100, not 1000"),
        ({"size": 160}, "size is 160, not 224"),
        ({"synthetic": True}, "synthetic is True, not False"),
        ({"official_training_examples": 1_000_000}, "official_training_examples is 1000000, not 1281167"),
        ({"test_examples": 10_000}, "test_examples is 10000, not 50000"),
        ({"test_examples_per_class": [49, 51]}, "test_examples_per_class is [49, 51], not [50, 50]"),
        ({"training_examples": 500_000}, "use 550000 of the official training images"),
        ({"training_examples": 781_167, "validation_examples": 500_000}, "validation_examples is 500000, n"),
    ],
)
def test_ranked_data_is_imagenet_whole(changes: dict[str, object], text: str) -> None:
    assert text in found(with_manifest(**{**IMAGENET, **changes})(IN_AN_HOUR), "ranked data").text


NOT_ALL = "training and validation use 1231167 of the official training images, not all"
TOO_OFTEN = "validate_every_examples is 150000, less than an eighth of an epoch (153896)"


@pytest.mark.parametrize(
    ("overrides", "entries", "text"),
    [
        ({"limits.minutes": 30.0}, {}, "limits.minutes is 30; at least 60 are required"),
        ({}, {"synthetic": True}, "synthetic is True, not False"),
        ({}, {"validation_examples": 0}, NOT_ALL),
        ({"training.validate_every_examples": 150_000}, {}, TOO_OFTEN),
        ({"seed_architecture": "resnet18"}, {}, "the seed is resnet18, not resnet50"),
        ({"random_seed": 7}, {}, "random_seed is 7, not this season's 1"),
    ],
)
def test_what_stands_in_the_way_of_a_rank_is_foreseen(
    overrides: dict[str, object], entries: dict[str, object], text: str
) -> None:
    assert foreseen(RANKED, IMAGENET) == []
    unbounded = ["Abacus 9: neither a listed peak in bf16 nor a known instruction set"]
    assert foreseen(RANKED, IMAGENET, ["Abacus 9"]) == unbounded
    assert foreseen(with_overrides(RANKED, overrides), {**IMAGENET, **entries}) == [text]


def test_every_rule_has_a_name_of_its_own_and_is_broken_by_a_test() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    texts = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [rule.name for rule in RULES if f'"{rule.name}"' not in texts] == []
