"""A run as everything in this package looks at it: replayed, counted, scored and judged."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic

from aiperf.errors import AiperfError, JournalError
from aiperf.journal.file import JournalReader
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.reproduction import TOLD_EACH_SECONDS
from aiperf.rules.rule import Evidence, Finding, Outcome
from aiperf.rules.verdict import Verdict, concluded, judge_by, rules_of
from aiperf.score.credit import Credit, credit
from aiperf.score.example_counts import recorded
from aiperf.score.lineage import Rebuilt, Recount, recount
from aiperf.score.score import Score, score
from aiperf.tasks.registry import task_of
from analysis.readings import validation
from nas.frozen import frozen

COUNTED_AGAIN = 500
"""Trials up to which a view counts all architectures again; more take the time of a `validate`."""


@frozen
class Judged:
    """One run and what follows from its journal."""

    files: RunFiles
    replay: Replay
    recount: Recount
    """Counted operations: from the lineage if `validated`, else as the journal states them."""
    credit: Credit
    score: Score
    verdict: Verdict
    validated: bool
    """Whether every architecture was recounted, now or by this user's `validate` of exactly this run."""
    layers: Mapping[str, int] | None
    """Credited operations by kind of layer, as the score prices them; None where no graph was rebuilt."""

    @property
    def valid(self) -> bool:
        """Whether no rule failed, and each was asked with every architecture recounted."""
        return self.verdict.valid and self.validated

    @property
    def began(self) -> str:
        """The time of day at which the run began, in the form of ISO 8601."""
        return self.replay.legs[0].began.started if self.replay.legs else ""


def refuse_two_tasks(first: Judged, other: Judged) -> None:
    """Raises AiperfError for runs of two tasks, whose operations and errors do not compare."""
    one, another = (task_of(judged.replay.opened.config.data).name for judged in (first, other))
    if one != another:
        raise AiperfError(
            f"{other.files.directory} is a run of the task {another}, but {first.files.directory} of {one}; "
            "runs of different tasks cannot be compared"
        )


def read_run(files: RunFiles) -> Replay:
    """Folds line by line, so that a long journal is never held as text. Raises JournalError."""
    replay = Replay()
    with uncollected():
        JournalReader(files.journal).fold_into(replay)
        if len(replay.trials) > COUNTED_AGAIN:
            gc.freeze()  # before the collector is on again, which would look through all of it three times
    if not replay.lines:
        raise JournalError(f"{files.journal} has no complete line yet; the run has not started")
    return replay


@contextmanager
def uncollected() -> Iterator[None]:
    """Switches the collector of cycles off: what is read stays, and it would look through millions of objects
    again and again."""
    there_is_one = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if there_is_one:
            gc.enable()


@contextmanager
def _set_aside(replay: Replay) -> Iterator[None]:
    """Nor need the collector look through what was read while more is made of it.

    In a short run that saves nothing: to ask what is set aside already takes longer.
    """
    if len(replay.trials) <= COUNTED_AGAIN:
        yield
        return
    set_aside_before = gc.get_freeze_count() > 0
    gc.freeze()
    try:
        yield
    finally:
        if not set_aside_before:
            gc.unfreeze()


Earlier = Callable[[Replay], Iterable[Finding]]
"""The findings on a journal that this process has already judged; empty if it has not."""


def not_judged(replay: Replay) -> Iterable[Finding]:
    """No earlier findings: every rule is asked."""
    return ()


def examine(
    files: RunFiles, progress: Callable[[str], object] = lambda text: None, earlier: Earlier = not_judged
) -> Judged:
    """Counts every architecture again and asks every rule, but for what `earlier` findings answer
    (`judge_by`). `progress` gets a text with the progress of a long run every few seconds.

    Raises JournalError for what is not a journal, one without a seed to count from, and one that takes more
    work than `aiperf.score.lineage` allows.
    """
    replay = read_run(files)
    with _set_aside(replay):
        return _examined(files, replay, progress, earlier)


def _examined(
    files: RunFiles, replay: Replay, progress: Callable[[str], object] | None, earlier: Earlier = not_judged
) -> Judged:
    """The run with every architecture counted again; one pass over the lineage serves the counts and the
    layers, because rebuilding is what takes the time."""
    credited = credit(replay)
    by_layer = _ByLayer(replay, credited, progress)
    found = recount(replay, by_layer.see)
    scored = score(replay, found.counts, credited)
    verdict = judge_by(Evidence(replay, found, scored, files, progress), earlier(replay))
    return Judged(files, replay, found, credited, scored, verdict, True, dict(by_layer.operations))


def glance(files: RunFiles) -> Judged:
    """As `examine` for a run with few trials; a longer run is judged with the operations that are recorded.

    What needs the rebuilt architectures is then as this user's `validate` found it on exactly this run, else
    "unknown", never assumed.
    """
    return glance_at(files, read_run(files))


def glance_at(files: RunFiles, replay: Replay, credited: Credit | None = None) -> Judged:
    """As `glance`, of a run that has been read. `credited` is its credit, if that is known already."""
    if len(replay.trials) <= COUNTED_AGAIN:
        with uncollected():  # the networks of so few trials need no collector, which finds no cycle
            return _examined(files, replay, None)
    with _set_aside(replay):
        return _glanced(files, replay, credited or credit(replay), validation.load(files, replay))


def _glanced(
    files: RunFiles, replay: Replay, credited: Credit, kept: validation.KeptValidation | None
) -> Judged:
    """The run with the counts that the journal states, and the findings that were kept."""
    counts = {number: recorded(story.attempts[0].dispatched) for number, story in replay.trials.items()}
    found = Recount(counts, {}, frozenset())
    scored = score(replay, found.counts, credited)
    evidence = Evidence(replay, found, scored, files)
    verdict = concluded(evidence, _unvalidated(evidence) if kept is None else kept.findings)
    layers = None if kept is None else kept.layers
    return Judged(files, replay, found, credited, scored, verdict, kept is not None, layers)


def _unvalidated(evidence: Evidence) -> Iterator[Finding]:
    """The findings of rules that need no graphs; the others are unknown."""
    text = "not looked at in a run of this size; `aiperf-hpc validate` does"
    for rule in rules_of(evidence.replay):
        unseen = Finding(rule.name, rule.kind, Outcome.UNKNOWN, text)
        yield unseen if rule.needs_graphs else rule.find(evidence)


class _ByLayer:
    """Sums the credited operations of a run by kind of layer while its graphs pass by."""

    def __init__(self, replay: Replay, credited: Credit, progress: Callable[[str], object] | None) -> None:
        self.operations: Counter[str] = Counter()
        self._images: Counter[int] = Counter()
        self._validated: Counter[int] = Counter()
        self._progress, self._seen, self._told = progress, 0, monotonic()
        self._of = len(replay.trials)
        images, validated = credited.sums(replay, "train_examples"), credited.sums(replay, "of")
        for attempt in replay.attempts:
            self._images[attempt.trial.number] += images[attempt.index]
            self._validated[attempt.trial.number] += validated[attempt.index]

    def see(self, entry: Rebuilt) -> None:
        """Takes the next architecture of the lineage. A graph is not kept: a long run has hundreds of
        thousands."""
        number = entry.trial.number
        if entry.graph is not None and self._images[number]:
            images, validated = self._images[number], self._validated[number]
            for name, train, evaluate in entry.graph.prices:
                self.operations[name] += images * train + validated * evaluate
        self._seen += 1
        if self._progress is not None and (now := monotonic()) > self._told + TOLD_EACH_SECONDS:
            self._told = now
            self._progress(f"{self._seen:,} of {self._of:,} architectures recounted")
