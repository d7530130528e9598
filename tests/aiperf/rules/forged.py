"""Good journals, edits of their lines, and what the rules say of the edited run. All in memory: the forger
computes the chain again, so that only what he wrote can contradict what else is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from aiperf.config import with_overrides
from aiperf.journal.events import (
    CeilingMeasured,
    Closed,
    ControlMeasured,
    Dispatched,
    Event,
    FabricMeasured,
    LegBegan,
    LegEnded,
    Opened,
    RankReady,
    Released,
    Stepped,
    Tested,
)
from aiperf.journal.file import read_journal
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Evidence, Finding, Kind
from aiperf.rules.verdict import RULES, Verdict, judge_by
from aiperf.score.lineage import Recount, recount
from aiperf.score.score import score
from aiperf.tasks.images import known_sets
from aiperf.wire import reports
from aiperf.wire.reports import Coupled, Fabric
from tests import journals
from tests.journals import PARTS, Scene, Timed, part, replayed, told, within

RECORDED = Path(__file__).parents[2] / "recorded"

TIMED = told(Scene(minutes=0.25))
VICTIM = 4  # a trial in the middle, with several segments
LONG = told(Scene(minutes=0.25, epochs=100))  # ten validations each
BY_TRIALS = told(Scene(minutes=0, max_trials=8))
TWO_LEGS = told(Scene(minutes=0.25, killed_at=16.0))
OUT_OF_MEMORY = told(Scene(minutes=0.25, out_of_memory=frozenset({2, 5})))
LOST = told(Scene(minutes=0.3, lost=((1, 16.0),)))
LUCKY = told(Scene(minutes=0.25, changes=(("random_seed", 7),)))

STARTED_SECONDS = 12.0
"""Time of the release of a leg without a span."""

Edit = Callable[[list[Timed]], list[Timed]]


def recorded(run: str) -> list[Timed]:
    """The events of a real run."""
    return [(line.t, line.event) for line in read_journal(RECORDED / run / "journal.jsonl")]


# What is said of it


_RECOUNTED: dict[tuple[int, ...], tuple[Recount, list[object]]] = {}
"""By the seed and the trials that are the same objects, which are held so that no other gets their places:
most forgeries leave the architectures alone, and to count them takes most of the time."""


def evidence(timed: list[Timed], files: RunFiles | None = None) -> Evidence:
    run = replayed(timed)
    parts: list[object] = [run.opened, *(story.attempts[0].trial for story in run.trials.values())]
    key = tuple(map(id, parts))
    if key not in _RECOUNTED:
        _RECOUNTED[key] = recount(run), parts
    counted, _ = _RECOUNTED[key]
    return Evidence(run, counted, score(run, counted.counts), files)


def judged(timed: list[Timed], files: RunFiles | None = None) -> Verdict:
    return judge_by(evidence(timed, files))


def found(run: Verdict | list[Timed], rule: str, files: RunFiles | None = None) -> Finding:
    """What one rule says; of lines, without asking the others."""
    if isinstance(run, Verdict):
        return next(finding for finding in run.findings if finding.rule == rule)
    (asked,) = [one for one in RULES if one.name == rule]
    return asked.find(evidence(run, files))


def failed(timed: list[Timed], files: RunFiles | None = None) -> dict[str, str]:
    """What the rules of integrity that failed say."""
    return {f.rule: f.text for f in judged(timed, files).failed(Kind.INTEGRITY)}


# Edits


def of_trial(event: Event) -> int | None:
    if isinstance(event, Dispatched):
        return event.trial.number
    return getattr(part(event), "trial", None) if type(event) in PARTS else None


def places(timed: list[Timed], kind: type[Event], trial: int | None = None) -> list[int]:
    """Places of the lines of that kind, of that trial."""
    return [
        place
        for place, (_, event) in enumerate(timed)
        if isinstance(event, kind) and (trial is None or of_trial(event) == trial)
    ]


def one(kind: type[Event], timed: list[Timed] = TIMED, trial: int | None = None) -> Any:
    """The first event of that kind, of that trial."""
    return timed[places(timed, kind, trial)[0]][1]


def inserted(timed: list[Timed], place: int, *events: Event) -> list[Timed]:
    """The journal with events before that line, at its time."""
    return [*timed[:place], *((timed[place][0], event) for event in events), *timed[place:]]


def changed(timed: list[Timed], place: int, event: Event) -> list[Timed]:
    return [*timed[:place], (timed[place][0], event), *timed[place + 1 :]]


def retimed(event: Event, moved: Callable[[float], float]) -> Any:
    """An event that tells of its times as they are moved."""
    names = [name for name in ("end", "deadline") if getattr(event, name, None) is not None]
    return replace(event, **{name: moved(getattr(event, name)) for name in names})


def without(timed: list[Timed], *kinds: type[Event]) -> list[Timed]:
    return [entry for entry in timed if not isinstance(entry[1], kinds)]


def until(kind: type[Event], timed: list[Timed] = TIMED) -> list[Timed]:
    """The lines above the first one of a kind."""
    return timed[: places(timed, kind)[0]]


def each(kind: type[Event], change: Callable[[Any], Event], trial: int | None = None) -> Edit:
    """The same change on every line of a kind, of that trial."""

    def edit(timed: list[Timed]) -> list[Timed]:
        wanted = set(places(timed, kind, trial))
        return [(t, change(event) if place in wanted else event) for place, (t, event) in enumerate(timed)]

    return edit


def first(kind: type[Event], change: Callable[[Any], Event], trial: int | None = None) -> Edit:
    """The change on the first line of a kind, of that trial."""
    return lambda timed: changed(timed, places(timed, kind, trial)[0], change(one(kind, timed, trial)))


def said(kind: type[Event], trial: int | None = None, /, **fields: object) -> Edit:
    """What every group said in the lines of a kind, with other fields."""
    return each(kind, lambda event: within(event, **fields), trial)


def together(*edits: Edit) -> Edit:
    return lambda timed: reduce(lambda lines, edit: edit(lines), edits, timed)


def of(journal: list[Timed], *edits: Edit) -> Edit:
    """The edits of another journal."""
    return lambda timed: together(*edits)(journal)


def proposed(event: Dispatched, **fields: Any) -> Dispatched:
    return replace(event, trial=replace(event.trial, **fields))


def with_hyper(event: Dispatched, **fields: Any) -> Dispatched:
    return proposed(event, hyper=replace(event.trial.hyper, **fields))


def with_config(**overrides: object) -> Edit:
    return each(Opened, lambda e: replace(e, config=with_overrides(e.config, overrides)))


def with_ready(**fields: object) -> Edit:
    return said(RankReady, **fields)


def with_manifest(**entries: object) -> Edit:
    return each(RankReady, lambda e: within(e, data={**e.ready.data, **entries}))


def with_ceiling(**fields: object) -> Edit:
    return said(CeilingMeasured, **fields)


def with_control(**fields: object) -> Edit:
    return said(ControlMeasured, **fields)


def with_coupled(**fields: object) -> Edit:
    """A run of several ranks that also coupled its control, with these fields."""

    coupled = replace(Coupled("", 224, 256, 20, 10.0, 1000.0), **fields)  # type: ignore[arg-type]
    fabric = FabricMeasured(Fabric(2, "nccl", (), (), (), {}, 9.0, coupled=coupled))
    return lambda timed: inserted(timed, places(timed, Released)[0], fabric)


def with_end(reason: str, earlier_seconds: float) -> Edit:
    return each(LegEnded, lambda e: replace(e, reason=reason, end=e.end - earlier_seconds))


def clock_off(offset: float, uncertainty: float) -> Callable[[RankReady], RankReady]:
    return lambda e: replace(e, clock_offset_seconds=offset, clock_uncertainty_seconds=uncertainty)


def worked(factor: float) -> Edit:
    """The same work, said to have taken this many times as long."""
    return together(
        each(Stepped, lambda e: within(e, seconds=e.block.seconds * factor)),
        each(Closed, lambda e: within(e, train_seconds=e.segment.train_seconds * factor)),
    )


def finds(rule: str, edit: Edit) -> tuple[str, str]:
    """What a rule of integrity says of the edited run, for a row of a table."""
    finding = found(edit(TIMED), rule)
    assert finding.kind is Kind.INTEGRITY
    return finding.outcome.name, finding.text


# Further legs


def with_leg_before(*lines: Event) -> Edit:
    """The journal with one more leg before the others, which holds these lines at once."""

    def edit(timed: list[Timed]) -> list[Timed]:
        (opened, *rest), began = timed, one(LegBegan, timed)
        earlier = replace(began, started="2025-12-31T12:00:00+00:00")
        later = each(LegBegan, lambda e: replace(e, index=e.index + 1))(rest)
        return [opened, (0.0, earlier), *((1.0, line) for line in lines), *later]

    return edit


def with_leg_for_the_test(*lines: Event, released: bool = True) -> Edit:
    """The journal whose test is made in one more leg without a span, as after an interrupt; it begins
    with these lines."""

    def edit(timed: list[Timed]) -> list[Timed]:
        began, test = places(timed, LegBegan)[-1], timed[-1]
        assert isinstance(test[1], Tested)
        last = timed[began][1]
        assert isinstance(last, LegBegan)
        day = replace(last, index=last.index + 1, started="2026-01-03T00:00:00+00:00")
        ready = [
            (t, within(event, wall_seconds=event.ready.wall_seconds + 2 * 86400.0))
            for t, event in timed[began:]
            if isinstance(event, RankReady)
        ]
        first: list[Timed] = [(0.0, day), *((0.0, line) for line in lines)]
        clock: list[Timed] = [(STARTED_SECONDS, Released(STARTED_SECONDS))] * released
        end = LegEnded("deadline" if released else "error: none", STARTED_SECONDS)
        over = STARTED_SECONDS + 1.0
        return [*timed[:-1], *first, *ready, *clock, (over, end), (over + 3.0, test[1])]

    return edit


NAMES = {**vars(known_sets), **vars(reports), **vars(journals), **globals()}
"""For the rows of tables."""
