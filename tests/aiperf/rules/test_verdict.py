"""Each rule once met and once broken; what a class needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from aiperf.config import with_overrides
from aiperf.files import RunFiles
from aiperf.journal import events
from aiperf.journal.events import (
    CeilingMeasured,
    Closed,
    ControlMeasured,
    Ended,
    Event,
    LegBegan,
    LegEnded,
    Opened,
    RankReady,
    Released,
    Stepped,
)
from aiperf.journal.replay import Replay
from aiperf.rules.eligibility import foreseen
from aiperf.rules.rule import Evidence, Finding, Kind, Outcome, Rule, Seen
from aiperf.rules.verdict import KNOWN_IF_RANKED, RULES, RunClass, Verdict, judge
from aiperf.tally import Classified
from aiperf.wire.messages import Evaluated
from tests.aiperf.presets import resolved_preset
from tests.journals import DATA, Scene, Timed, told, within, write_run, write_witnesses

TIMED = told(Scene(minutes=0.15))


def verdict_on(timed: list[Timed], files: RunFiles | None = None) -> Verdict:
    replay = Replay()
    for t, event in timed:
        replay.add(t, event)
    return judge(replay, files)


def found(verdict: Verdict, rule: str) -> tuple[Outcome, str]:
    (finding,) = [finding for finding in verdict.findings if finding.rule == rule]
    return finding.outcome, finding.text


def changed(kind: type[Event], change: Callable[[Event], Event], timed: list[Timed] = TIMED) -> list[Timed]:
    """The first event of a kind, changed."""
    place = next(place for place, (_, event) in enumerate(timed) if isinstance(event, kind))
    return [*timed[:place], (timed[place][0], change(timed[place][1])), *timed[place + 1 :]]


def of_first_rank(**fields: object) -> list[Timed]:
    def change(event: Event) -> Event:
        assert isinstance(event, RankReady)
        return replace(event, ready=replace(event.ready, **fields))  # type: ignore[arg-type]

    return changed(RankReady, change)


def opened_with(**overrides: object) -> list[Timed]:
    def change(event: Event) -> Event:
        assert isinstance(event, Opened)
        return replace(event, config=with_overrides(event.config, overrides))

    return changed(Opened, change)


# The verdict


def test_a_good_run_passes_every_rule_of_integrity_that_has_something_to_look_at() -> None:
    verdict = verdict_on(TIMED)
    integrity = [f for f in verdict.findings if f.kind is Kind.INTEGRITY]
    assert {f.rule for f in integrity if f.outcome is not Outcome.PASSED} == {"witnesses", "weights"}
    assert {f.outcome for f in integrity if f.rule in ("witnesses", "weights")} == {Outcome.UNKNOWN}
    assert verdict.valid
    assert verdict.run_class is RunClass.SMOKE


@pytest.mark.parametrize(
    "scene",
    [
        Scene(minutes=0.2, out_of_memory=frozenset({1, 4})),
        Scene(minutes=0.3, lost=((1, 16.0), (0, 20.0))),
        Scene(minutes=0.4, killed_at=20.0),
        Scene(minutes=0, max_trials=6),
        Scene(minutes=0.2, groups=1, ranks_of_a_group=4),
        Scene(minutes=0.02),
    ],
)
def test_what_can_happen_to_an_honest_run_does_not_make_it_invalid(tmp_path: Path, scene: Scene) -> None:
    timed = told(scene)
    files = write_run(tmp_path / "run", timed)
    assert verdict_on(timed, files).failed(Kind.INTEGRITY) == []


def test_a_leg_without_any_time_left_ends_as_its_deadline_says() -> None:
    """As after a kill between the deadline and the test: the release is written just after it was decided."""
    before = [(t, event) for t, event in TIMED if not isinstance(event, events.Tested)]
    starts = (LegBegan, RankReady, CeilingMeasured, ControlMeasured)
    again = changed(LegBegan, lambda event: replace(event, index=1))
    again = [(t, event) for t, event in again if isinstance(event, starts)]
    t = again[-1][0] + 1
    after = [(t, Released(t - 2e-5)), (t + 1, LegEnded("deadline", t - 2e-5))]
    assert verdict_on([*before, *again, *after]).failed(Kind.INTEGRITY) == []


def test_a_run_can_be_judged_while_it_goes_on() -> None:
    for end in range(1, len(TIMED), 7):
        assert verdict_on(TIMED[:end]).failed(Kind.INTEGRITY) == [], TIMED[end - 1]


def test_names_of_rules_are_unique() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_finding_names_three_contradictions_and_how_many_more() -> None:
    rule = Rule("x", Kind.INTEGRITY, lambda evidence: Seen("", ["a", "b", "c", "d", "e"]))
    (finding,) = [rule.find(Evidence(None, None, None, None))]  # type: ignore[arg-type]
    assert (finding.outcome, finding.text) == (Outcome.FAILED, "a; b; c; and 2 more")


# Integrity, rule by rule

BROKEN: list[tuple[str, list[Timed], str]] = [
    ("ranks", of_first_rank(initial_weights="others"), "started with different initial weights"),
    ("code", of_first_rank(code_hash="other"), "rank 1 on node1 ran different code"),
    ("data", of_first_rank(data={**DATA, "sha256": "other"}), "saw different images"),
    ("data", of_first_rank(data={**DATA, "classes": 11}), "data.classes is 11, but 10 is configured"),
    (
        "clocks",
        changed(RankReady, lambda e: replace(e, clock_offset_seconds=-1.2)),  # type: ignore[call-arg]
        "the clock of node1 is 1.2 s off",
    ),
    ("initialisation", [(t + 1800 if i > 1 else t, e) for i, (t, e) in enumerate(TIMED)], "it took 18"),
    ("span", opened_with(**{"limits.minutes": 3.0}), "to its deadline; limits.minutes leaves 180.0 s"),
    ("span", opened_with(**{"limits.minutes": 0.0, "limits.max_trials": 5}), "but limits.minutes is 0"),
    ("span", [(t + 40 if i > 30 else t, e) for i, (t, e) in enumerate(TIMED)], "has no lines for 40 s"),
    (
        "times",
        changed(Closed, lambda e: replace(e, end=e.end + 1)),  # type: ignore[attr-defined,call-arg]
        "segment 0 at ",
    ),
    (
        "times",
        changed(Stepped, lambda e: within(e, seconds=-1.0)),
        "has no steps or took no time",
    ),
    ("times", changed(Ended, lambda e: replace(e, end=99.0)), "its end at 99.000 s"),  # type: ignore[call-arg]
    ("seed", opened_with(seed_architecture="resnet18"), "is not resnet18"),
    ("seed", opened_with(**{"data.size": 28}), "the seed is for 10 classes of 1 x 32 x 32"),
    ("bounds", opened_with(**{"search.bounds.max_parameters": 1.0}), "is outside search.bounds"),
    ("examples", opened_with(**{"training.validate_every_examples": 100}), "steps, but 2 were planned"),
    (
        "examples",
        opened_with(**{"training.epochs": [5]}),
        "20 epochs, more than training.epochs has",
    ),
    ("search", opened_with(random_seed=2), "the search proposes"),
]


@pytest.mark.parametrize(
    ("rule", "timed", "text"), BROKEN, ids=[f"{r}-{n}" for n, (r, _, _) in enumerate(BROKEN)]
)
def test_a_broken_rule_says_what_was_seen(rule: str, timed: list[Timed], text: str) -> None:
    verdict = verdict_on(timed)
    outcome, seen = found(verdict, rule)
    assert outcome is Outcome.FAILED
    assert text in seen
    assert not verdict.valid


def test_a_rank_that_was_never_seen_is_named() -> None:
    def wider(event: Event) -> Event:
        assert isinstance(event, events.LegBegan)
        return replace(event, groups=((1, 3), (2,)))

    assert found(verdict_on(changed(events.LegBegan, wider)), "ranks")[1] == "rank 3 was never ready in leg 0"


def test_a_seed_from_a_file_cannot_be_compared_with_a_name() -> None:
    outcome, text = found(verdict_on(opened_with(seed_architecture="mine.json")), "seed")
    assert outcome is Outcome.UNKNOWN
    assert text.startswith("the seed mine.json is a file")


def test_another_version_of_the_search_cannot_be_asked_again() -> None:
    timed = changed(Opened, lambda e: replace(e, search=e.search + 1))  # type: ignore[call-arg]
    assert found(verdict_on(timed), "search")[0] is Outcome.UNKNOWN


def test_code_that_proposes_the_same_can_be_asked_again() -> None:
    timed = changed(Opened, lambda e: replace(e, code_hash="other"))  # type: ignore[call-arg]
    assert found(verdict_on(timed), "search")[0] is Outcome.PASSED


def test_nobody_computes_faster_than_the_data_sheet_says() -> None:
    """A T4 in fp32 is said to have trained at the rate of this run, a million times over."""
    assert found(verdict_on(TIMED), "speed")[0] is Outcome.PASSED
    assert found(verdict_on(told(Scene(minutes=0.1, device="Abacus 9"))), "speed")[0] is Outcome.UNKNOWN
    faster = [(12 + (t - 12) / 1e6 if t > 12 else t, _sped(event)) for t, event in TIMED]
    outcome, text = found(verdict_on(faster), "speed")
    assert outcome is Outcome.FAILED
    assert "of the most that the devices can do" in text


def _sped(event: Event) -> Event:
    """Every time after the release, a million times nearer to it."""
    if isinstance(event, Released):
        assert event.deadline is not None
        return replace(event, deadline=12 + (event.deadline - 12) / 1e6)
    if isinstance(event, (Closed, Stepped, LegEnded)):
        return replace(event, end=12 + (event.end - 12) / 1e6)
    return event


# Witnesses


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return write_run(tmp_path / "run", TIMED)


def test_ranks_that_wrote_the_same_are_counted(files: RunFiles) -> None:
    assert found(verdict_on(TIMED, files), "witnesses") == (
        Outcome.PASSED,
        "2 rank logs agree with the journal; none missing",
    )
    files.witness("node2", 2).unlink()
    assert found(verdict_on(TIMED, files), "witnesses") == (
        Outcome.UNKNOWN,
        "1 rank log agrees with the journal; missing or incomplete: rank 2 on node2",
    )


def test_a_step_that_a_rank_did_not_write_is_named(files: RunFiles) -> None:
    path = files.witness("node1", 1)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    outcome, text = found(verdict_on(TIMED, files), "witnesses")
    assert outcome is Outcome.FAILED
    assert text == (
        "rank 1 wrote 25 steps of trial 0, attempt 1, segment 0; the journal has 40; "
        "the ranks wrote 1250 images of trial 0, attempt 1, segment 0; the journal has 2000"
    )


def test_the_ranks_of_a_group_must_add_up_to_it_when_all_their_logs_are_at_hand(tmp_path: Path) -> None:
    timed = told(Scene(minutes=0.1, groups=1, ranks_of_a_group=3))
    files = write_run(tmp_path / "run", timed)
    assert found(verdict_on(timed, files), "witnesses")[1].startswith("3 rank logs agree")
    path = files.witness("node2", 2)
    path.write_text(path.read_text().replace('"examples": 250', '"examples": 251', 1))
    outcome, text = found(verdict_on(timed, files), "witnesses")
    assert outcome is Outcome.FAILED
    assert text == "the ranks wrote 2001 images of trial 0, attempt 1, segment 0; the journal has 2000"
    files.witness("node3", 3).unlink()
    assert found(verdict_on(timed, files), "witnesses")[0] is Outcome.UNKNOWN
    path.write_text(path.read_text().replace('"steps": 15', '"steps": 16', 1))
    text = "rank 2 wrote 41 steps of trial 0, attempt 1, segment 0; the journal has 40"
    assert found(verdict_on(timed, files), "witnesses") == (Outcome.FAILED, text)


def test_a_damaged_log_is_named_and_a_torn_end_is_not(files: RunFiles) -> None:
    path = files.witness("node1", 1)
    whole = path.read_text()
    path.write_text(whole + '{"trial": 3, "att')
    assert found(verdict_on(TIMED, files), "witnesses")[0] is Outcome.PASSED
    for nonsense in (
        "nonsense",
        "[" * 100_000,
        whole.splitlines()[0].replace('"steps": ', '"steps": Infinity, "x": '),
    ):
        path.write_text(f"{nonsense}\n{whole}")
        assert "line 1 of" in found(verdict_on(TIMED, files), "witnesses")[1]


@pytest.mark.parametrize("steps", ["1e999", "NaN", "[" * 100_000, "null", '"\u0000"'])
def test_a_log_of_nonsense_is_named(steps: str, files: RunFiles) -> None:
    path = files.witness("node1", 1)
    path.write_text(f'{{"trial": 0, "attempt": 1, "segment": 0, "examples": 1, "steps": {steps}}}\n')
    assert "line 1 of" in found(verdict_on(TIMED, files), "witnesses")[1]


def test_what_lies_where_logs_and_weights_should_is_not_at_hand(files: RunFiles) -> None:
    """Hosts are named by the journal, which is anybody's."""
    for host in ("node1", "node2"):
        path = files.witness(host, int(host[-1]))
        path.unlink()
        path.mkdir()
    assert found(verdict_on(TIMED, files), "witnesses")[0] is Outcome.UNKNOWN
    long = [
        (t, replace(e, ready=replace(e.ready, host="h" * 5000)) if isinstance(e, RankReady) else e)
        for t, e in TIMED
    ]
    assert found(verdict_on(long, files), "witnesses")[0] is Outcome.UNKNOWN


