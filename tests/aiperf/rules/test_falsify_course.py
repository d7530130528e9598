"""The course of a run, falsified with the chain computed again: who was there, when a trial may stop, what
a device can do, and what the ranks' own logs know beside the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.files import RunFiles
from aiperf.journal import events
from aiperf.journal.events import (
    CeilingMeasured,
    Closed,
    Dispatched,
    Ended,
    GroupLost,
    LegBegan,
    LegEnded,
    RankReady,
    Released,
    Stepped,
)
from aiperf.journal.file import read_journal
from aiperf.journal.replay import Replay, replay
from aiperf.rules import planned
from aiperf.rules.rule import Evidence, Kind, Outcome
from aiperf.rules.verdict import judge
from aiperf.score.lineage import recount
from aiperf.score.score import score
from aiperf.tally import Classified
from aiperf.training.rank_log import StepLog
from aiperf.trial import State, StepBlock
from aiperf.wire.messages import NOTHING_KEPT, Finished
from tests import journals
from tests.aiperf.rules.test_falsify import TIMED, VICTIM, careful, verdict_on, worked
from tests.aiperf.rules.test_falsify_facts import (
    BY_TRIALS,
    LONG,
    TWO_LEGS,
    Case,
    a_validation_after_the_first_block,
    each,
    with_config,
    with_control,
    with_end,
    with_segment,
)
from tests.journals import Scene, Simulation, Timed, told, within, write_run

LOST = told(Scene(minutes=0.3, lost=((1, 16.0),)))
LOST_AT_WORK = told(Scene(minutes=1.0, lost=((1, 30.6),)))


def an_end_after_the_loss(timed: list[Timed]) -> list[Timed]:
    """A lost trial with validations is called stopped: its network could be the best one."""
    place = next(n for n, (_, event) in enumerate(timed) if isinstance(event, GroupLost))
    run = replay_of(timed[: place + 1])
    (lost,) = [a for a in run.attempts if a.abandoned and a.began is not None]
    t = timed[place][0]
    end = Ended(Finished(lost.trial.number, lost.number, State.STOPPED, ""), t)
    return [*timed[: place + 1], (t, end), *timed[place + 1 :]]


def a_release_before_all_are_ready(timed: list[Timed]) -> list[Timed]:
    place = next(n for n, (_, event) in enumerate(timed) if isinstance(event, Released))
    last = max(n for n, (_, e) in enumerate(timed[:place]) if isinstance(e, RankReady))
    late = (timed[place][0], timed[last][1])
    return [*timed[:last], *timed[last + 1 : place + 1], late, *timed[place + 1 :]]


def a_dispatch_before_the_release(timed: list[Timed]) -> list[Timed]:
    """Its preparation would have been out of the span."""
    place = next(n for n, (_, event) in enumerate(timed) if isinstance(event, Dispatched))
    return [
        *timed[: place - 1],
        (timed[place - 2][0], timed[place][1]),
        timed[place - 1],
        *timed[place + 1 :],
    ]


def the_last_complete_one(timed: list[Timed], **fields: object) -> list[Timed]:
    place = max(
        n for n, (_, e) in enumerate(timed) if isinstance(e, Ended) and e.finished.state is State.COMPLETE
    )
    t, event = timed[place]
    return [*timed[:place], (t, within(event, **fields)), *timed[place + 1 :]]


def nothing_is_kept(timed: list[Timed]) -> list[Timed]:
    """By a group that saw how a network does in the test, and would rather have another one chosen."""
    hidden = each(Ended, lambda e: within(e, kept=NOTHING_KEPT) if e.finished.trial == VICTIM else e)
    return hidden(timed)


def a_validation_in_the_middle_of_a_loss(timed: list[Timed]) -> list[Timed]:
    """What a group had done when it was lost is said to have been validated, so that it is credited."""
    place = next(n for n, (_, event) in enumerate(timed) if isinstance(event, GroupLost))
    run = replay_of(timed[: place + 1])
    (lost,) = [a for a in run.attempts if a.abandoned and a.began is not None]
    index, totals = len(lost.validations), run.totals()
    at = int(totals.first[lost.index]) + index
    like = next(e for _, e in timed if isinstance(e, Closed)).segment
    segment = replace(
        like,
        trial=lost.trial.number,
        attempt=lost.number,
        index=index,
        steps=int(totals.steps[at]),
        train_examples=int(totals.examples[at]),
        train_seconds=float(totals.seconds[at]),
        tally=Classified(400, 200),
        validate_seconds=1e-4,
    )
    assert segment.steps
    t, mine = timed[place][0], lost.trial.number
    own = max(e.end for _, e in timed[:place] if isinstance(e, Stepped) and e.block.trial == mine)
    return [*timed[:place], (t, Closed(segment, own + 1e-4)), *timed[place:]]


class _Impatient(Simulation):
    """A vendor's groups, which drop what does not look well after the first validation."""

    def work(self, group: int, t: float) -> Iterator[Timed]:
        before = -1.0
        while self.assigned[group] and t > before:
            before = t
            for timed in super().work(group, t):
                yield timed
                t = timed[0]

    def attempt(self, job: Dispatched, t: float) -> Iterator[Timed]:
        for timed in super().attempt(job, t):
            yield timed
            if isinstance(timed[1], Closed) and job.trial.number % 2 and timed[0] < 40:
                yield timed[0], Ended(Finished(job.trial.number, job.attempt, State.STOPPED, ""), timed[0])
                return


