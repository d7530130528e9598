"""Integrity of the answers: no more are right than were asked, and a test agrees with its validation."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, lgamma

from aiperf.journal.replay import Replay
from aiperf.rules.image_sets import of_a_known_set
from aiperf.rules.rule import Evidence, Seen, looked
from aiperf.rules.times import DRIFT, JITTER_SECONDS
from aiperf.trial import Segment
from aiperf.wire.messages import Evaluated

FIVE_SIGMA = 2.867e-7
"""The chance that a normal deviate is beyond five standard deviations, on one side."""


def accuracy(evidence: Evidence) -> Seen:
    """The best on validation is tested, on all images, and is not better than by chance there."""
    replay = evidence.replay
    contradictions = [*_validated(replay), *_tested(replay)]
    test = "the best network was not tested" if replay.tested is None else "the best network was tested"
    text = f"every validation saw all its images; {test}"
    if doubt := too_good(replay):
        if not of_a_known_set(replay.manifest):  # its test images may be the easier ones
            return Seen(f"{text}; {doubt}", contradictions, known=False)
        contradictions.append(doubt)
    asked = replay.tested is not None or any(attempt.validations for attempt in replay.attempts)
    return looked(asked, "no network was validated", text, contradictions)


def too_good(replay: Replay) -> str:
    """What a network does that was trained on the test images; nothing where it is not so.

    That it was chosen as the best on validation makes an honest test worse by comparison, never better.
    """
    tested, best = replay.tested, replay.best
    validation = best.best_validation if best else None
    if tested is None or best is None or validation is None or tested.trial != best.number:
        return ""
    validated = validation.segment
    if chance_of_so_few(tested, validated) >= FIVE_SIGMA:
        return ""
    return (
        f"{tested.of - tested.correct} wrong of {tested.of} test images, after "
        f"{validated.of - validated.correct} of {validated.of} in its best validation: "
        "better by more than five standard deviations"
    )


def chance_of_so_few(tested: Evaluated, validated: Segment) -> float:
    """An upper bound of the chance of so few wrong answers in the test, or fewer, of as many in both parts.

    A network that knows neither part is wrong in both alike. Of all its wrong answers those in the test then
    follow the hypergeometric distribution, whatever its error is (Fisher's exact test): exact for any number
    of images, and also for parts drawn by lot out of one set. The probabilities of fewer and fewer fall at
    least geometrically below the mean, which bounds their sum.
    """
    wrong, missed = tested.of - tested.correct, validated.of - validated.correct
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
    expected = replay.manifest.get("validation_images")
    for attempt in replay.attempts:
        for validation in attempt.validations:
            segment = validation.segment
            if not 0 <= segment.correct <= segment.of:
                yield f"{validation.name}: {segment.correct} right of {segment.of}"
            if segment.of != expected:
                yield f"{validation.name}: {segment.of} images, the validation part has {expected}"


def _tested(replay: Replay) -> Iterator[str]:
    tested, best = replay.tested, replay.best
    if tested is None:
        return
    if best is None or tested.trial != best.number:
        instead = "none" if best is None else f"trial {best.number}"
        yield f"trial {tested.trial} was tested, but best on validation is {instead}"
    there_are = replay.manifest.get("test_images")
    if tested.of != there_are or not 0 <= tested.correct <= tested.of:
        yield f"{tested.correct} right of {tested.of} test images; there are {there_are}"
    room = max((leg.last - leg.ended.end for leg in replay.legs if leg.ended is not None), default=0.0)
    if not 0 < tested.seconds <= room * (1 + DRIFT) + JITTER_SECONDS:
        yield f"the test took {tested.seconds:.6g} s; after the end of the run there were {room:.3f} s"