def test_steps_that_were_written_but_never_reported_are_no_contradiction(tmp_path: Path) -> None:
    """The master was killed: the ranks were some blocks ahead of the journal."""
    place = max(place for place, (_, event) in enumerate(TIMED) if isinstance(event, Stepped))
    files = write_run(tmp_path / "run", TIMED[:place])
    write_witnesses(files, TIMED[: place + 1])
    assert found(verdict_on(TIMED[:place], files), "witnesses")[0] is Outcome.PASSED


def test_the_kept_weights_are_those_that_were_recorded(files: RunFiles) -> None:
    verdict = verdict_on(TIMED, files)
    best = next(e.evaluated.trial for _, e in TIMED if isinstance(e, events.Tested))
    recorded = sha256(b"weights").hexdigest()
    kept = [
        (t, within(e, weights=recorded) if isinstance(e, Ended) and e.finished.trial == best else e)
        for t, e in TIMED
    ]
    assert found(verdict, "weights") == (Outcome.UNKNOWN, "no weights were kept")
    assert found(verdict_on(kept, files), "weights")[0] is Outcome.UNKNOWN
    files.weights_directory.mkdir()
    files.weights(best).write_bytes(b"weights")
    assert found(verdict_on(kept, files), "weights")[0] is Outcome.PASSED
    files.weights(best).write_bytes(b"other weights")
    assert found(verdict_on(kept, files), "weights")[0] is Outcome.FAILED


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


