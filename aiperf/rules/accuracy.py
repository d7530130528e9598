"""Integrity of the answers: no more are correct than were asked, and the test agrees with the validation."""

from __future__ import annotations

from collections.abc import Iterator

from aiperf.journal.replay import Replay
from aiperf.rules.rule import DRIFT, JITTER_SECONDS, Evidence, Inspection, inspection_of, unknown
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.registry import task_of
from aiperf.tasks.tally import Tally
from aiperf.tasks.task import Task


def accuracy(evidence: Evidence) -> Inspection:
    """The best on validation is tested, on all examples, and is not better there than it can honestly be.
    What is only unlikely leaves the rule unknown, which costs the class; it makes no run INVALID."""
    replay = evidence.replay
    contradictions = [*_validated(replay), *_tested(replay)]
    test = "the best network was not tested" if replay.tested is None else "the best network was tested"
    text = f"every validation used all {_task(replay).example}s; {test}"
    if doubt := too_good(replay):
        if not _is_proof(replay):
            easier = f"the test may have the easier {_task(replay).example}s"
            return unknown(f"{text}; {doubt}; {easier}", contradictions)
        contradictions.append(doubt)
    if (beyond := _beyond_the_limit(replay)) is not None:
        doubt, is_proof = beyond
        if not is_proof:
            return unknown(f"{text}; {doubt}", contradictions)
        contradictions.append(doubt)
    asked = replay.tested is not None or len(replay.validations)
    return inspection_of(asked, "no network was validated", text, contradictions)


def too_good(replay: Replay) -> str:
    """Describes a network that was trained on the test examples; empty if there is no sign of it.

    Because the network was chosen as the best on validation, an honest test is worse in comparison, never
    better, if its examples are no easier.
    """
    if (tallies := _compared(replay)) is None:
        return ""
    test, validated = tallies
    if not (sign := test.too_good_after(validated)):
        return ""
    return f"{test.text()} in the test, after {validated.text()} in its best validation: {sign}"


def _beyond_the_limit(replay: Replay) -> tuple[str, bool] | None:
    """A test, or the validation by which its network was chosen, with a smaller error than can be believed on
    these data, and whether that is a contradiction; None if there is none."""
    limit = _task(replay).data.error_limit(replay.manifest)
    for tally, where in zip(_compared(replay) or (), ("the test", "its best validation")):
        if limit is not None and tally.error < limit.error:
            return f"{tally.text()} in {where}, but {limit.source}", limit.is_proof and tally.can_convict
    return None


def _compared(replay: Replay) -> tuple[Tally, Tally] | None:
    """Test and best validation of the network that is best on validation; None without one of them."""
    tested, best = replay.tested, replay.best
    validation = best.best_validation if best else None
    if tested is None or best is None or validation is None or tested.trial != best.number:
        return None
    return tested.tally, validation.segment.tally


def _is_proof(replay: Replay) -> bool:
    """Whether a test that is too good convicts: only if it cannot have the easier examples."""
    tallies = _compared(replay) or ()
    data = _task(replay).data
    return data.has_like_parts(replay.manifest) and all(tally.can_convict for tally in tallies)


def _validated(replay: Replay) -> Iterator[str]:
    """Every validation asked each example of the validation set, in the task's own way."""
    expected, example = replay.manifest.get("validation_examples"), _task(replay).example
    right = set[tuple[object, ...]]()  # kinds of tally, which are the same for all validations of most runs
    closed = replay.validations
    for place in closed.by_attempt.tolist():
        tally = closed.tallies[place]
        kind = (type(tally), *tally.asked)
        if not tally.is_possible:
            yield f"{replay.name_of(closed.row(place))}: {tally.text()}"
        if tally.of != expected:
            name = replay.name_of(closed.row(place))
            yield f"{name}: {tally.of} {example}s, but the validation set has {expected}"
        elif kind not in right:
            if wrong := _otherwise_asked(replay, tally):
                yield f"{replay.name_of(closed.row(place))}: {wrong}"
            else:
                right.add(kind)


def _tested(replay: Replay) -> Iterator[str]:
    """The best network was tested, on the whole test set, in the time after the end of a leg."""
    tested, best = replay.tested, replay.best
    if tested is None:
        return
    if best is None or tested.trial != best.number:
        instead = "none" if best is None else f"trial {best.number}"
        yield f"trial {tested.trial} was tested, but the best on validation is {instead}"
    there_are = replay.manifest.get("test_examples")
    if tested.tally.of != there_are or not tested.tally.is_possible:
        yield f"{tested.tally.text()} in the test, but the test set has {there_are} {_task(replay).example}s"
    elif wrong := _otherwise_asked(replay, tested.tally):
        yield f"{wrong} in the test"
    if tested.top5 is not None:
        # A tally without right answers has no top-5 ones either: then no number is possible.
        right = tested.tally.correct if isinstance(tested.tally, Classified) else tested.tally.of + 1
        if not right <= tested.top5 <= tested.tally.of:
            tally = tested.tally.text()
            yield f"{tested.top5} top-5 answers are correct in the test, which contradicts {tally}"
    # The test is made after the span, and its line is among the last of its leg.
    room = max((leg.last - leg.ended.end for leg in replay.legs if leg.ended is not None), default=0.0)
    # The clocks of master and rank may drift apart, and the report is written after the end.
    if not 0 < tested.seconds <= room * (1 + DRIFT) + JITTER_SECONDS:
        yield f"the test took {tested.seconds:.6g} s, but the run has {room:.3f} s after its end"


def _otherwise_asked(replay: Replay, tally: Tally) -> str:
    """What is wrong with the kind of a tally, or with the number of answers per example."""
    size = replay.opened.config.data.size
    # With any error: only the kind and what was asked are compared.
    expected = _task(replay).tally(tally.of, size, 0.5)
    if type(tally) is not type(expected):
        return f"{tally.text()}: the task {_task(replay).name} counts differently"
    if tally.asked != expected.asked:
        return f"{tally.text()}, does not fit {tally.of:,} {_task(replay).example}s of {size:,}"
    return ""


def _task(replay: Replay) -> Task:
    """The task whose examples the run read."""
    return task_of(replay.opened.config.data)
