"""The result of a run on one screen of plain text."""

from __future__ import annotations

from aiperf.files import RunFiles
from aiperf.journal.replay import Replay
from aiperf.rules.rule import Kind
from aiperf.rules.verdict import Verdict
from aiperf.score.score import Quality, Score
from aiperf.trial import State
from aiperf.wording import clock, origin, percent, plain
from analysis.readings.devices import ceiling_text, energy_text, look, slow_text
from analysis.readings.facts import devices_text
from analysis.readings.key import figures

WIDTH = 24
FIRST = ("ops_per_second", "regulated_score", "tensor_ops_per_second", "mfu")
"""Figures on the first lines."""


def summary_text(replay: Replay, score: Score, verdict: Verdict, files: RunFiles) -> str:
    """The score, what it rests on, whether it counts and why not."""
    opened, devices = replay.opened, look(files, replay)
    head = f"aiperf-hpc {opened.program} · {opened.config.preset} · {devices_text(replay)}"
    found = figures(replay, score)
    lines = [
        *((found[key].name, found[key].line) for key in FIRST),
        ("of the ceiling", ceiling_text(replay, score)),
        ("energy", energy_text(devices.usage, score)),
        ("best network", _best(replay, score.quality)),
        ("trials", _trials(score)),
        ("time", _time(score)),
        ("control", found["control_images_per_second"].line),
        *_named("slow", slow_text(devices.slow, replay)),
        ("verdict", _verdict(verdict)),
    ]
    text = [plain(head), "─" * len(head), *(f"{name:<{WIDTH}}{plain(value)}" for name, value in lines)]
    failed = verdict.failed(Kind.INTEGRITY) or verdict.unmet
    text += [f"{'':<{WIDTH}}· {finding.rule}: {plain(finding.text)}" for finding in failed]
    text.append(f"{'journal':<{WIDTH}}{files.journal}")
    return "\n".join(text)


def findings_text(verdict: Verdict) -> str:
    """Every rule with what was seen, then the verdict."""
    lines = [f"{f.outcome.value:<8}{f.rule:<20}{plain(f.text)}" for f in verdict.findings]
    return "\n".join([*lines, _verdict(verdict)])


def status_text(replay: Replay, files: RunFiles) -> str:
    """Where a run stands, in a few lines."""
    best = replay.best
    lines = [
        ("run", f"{replay.opened.run_id}, {replay.opened.config.preset}, {_state(replay)}"),
        ("machine", devices_text(replay)),
        ("span so far", clock(replay.span_seconds)),
        ("trials", f"{replay.next_number} dispatched, {len(replay.arrivals)} ended"),
        (
            "best network",
            f"validation error {percent(best.error)}, trial {best.number}" if best else "none yet",
        ),
    ]
    for group, attempt in sorted(replay.running.items()):
        error = f", error {percent(attempt.error)}" if attempt.error is not None else ""
        lines.append(
            (
                f"group {group}",
                f"trial {attempt.trial.number} ({origin(attempt.trial)}), {attempt.images:,} images{error}",
            )
        )
    if replay.legs:
        lines += _named("slow", slow_text(look(files, replay).slow, replay))
    return "\n".join(f"{name:<{WIDTH}}{plain(value)}" for name, value in lines)


def _state(replay: Replay) -> str:
    if not replay.legs:
        return "not begun, or killed before it had"
    ended = replay.leg.ended
    return f"leg {replay.num_legs}: {f'ended: {ended.reason}' if ended else 'going on, or killed'}"


def _named(name: str, texts: list[str]) -> list[tuple[str, str]]:
    """Lines of which the first is named."""
    return list(zip([name, *[""] * len(texts)], texts))


def _verdict(verdict: Verdict) -> str:
    return f"VALID, class {verdict.run_class.value}" if verdict.valid else "INVALID"


def _best(replay: Replay, quality: Quality | None) -> str:
    if quality is None:
        return "none: no trial was validated"
    trial = replay.trials[quality.trial].trial
    validation = f"validation error {percent(quality.validation_error)}"
    test = "not tested"
    if quality.of is not None and quality.correct is not None:
        wrong = quality.of - quality.correct
        test = f"test error {percent(wrong / quality.of)} ({wrong} of {quality.of} images)"
    return f"{test}, {validation}: trial {trial.number} ({origin(trial)})"


def _trials(score: Score) -> str:
    shown = (State.COMPLETE, State.STOPPED, State.FAILED, State.LOST)
    counts = ", ".join(f"{score.trials[state.value]} {state.value.lower()}" for state in shown)
    return f"{counts}; {score.goodput.trained_images:,} training images credited"


def _time(score: Score) -> str:
    if not score.shares:
        return "none"
    train, validate, rest = (
        sum(getattr(share, part) for share in score.shares) / len(score.shares)
        for part in ("train", "validate", "rest")
    )
    return f"{percent(train, 1)} training, {percent(validate, 1)} validating, {percent(rest, 1)} neither"