class Ranked:
    """What eligibility reads of a run that would be ranked, without an hour of it."""

    def __init__(self, data: Mapping[str, object] = IMAGENET) -> None:
        self.replay = Replay()
        config = resolved_preset("ranked")
        opened = next(event for _, event in TIMED if isinstance(event, Opened))
        self.replay.add(0.0, replace(opened, config=config))
        for t, event in TIMED[1:]:
            if isinstance(event, RankReady):
                event = replace(event, ready=replace(event.ready, data=data))
            elif isinstance(event, Closed):
                event = within(event, train_examples=100 * event.segment.train_examples)
                event = replace(event, logs="1095" * 16)
            elif isinstance(event, Ended):
                event = within(event, weights="3e16" * 16)
            self.replay.add(t, event)
        leg = self.replay.leg
        assert leg.ended is not None
        leg.deadline = 12.0 + 3600
        leg.ended = replace(leg.ended, end=leg.deadline)
        for attempt in self.replay.attempts:
            attempt.leg = leg
        self.replay.tested = Evaluated(self.replay.best.number, Classified(50_000, 40_000), 9.0)  # type: ignore[union-attr]

    def failed(self) -> dict[str, str]:
        verdict = judge(self.replay, None)
        return {finding.rule: finding.text for finding in verdict.failed(Kind.ELIGIBILITY)}


