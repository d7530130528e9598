"""Integrity of the answers: no more are right than were asked, and a test agrees with its validation."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, lgamma

from aiperf.journal.replay import Replay
from aiperf.rules.data_sets import of_a_known_set
from aiperf.rules.rule import Evidence, Seen, looked
from aiperf.rules.times import DRIFT, JITTER_SECONDS
from aiperf.tally import Classified, Tally
from aiperf.tasks.known import task_of
from aiperf.tasks.task import Task

FIVE_SIGMA = 2.867e-7
"""The chance that a normal deviate is beyond five standard deviations, on one side."""


def accuracy(evidence: Evidence) -> Seen:
    """The best on validation is tested, on all examples, and is not better than by chance there."""
    replay = evidence.replay
    contradictions = [*_validated(replay), *_tested(replay)]
    test = "the best network was not tested" if replay.tested is None else "the best network was tested"
    text = f"every validation saw all its {_task(replay).example}s; {test}"
    if doubt := too_good(replay):
        if not of_a_known_set(replay):  # its test examples may be the easier ones
            return Seen(f"{text}; {doubt}", contradictions, known=False)
        contradictions.append(doubt)
    asked = replay.tested is not None or any(attempt.validations for attempt in replay.attempts)
    return looked(asked, "no network was validated", text, contradictions)


def too_good(replay: Replay) -> str:
    """What a network does that was trained on the test examples; nothing where it is not so.

    That it was chosen as the best on validation makes an honest test worse by comparison, never better.

    Of a text nothing is said. Its parts are not drawn by lot out of one set but follow one another, so that
    one may be harder than the other by any factor, with any number of bytes: a table takes fewer bits than
    prose. No bound on the difference of two parts would spare all honest runs. That the kept
    weights give both tallies again is what `--reevaluate` shows.
    """
    tested, best = replay.tested, replay.best
    validation = best.best_validation if best else None
    if tested is None or best is None or validation is None or tested.trial != best.number:
        return ""
    test, validated = tested.tally, validation.segment.tally
    if not isinstance(test, Classified) or not isinstance(validated, Classified):
        return ""
    if chance_of_so_few(test, validated) >= FIVE_SIGMA:
        return ""
    return (
        f"{test.text()} in the test, after {validated.text()} in its best validation: "
        "better by more than five standard deviations"
    )


def chance_of_so_few(tested: Classified, validated: Classified) -> float:
    """An upper bound of the chance of so few wrong answers in the test, or fewer, of as many in both parts.

    A network that knows neither part is wrong in both alike. Of all its wrong answers those in the test then
    follow the hypergeometric distribution, whatever its error is (Fisher's exact test): exact for any number
    of examples, and also for parts drawn by lot out of one set. The probabilities of fewer and fewer fall at
    least geometrically below the mean, which bounds their sum.
    """
    wrong, missed = tested.wrong, validated.wrong
    if (
        min(wrong, missed, tested.correct, validated.correct) < 0
        or wrong * validated.of >= missed * tested.of
    ):
        return 1.0
    first = exp(
        _log_choose(tested.of, wrong)
        + _log_choose(validated.of, missed)
        - _log_choose(tested.of + validated.of, wrong + missed)
    )
    falling = wrong * (validated.of - missed) / ((tested.of - wrong + 1) * (missed + 1))
    return first / (1 - falling)


def _log_choose(total: int, chosen: int) -> float:
    return lgamma(total + 1) - lgamma(chosen + 1) - lgamma(total - chosen + 1)


def _validated(replay: Replay) -> Iterator[str]:
    expected, example = replay.manifest.get("validation_examples"), _task(replay).example
    for attempt in replay.attempts:
        for validation in attempt.validations:
            segment = validation.segment
            if not segment.tally.is_possible:
                yield f"{validation.name}: {segment.tally.text()}"
            if segment.of != expected:
                yield f"{validation.name}: {segment.of} {example}s, the validation part has {expected}"
            elif wrong := _otherwise_asked(replay, segment.tally):
                yield f"{validation.name}: {wrong}"


def _tested(replay: Replay) -> Iterator[str]:
    tested, best = replay.tested, replay.best
    if tested is None:
        return
    if best is None or tested.trial != best.number:
        instead = "none" if best is None else f"trial {best.number}"
        yield f"trial {tested.trial} was tested, but best on validation is {instead}"
    there_are = replay.manifest.get("test_examples")
    if tested.tally.of != there_are or not tested.tally.is_possible:
        yield f"{tested.tally.text()} in the test; there are {there_are} {_task(replay).example}s"
    elif wrong := _otherwise_asked(replay, tested.tally):
        yield f"{wrong} in the test"
    if tested.top5 is not None:
        right = tested.tally.correct if isinstance(tested.tally, Classified) else tested.tally.of + 1
        if not right <= tested.top5 <= tested.tally.of:
            yield f"{tested.top5} labels are among five outputs in the test, beside {tested.tally.text()}"
    room = max((leg.last - leg.ended.end for leg in replay.legs if leg.ended is not None), default=0.0)
    if not 0 < tested.seconds <= room * (1 + DRIFT) + JITTER_SECONDS:
        yield f"the test took {tested.seconds:.6g} s; after the end of the run there were {room:.3f} s"


def _otherwise_asked(replay: Replay, tally: Tally) -> str:
    """What is wrong with the kind of a tally, or with how much was asked of each example."""
    size = replay.opened.config.data.size
    expected = _task(replay).tally(tally.of, size, 0.5)
    if type(tally) is not type(expected):
        return f"{tally.text()}, where {_task(replay).name} counts otherwise"
    if tally.asked != expected.asked:
        return f"{tally.text()} and {tally.of:,} {_task(replay).example}s of {size:,}"
    return ""


def _task(replay: Replay) -> Task:
    return task_of(replay.opened.config.data)