def replay_of(timed: list[Timed]) -> Replay:
    run = Replay()
    for t, event in timed:
        run.add(t, event)
    return run


def a_step_beyond_the_plan(timed: list[Timed]) -> list[Timed]:
    """After the last validation, so that nothing is credited: what was planned is known all the same."""
    place = max(n for n, (_, e) in enumerate(timed) if isinstance(e, Closed) and e.segment.trial == VICTIM)
    t, closed = timed[place]
    assert isinstance(closed, Closed)
    more = Stepped(StepBlock(VICTIM, 1, closed.segment.index + 1, 1, 50, 1e-3, 1.5), closed.end)
    return [*timed[: place + 1], (t, more), *timed[place + 1 :]]


def a_segment_of(seconds: float) -> list[Timed]:
    """The first of a trial, closed long before its planned steps were made."""
    timed = a_validation_after_the_first_block(TIMED)
    place = next(n for n, (_, e) in enumerate(timed) if isinstance(e, Closed) and e.segment.trial == VICTIM)
    t, closed = timed[place]
    assert isinstance(closed, Closed)
    longer = replace(closed, segment=replace(closed.segment, train_seconds=seconds))
    return [*timed[:place], (t, longer), *timed[place + 1 :]]


def an_end_before_the_release(timed: list[Timed]) -> list[Timed]:
    place = next(n for n, (_, event) in enumerate(timed) if isinstance(event, Released))
    return [*timed[: place + 1], (timed[place][0], LegEnded("interrupted", 3.0))]


TRIALS = sum(isinstance(event, Dispatched) for _, event in TIMED)
UNEVEN = told(Scene(minutes=1.5, epochs=25))  # its last segments are half as long
IMPATIENT = _Impatient(Scene(minutes=2)).run()