def test_a_run_that_meets_every_rule_of_eligibility_fails_none() -> None:
    assert Ranked().failed() == {}


@pytest.mark.parametrize(
    ("side", "wrong"), [(256, {}), (64, {"ranked data": "the images are packed at 64², not 256² or more"})]
)
def test_packed_images_are_those_of_the_folder_where_they_are_large_enough(
    side: int, wrong: dict[str, str]
) -> None:
    assert Ranked({**IMAGENET, "name": "packed", "packed": {"side": side}}).failed() == wrong


def test_an_hour_is_an_hour_though_its_two_times_are_rounded() -> None:
    ranked = Ranked()
    ranked.replay.leg.deadline = 12.0 + 3600 - 1e-9
    assert ranked.failed() == {}


def test_an_error_of_thirty_percent_is_good_enough() -> None:
    ranked = Ranked()
    best = ranked.replay.best
    assert best is not None
    ranked.replay.tested = Evaluated(best.number, Classified(50_000, 35_000), 9.0)
    assert ranked.failed() == {}


def test_ranked_needs_every_rule_and_an_intact_run() -> None:
    ranked = Ranked()
    found = judge(ranked.replay, None)
    eligible = tuple(finding for finding in found.findings if finding.kind is Kind.ELIGIBILITY)
    assert Verdict(eligible).run_class is RunClass.RANKED
    assert not found.valid  # it never happened
    assert found.run_class is None


