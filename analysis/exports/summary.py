"""The result of a run on one screen of plain text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf

from aiperf.journal.mark import Mark, mark_of, marked
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.ending import Answer, shortfall
from aiperf.rules.rule import Kind
from aiperf.rules.verdict import Verdict
from aiperf.score.credit import Credit, credit
from aiperf.score.score import Quality, Score
from aiperf.wire.trial import State, origin
from aiperf.wording import clock, counted, percent, plain
from analysis.readings.conclusion import group_health, groups_text, losses_text
from analysis.readings.device_checks import device_check_text
from analysis.readings.devices import ceiling_text, energy_rows, look, slow_text
from analysis.readings.disturbance import disturbance_text
from analysis.readings.fabric import coupled_reading, fabric_text
from analysis.readings.judgement import Judged, glance_at
from analysis.readings.live import may_grow
from analysis.readings.run_tables import devices_text, engines_text, verdict_text, verdict_word
from analysis.readings.score_figures import figures, task_of_run
from nas.ops import OPS

WIDTH = 24
"""Least number of columns of a line's name."""
FIRST = ("ops_per_second", "regulated_score", "tensor_ops_per_second", "mfu")
"""Figures on the first lines."""
LEAST_SHARE = 0.01
"""Smallest share of all operations that is reported: a run always ends within some segments."""
LATE, OPEN = "validated after the deadline", "not validated by the end"
FAILED, LOST = "of trials that failed", "of attempts that were lost"
NOT_APPLIED, REPEATED = "with steps that were not applied", "trained again after a loss"
WORDS = (LATE, OPEN, FAILED, LOST, NOT_APPLIED, REPEATED)
"""Reasons for which work is not credited."""


def summary_text(judged: Judged) -> str:
    """The score, what it rests on, whether it counts and why not. Names of lines are padded to WIDTH columns;
    the lines of a list have a name only in the first."""
    replay, score, verdict, files = judged.replay, judged.score, judged.verdict, judged.files
    opened, devices = replay.opened, look(files, replay)
    health = group_health(replay, devices.slow)
    head = f"aiperf-hpc {opened.program} · {opened.config.preset} · {devices_text(replay)}"
    found = figures(replay, score)
    first = [
        *((found[key].name, found[key].line) for key in FIRST),
        ("of the ceiling", ceiling_text(replay, score)),
        *(() if verdict.mark else _named("disturbed", disturbance_text(replay))),
        *energy_rows(devices.energy, score),
    ]
    if verdict.answer is Answer.NO_RESULT:
        first = []  # they would be figures of nothing
    elif verdict.answer is Answer.INCOMPLETE:
        first = [(f"{name} so far" * bool(name), value) for name, value in first]
    lines = [
        *first,
        ("best network", _best(replay, score.quality)),
        ("trials", _trials(replay, score)),
        *([("groups", groups_text(health))] if health.total > 1 else []),
        ("time", _time(score)),
        ("control", found["control_examples_per_second"].line),
        *_named("coupled", [found["coupled_share"].line] if coupled_reading(replay) else []),
        *_named("fabric", fabric_text(replay)),
    ]
    # Whoever copies a line of figures copies the mark with it.
    lines = [(marked(name, verdict.mark), value) for name, value in lines]
    lines += _named("not credited", uncredited_text(replay, score))
    lines += _named("steps", engines_text(replay))
    lines += () if verdict.mark else _named("device check", device_check_text(replay))
    lines += _named("slow", slow_text(devices.slow, replay))
    lines += _named("lost", losses_text(replay))
    lines.append(("verdict", _verdict(verdict, judged.validated)))
    # Why it is INVALID; of a VALID run, what it lacks of being ranked.
    reasons = verdict.failed(Kind.INTEGRITY) or (verdict.unmet if verdict.valid else [])
    lines += [("", f"· {finding.rule}: {finding.text}") for finding in reasons]
    lines.append(("journal", str(files.journal)))
    return "\n".join([*_above(verdict.mark), plain(head), "─" * len(head), *_aligned(lines)])