CASES = [
    Case(
        "one image less",
        with_segment(tally=Classified(399, 200)),
        "accuracy",
        "399 images, but the validation set has",
    ),
    Case(
        "a trial too few",
        with_config(**{"limits.max_trials": 9}),
        "span",
        "the reason 'trials', which",
        BY_TRIALS,
    ),
    Case(
        "ended before its release",
        an_end_before_the_release,
        "span",
        "at 3.000 s, outside the times of its lines",
    ),
    Case(
        "stopped, then interrupted", with_end("interrupted", 0.0), "examples", "too early in leg 0", IMPATIENT
    ),
    Case(
        "one step more", a_step_beyond_the_plan, "examples", f"trial {VICTIM}: 81 steps, but 80 were planned"
    ),
    Case(
        "nearly nine minutes",
        lambda t: a_segment_of(539.9),
        "examples",
        f"trial {VICTIM}, segment 0: 15 steps",
    ),
    Case("an end after the loss", an_end_after_the_loss, "order", "STOPPED cannot follow here", LOST),
    Case("a rank comes late", a_release_before_all_are_ready, "order", "before rank 2 was ready"),
    Case(
        "dispatched early", a_dispatch_before_the_release, "times", "was dispatched before the clock started"
    ),
    Case("lost by itself", lambda t: the_last_complete_one(t, state=State.LOST), "order", "LOST cannot"),
    Case(
        "complete without memory", lambda t: the_last_complete_one(t, out_of_memory=True), "order", "memory"
    ),
    Case(
        "stopped when done",
        lambda t: the_last_complete_one(t, state=State.STOPPED),
        "examples",
        "after all 80",
    ),
    Case(
        "another network kept",
        nothing_is_kept,
        "examples",
        f"trial {VICTIM} kept segment -1, but 1 was its best one",
    ),
    Case(
        "stopped in the middle",
        lambda t: t,
        "examples",
        "too early in leg 0",
        IMPATIENT,
    ),
    Case(
        "validated at a loss",
        a_validation_in_the_middle_of_a_loss,
        "examples",
        "too early in leg 0",
        LOST_AT_WORK,
    ),
    Case(
        "a validation in no time",
        with_segment(validate_seconds=1e-7),
        "measurements",
        "a validation of 0.0000",
    ),
    Case(
        "blocks in no time",
        lambda t: [(s, worked(e, 1e-6)) for s, e in t],
        "measurements",
        "a block of 0.0000",
    ),
    Case(
        "a control of less than none", with_control(batch_size=-256, steps=-20), "measurements", "5120 images"
    ),
    Case(
        "a control backwards",
        with_control(examples_per_second=-1.0, seconds=-5120.0),
        "measurements",
        "-5120.0",
    ),
    Case(
        "more than max_trials",
        with_config(**{"limits.max_trials": TRIALS - 1}),
        "span",
        f"trial {TRIALS - 1} was dispatched",
    ),
    Case(
        "beyond the target",
        with_config(**{"limits.target_error": 0.5}),
        "span",
        "after limits.target_error 0.5",
    ),
    Case("an end without a reason", with_end("", 0.0), "span", "with the reason ''"),
    Case(
        "a test in no time",
        each(events.Tested, lambda e: within(e, seconds=0.0)),
        "accuracy",
        "the test took 0 s",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_is_named(tmp_path: Path, case: Case) -> None:
    verdict = verdict_on(tmp_path, careful(case.forged))
    failed = {finding.rule: finding.text for finding in verdict.failed(Kind.INTEGRITY)}
    assert case.says in failed.get(case.rule, f"nothing; failed are {failed}")


@pytest.mark.parametrize(
    "journal", [LOST, LOST_AT_WORK, told(Scene(minutes=2)), UNEVEN], ids=["lost", "later", "long", "uneven"]
)
def test_the_journals_that_are_falsified_here_are_good(tmp_path: Path, journal: list[Timed]) -> None:
    assert verdict_on(tmp_path, careful(journal)).failed(Kind.INTEGRITY) == []


def test_a_validation_that_came_too_late_is_no_better_error() -> None:
    run = replay_of(with_config(**{"training.patience": 1})(LONG))
    attempt = next(a for a in run.attempts if a.state is State.COMPLETE and len(a.validations) > 2)
    first, second = attempt.validations[:2]
    assert second.segment.error < first.segment.error
    attempt.validations[1:] = [replace(second, in_time=False)]
    attempt.ended = within(attempt.ended, kept=None)
    seen = planned.examples(Evidence(run, recount(run), None, None))  # type: ignore[arg-type]
    assert not [text for text in seen.contradictions if text.startswith(f"trial {attempt.trial.number} ")]


@pytest.mark.parametrize("state", [State.COMPLETE, State.FAILED])
def test_a_target_is_reached_by_the_very_error_of_a_network_that_ended_well(
    tmp_path: Path, state: State
) -> None:
    place = next(n for n, (_, e) in enumerate(TIMED) if isinstance(e, Ended))
    following = next(n for n, (_, e) in enumerate(TIMED[place:], place) if isinstance(e, Dispatched))
    timed = [*TIMED[:following], (TIMED[following][0] + 1.0, TIMED[following][1])]
    error = next(a.error for a in replay_of(timed).attempts if a.ended)
    timed = with_config(**{"limits.target_error": error})(
        each(Ended, lambda e: within(e, state=state))(timed)
    )
    texts = {f.rule: f.text for f in verdict_on(tmp_path, careful(timed)).failed(Kind.INTEGRITY)}
    assert ("target_error" in texts.get("span", "")) == (state is State.COMPLETE)


def test_what_another_leg_reached_does_not_stop_this_one_before_it_could_look(tmp_path: Path) -> None:
    """The first leg is killed as it reaches its target; a second one fills its groups, then closes."""
    place = next(n for n, (_, e) in enumerate(TWO_LEGS) if isinstance(e, Ended))
    again = max(n for n, (_, e) in enumerate(TWO_LEGS) if isinstance(e, LegBegan))
    filled = next(n for n, (_, e) in enumerate(TWO_LEGS[again:], again) if isinstance(e, Dispatched))
    lost = next(e for _, e in TWO_LEGS if isinstance(e, Dispatched) and e.trial.number == 1)
    second = [*TWO_LEGS[again:filled], (TWO_LEGS[filled][0], replace(lost, attempt=2))]
    timed = [*TWO_LEGS[: place + 1], *((t + 30, e) for t, e in second)]
    (ended,) = [a for a in replay_of(timed).attempts if a.ended]
    assert ended.error is not None
    timed = with_config(**{"limits.target_error": ended.error})(timed)
    texts = {f.rule: f.text for f in verdict_on(tmp_path, careful(timed)).failed(Kind.INTEGRITY)}
    assert "target_error" not in texts.get("span", "")


def test_a_segment_may_be_closed_after_nine_minutes(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, careful(a_segment_of(540.0)))
    texts = {finding.rule: finding.text for finding in verdict.findings}
    assert "segment 0: 15 steps" not in texts["examples"]


@pytest.mark.parametrize("stop", ["interrupted", "killed"])
def test_a_stop_that_is_asked_for_closes_trials_in_any_moment(tmp_path: Path, stop: str) -> None:
    """Long before the deadline; a kill may follow before the leg has ended."""
    timed = [entry for entry in told(Scene(minutes=0.5)) if not isinstance(entry[1], events.Tested)]
    longer = with_config(**{"limits.minutes": 60.0})(timed)
    longer = each(Released, lambda e: replace(e, deadline=e.deadline + 3570.0))(longer)
    if stop == "killed":
        longer = [entry for entry in longer if not isinstance(entry[1], LegEnded)]
    else:
        longer = with_end("interrupted", 0.0)(longer)
    assert State.STOPPED in {a.state for a in replay_of(longer).attempts}
    assert verdict_on(tmp_path, careful(longer)).failed(Kind.INTEGRITY) == []


def witnessed(directory: Path, timed: list[Timed]) -> str:
    """What the rule `witnesses` says of these lines, with the logs that lie in the directory."""
    files = write_run(directory / "journal", timed)
    (directory / "run").mkdir(exist_ok=True)
    files.journal.replace(directory / "run" / "journal.jsonl")
    files = RunFiles(directory / "run")
    (found,) = [
        finding
        for finding in judge(replay(read_journal(files.journal)), files).findings
        if finding.rule == "witnesses"
    ]
    return found.text if found.outcome is Outcome.FAILED else ""


def test_a_rank_that_is_left_out_of_the_journal_wrote_its_own_log(tmp_path: Path) -> None:
    """Half of the devices are said to have done all the work."""
    write_run(tmp_path / "run", told(Scene(minutes=0.25, ranks_of_a_group=2)))
    timed = told(Scene(minutes=0.25, groups=2, ranks_of_a_group=1))
    text = witnessed(tmp_path, timed)
    assert "logs/node3.rank3.steps.jsonl has the work of a rank that is not in the journal" in text
    for log in (tmp_path / "run" / "logs").iterdir():
        log.rename(log.with_name(f"other{log.name}"))
    assert "a rank that is not in the journal" in witnessed(tmp_path, timed)


def test_a_validation_of_which_the_ranks_wrote_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "run", TIMED)
    for log in (tmp_path / "run" / "logs").iterdir():
        lines = log.read_text().splitlines(keepends=True)
        last = max(place for place, line in enumerate(lines) if "correct" in line)
        log.write_text("".join(lines[:last] + lines[last + 1 :]))
    assert "the ranks have 0 of 0 wrong after trial " in witnessed(tmp_path, TIMED)


def test_the_rank_of_a_run_that_did_nothing_is_no_stranger(tmp_path: Path) -> None:
    files = write_run(tmp_path / "run", TIMED)
    files.witness("elsewhere", 9).touch()
    assert witnessed(tmp_path, TIMED) == ""


def test_a_group_that_was_given_up_may_have_worked_on_unheard(tmp_path: Path) -> None:
    files = write_run(tmp_path / "run", LOST)
    lost = next(a for a in replay_of(LOST).attempts if a.ended is None and a.began is not None)
    (rank,) = lost.leg.began.groups[lost.group]
    path, number = files.witness(f"node{rank}", rank), lost.trial.number
    before, head = path.read_text(), f'{{"trial": {number}, "attempt": {lost.number}, "segment": '
    done = before.rindex("\n", 0, before.index("\n", before.rindex(head)) + 1) + 1
    path.write_text(before[:done])
    with StepLog(path) as log:
        for segment in range(len(lost.validations), len(lost.validations) + 2):
            log.steps(number, lost.number, segment, 15, 750)
            log.answers(number, lost.number, segment, Classified(400, 200))
        log.steps(number, lost.number, len(lost.validations) + 2, 15, 750)
    path.write_text(path.read_text() + before[done:])
    assert witnessed(tmp_path, LOST) == ""


def test_a_device_that_comes_after_the_end_has_no_part_in_the_peak(tmp_path: Path) -> None:
    """It would make any speed plausible, or unknown."""
    last = next(e for _, e in reversed(TIMED) if isinstance(e, RankReady))
    other = replace(last, ready=replace(last.ready, device="NVIDIA GB200"))
    t = TIMED[-1][0]
    later = [*TIMED, (t, GroupLost(last.group, "said nothing")), (t, other)]
    found = [replay_of(timed) for timed in (TIMED, later)]
    assert found[1].faults == []
    before, after = (score(run, recount(run).counts).peak_ops_per_second for run in found)
    assert before == after


def test_without_a_ceiling_no_run_is_ranked(tmp_path: Path) -> None:
    without = [entry for entry in TIMED if not isinstance(entry[1], CeilingMeasured)]
    failed = verdict_on(tmp_path, careful(without)).failed(Kind.ELIGIBILITY)
    assert "rank 1 has no ceiling in leg 0" in {f.rule: f.text for f in failed}["ranked control"]


def test_who_validates_for_long_stops_as_long_before_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "OPS_PER_SECOND", 1e7)
    timed = told(Scene(minutes=60))
    (leg,) = replay_of(timed).legs
    ends = [e.end for _, e in timed if isinstance(e, Ended) and e.finished.state is State.STOPPED]
    assert leg.deadline is not None
    assert min(ends) < leg.deadline - 15
    texts = {f.rule: f.text for f in verdict_on(tmp_path, careful(timed)).failed(Kind.INTEGRITY)}
    assert "examples" not in texts