@pytest.mark.parametrize("rule", sorted(KNOWN_IF_RANKED))
def test_what_nobody_could_look_at_costs_the_rank_and_is_told(rule: str) -> None:
    """As `search` of a journal with another code's hash or search."""
    eligible = [f for f in judge(Ranked().replay, None).findings if f.kind is Kind.ELIGIBILITY]
    unknown = Finding(rule, Kind.INTEGRITY, Outcome.UNKNOWN, "made by another version")
    verdict = Verdict((*eligible, unknown))
    assert (verdict.valid, verdict.run_class, verdict.unmet) == (True, RunClass.SMOKE, [unknown])
    assert Verdict((*eligible, replace(unknown, outcome=Outcome.PASSED))).run_class is RunClass.RANKED


def test_rules_that_must_be_known_are_rules() -> None:
    assert {rule.name for rule in RULES} >= KNOWN_IF_RANKED


def _shorter(run: Ranked) -> None:
    run.replay.leg.deadline = 12.0 + 3599


def _two_legs(run: Ranked) -> None:
    run.replay.legs.insert(0, replace(run.replay.leg))


def _interrupted(run: Ranked) -> None:
    run.replay.leg.ended = LegEnded("interrupted", 12.0 + 3600)


def _killed(run: Ranked) -> None:
    run.replay.leg.ended = None


def _worse(run: Ranked) -> None:
    run.replay.tested = Evaluated(run.replay.best.number, Classified(50_000, 34_999), 9.0)  # type: ignore[union-attr]


def _nothing_kept(run: Ranked) -> None:
    last = run.replay.best.attempts[-1]  # type: ignore[union-attr]
    assert last.ended is not None
    last.ended = within(last.ended, weights="")


def _unhashed(run: Ranked) -> None:
    first = run.replay.attempts[0].validations
    first[0] = replace(first[0], logs="")


def _idle_group(run: Ranked) -> None:
    run.replay.arrivals = [attempt for attempt in run.replay.arrivals if attempt.group == 0]


def _without_control(run: Ranked) -> None:
    del run.replay.leg.controls[2]


def _no_format(run: Ranked) -> None:
    opened = run.replay.opened
    run.replay._opened = replace(opened, config=with_overrides(opened.config, {"training.format": "auto"}))