def findings_text(verdict: Verdict) -> str:
    """Every rule with what was seen, then the verdict."""
    lines = [f"{f.outcome.value:<8}{f.rule:<20}{plain(f.text)}" for f in verdict.findings]
    return "\n".join([*lines, plain(_verdict(verdict))])


def status_text(replay: Replay, files: RunFiles, silent_seconds: float = inf) -> str:
    """Where a run stands, in a few lines. `silent_seconds` is the time since its journal grew."""
    best, growing = replay.best, may_grow(files, silent_seconds)
    mark, task = mark_of(replay.opened.origin), task_of_run(replay)
    # A run that goes on is not judged: its rules ask for an end.
    credited = credit(replay)
    found = shortfall(replay, credited.any, files.directory, growing)
    best_text = "none yet"
    if best and best.error is not None:
        best_text = f"validation error {task.error_text(best.error)}, trial {best.number}"
    if found:
        verdict = f"{found.answer.value}: {found.text}"
    else:
        judged = glance_at(files, replay, credited)
        verdict = _verdict(judged.verdict, judged.validated)
    ended = replay.legs and replay.leg.ended is not None
    lines = [
        ("run", f"{replay.opened.run_id}, preset {replay.opened.config.preset}, {_state(replay)}"),
        ("verdict", verdict),
        ("machine", devices_text(replay)),
        (marked("span" if ended else "span so far", mark), clock(replay.seconds_so_far)),
        (marked("trials", mark), _counts(replay)),
        (marked("best network", mark), best_text),
    ]
    examples = f"{task.example}s"
    trained = replay.worked().examples
    # One line for each group that trains.
    for group, attempt in sorted(replay.running.items()):
        error = f", error {task.error_text(attempt.error)}" if attempt.error is not None else ""
        trial = f"trial {attempt.trial.number} ({origin(attempt.trial)})"
        lines.append(
            (marked(f"group {group}", mark), f"{trial}, {trained[attempt.index]:,} {examples}{error}")
        )
    if replay.legs:
        lines += _named("slow", slow_text(look(files, replay).slow, replay))
        lines += _named("lost", losses_text(replay))
    return "\n".join([*_above(mark), *_aligned(lines)])


def _above(mark: Mark | None) -> list[str]:
    """The line that must be read before any figure, if there is one."""
    return [] if mark is None else [mark.line]


def _aligned(lines: Sequence[tuple[str, str]]) -> list[str]:
    """A mark may make names longer."""
    width = max(WIDTH, *(len(name) + 2 for name, _ in lines))
    return [f"{name:<{width}}{plain(value)}" for name, value in lines]


def _state(replay: Replay) -> str:
    """The last leg, and how it ended. A journal cannot tell a run that goes on from one that was killed."""
    if not replay.legs:
        return "not started, or killed before it started"
    ended = replay.leg.ended
    name = f"leg {replay.leg.index} " if replay.num_legs > 1 else ""
    return name + (f"ended: {ended.reason}" if ended else "running, or killed")


def _counts(replay: Replay) -> str:
    """How many trials were dispatched, and what became of them: a group has one that waits while it trains
    another."""
    states = Counter(story.state for story in replay.trials.values())
    waiting, running = states[State.WAITING], states[State.RUNNING]
    now = [f"{waiting} waiting"] * bool(waiting) + [f"{running} running"] * bool(running)
    return ", ".join([f"{replay.next_number} dispatched", f"{len(replay.arrivals)} ended", *now])


def _named(name: str, texts: list[str]) -> list[tuple[str, str]]:
    """Lines of which the first is named."""
    return list(zip([name, *[""] * len(texts)], texts))


def _verdict(verdict: Verdict, validated: bool = True) -> str:
    """The verdict in a few words; the reasons of an INVALID one are shown with the rules."""
    if verdict.valid and not validated:
        return f"{verdict_word(verdict, validated)}: {verdict_text(verdict, validated)}"
    if verdict.class_text:
        return f"{verdict.answer.value}, class {verdict.class_text}"
    why = "" if verdict.answer is Answer.INVALID else f": {verdict.lacks}"
    return f"{verdict.answer.value}{why}"