def _long_segment(run: Ranked) -> None:
    first = run.replay.attempts[0].validations
    first[0] = replace(first[0], segment=replace(first[0].segment, train_seconds=601.0))


def _short_segment(run: Ranked) -> None:
    first = next(attempt for attempt in run.replay.attempts if len(attempt.validations) > 1).validations
    first[0] = replace(first[0], segment=replace(first[0].segment, train_examples=50 * 3000))


@pytest.mark.parametrize(
    ("spoil", "rule", "text"),
    [
        (_shorter, "ranked span", "the span is 59.98 minutes; at least 60 are required"),
        (_two_legs, "ranked span", "the run has 2 legs, not one"),
        (_interrupted, "complete", "the run did not end at a deadline: interrupted"),
        (_killed, "complete", "the run has not ended"),
        (_worse, "ranked error", "the error is 30.0 %, above the limit of 30 %"),
        (_nothing_kept, "ranked error", "the weights of the tested network were not kept"),
        (_unhashed, "ranked segments", "no hash of the rank logs at 1 validation"),
        (_idle_group, "ranked trials", "group 1 completed no trial"),
        (_without_control, "ranked control", "rank 2 has no control in leg 0"),
        (_no_format, "ranked precision", "auto has fewer than 16 bits"),
        (_long_segment, "ranked segments", "trial 0, segment 0 took 601 s"),
        (_short_segment, "ranked segments", "after 150000 images, less than an eighth of an epoch"),
    ],
)
def test_each_rule_of_eligibility_says_what_is_missing(
    spoil: Callable[[Ranked], None], rule: str, text: str
) -> None:
    run = Ranked()
    spoil(run)
    assert text in run.failed()[rule]


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
        (
            {"training_examples": 781_167, "validation_examples": 500_000},
            "validation_examples is 500000, not 50000",
        ),
    ],
)
def test_ranked_data_is_imagenet_whole(changes: dict[str, object], text: str) -> None:
    run = Ranked()
    run.replay.leg.ranks[:] = [
        replace(event, ready=replace(event.ready, data={**IMAGENET, **changes})) for event in run.replay.ranks
    ]
    assert text in run.failed()["ranked data"]


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"seed_architecture": "resnet18"}, "the seed is resnet18, not resnet50"),
        ({"search.bounds.max_operations": 8.0}, "search.bounds are not the defaults"),
    ],
)
def test_ranked_runs_begin_at_the_pinned_seed_within_the_pinned_bounds(
    overrides: dict[str, object], text: str
) -> None:
    run = Ranked()
    opened = run.replay.opened
    run.replay._opened = replace(opened, config=with_overrides(opened.config, overrides))
    assert run.failed()["ranked architecture"] == text


def test_the_ranked_preset_is_what_the_rules_want() -> None:
    config = resolved_preset("ranked")
    assert (config.seed_architecture, config.data.classes, config.data.size) == ("resnet50", 1000, 224)
    assert config.limits.minutes >= 60
    assert config.ranked


def test_what_stands_in_the_way_of_a_rank_is_foreseen() -> None:
    ranked = resolved_preset("ranked")
    assert foreseen(ranked, IMAGENET) == []
    assert foreseen(with_overrides(ranked, {"limits.minutes": 30.0}), IMAGENET) == [
        "limits.minutes is 30; at least 60 are required"
    ]
    assert foreseen(ranked, {**IMAGENET, "synthetic": True}) == ["synthetic is True, not False"]
    assert foreseen(ranked, {**IMAGENET, "validation_examples": 0}) == [
        "training and validation use 1231167 of the official training images, not all"
    ]
    assert foreseen(with_overrides(ranked, {"training.validate_every_examples": 150_000}), IMAGENET) == [
        "validate_every_examples is 150000, less than an eighth of an epoch (153896)"
    ]
    assert foreseen(with_overrides(ranked, {"seed_architecture": "resnet18"}), IMAGENET) == [
        "the seed is resnet18, not resnet50"
    ]


def test_every_rule_is_broken_by_a_test() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [rule.name for rule in RULES if f'"{rule.name}"' not in texts] == []