def _best(replay: Replay, quality: Quality | None) -> str:
    """The network with the lowest validation error, and its test error: it is tested once, so nothing is
    chosen by that error."""
    if quality is None:
        return "none: no trial was validated"
    trial = replay.trials[quality.trial].trial
    validation = f"validation error {task_of_run(replay).error_text(quality.validation_error)}"
    test = "not tested"
    if quality.test is not None:
        test = f"test error {percent(quality.test.error)} ({quality.test.text()})"
    return f"{test}, {validation}: trial {trial.number} ({origin(trial)})"


def _trials(replay: Replay, score: Score) -> str:
    """How many trials ended in which state, and what was repeated and credited."""
    shown = (State.COMPLETE, State.STOPPED, State.FAILED, State.LOST)
    counts = ", ".join(f"{score.trials[state.value]} {state.value.lower()}" for state in shown)
    again = sum(
        attempt.abandoned and attempt.began is not None
        for story in replay.trials.values()
        for attempt in story.attempts[:-1]
    )
    counts += f"; {counted(again, 'attempt')} lost and repeated" if again else ""
    return f"{counts}; {score.goodput.trained_examples:,} training {task_of_run(replay).example}s credited"


def _time(score: Score) -> str:
    """How the groups spent their time in the mean."""
    if not score.shares:
        return "none"
    words = {"train": "training", "validate": "validating", "rest": "neither"}
    number = len(score.shares)
    means = [sum(getattr(share, part) for share in score.shares) / number for part in words]
    return ", ".join(f"{percent(mean, 1)} {word}" for mean, word in zip(means, words.values()))


def uncredited_text(replay: Replay, score: Score) -> list[str]:
    """The share of the operations that were done and not credited, and why; nothing if it is small. Reasons
    are sorted by their share."""
    # The share is that of the score; how it is divided among the reasons follows the journal's own counts.
    whole = score.raw.operations
    missing = whole - score.goodput.operations
    if not whole or missing / whole < LEAST_SHARE:
        return []
    sums, latest = dict.fromkeys(WORDS, 0), 0.0
    for why, operations, late in _parts(replay, credit(replay)):
        sums[why] += operations
        latest = max(latest, late)  # below 0 for a validation in time
    total, reasons = sum(sums.values()) or 1, []
    for why, operations in sorted(sums.items(), key=lambda item: -item[1]):
        if operations:
            by = f", the last one by {latest:.1f} s" if why == LATE else ""
            reasons.append(f"{percent(missing / whole * operations / total, 1)} {why}{by}")
    return [f"{percent(missing / whole, 1)} of the operations done: {'; '.join(reasons)}"]


def _parts(replay: Replay, credited: Credit) -> Iterator[tuple[str, int, float]]:
    """For each segment that was not credited: why, its operations, and the seconds by which its validation
    was late."""
    totals = replay.totals()
    for attempt in replay.attempts:
        job, first = attempt.dispatched, int(totals.first[attempt.index])
        at = int(credited.first[attempt.index])
        train = (job.forward + job.backward).price(OPS)
        evaluate = job.evaluate.price(OPS)
        flags = credited.validations[at : at + attempt.num_closed].tolist()
        for index in [index for index, is_credited in enumerate(flags) if not is_credited]:
            row, others = attempt.rows[index], replay.trials[attempt.trial.number].attempts
            done = train * int(totals.examples[first + index]) + evaluate * row.of
            late = row.end - attempt.leg.end
            places = [credited.first[one.index] + index for one in others if index < one.num_closed]
            again = bool(credited.validations[places].any())
            yield LATE if late > 0 else REPEATED if again else NOT_APPLIED, done, late
        why_open = {State.FAILED: FAILED, State.LOST: LOST}.get(attempt.state, OPEN)
        yield why_open, train * int(totals.examples[first + attempt.num_closed]), 0.0
