"""Integrity of what was counted: the lines, the architectures, the steps, the answers."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose

from aiperf.config import DataConfig
from aiperf.journal.attempts import Attempt, Validation
from aiperf.journal.replay import Replay
from aiperf.rules.rule import Evidence, Seen, looked
from aiperf.score.lineage import recorded
from aiperf.trial import State, Trial
from nas.layers import ShapeError
from nas.record import RecordError, graph_from_json
from nas.seeds import SEEDS

NO_TRIAL = "no trial was dispatched"


def chain(evidence: Evidence) -> Seen:
    broken = evidence.replay.broken
    return Seen(
        f"{evidence.replay.lines:,} lines follow from one another",
        [f"line {line} does not follow from the one above it" for line in broken],
    )


def order(evidence: Evidence) -> Seen:
    """Nothing happens before its cause, twice, or after its end."""
    faults = evidence.replay.faults
    return Seen("each line can follow those above it", [f"line {f.line}: {f.text}" for f in faults])


def lineage(evidence: Evidence) -> Seen:
    """Trials are numbered without gaps in the order of their dispatch; parents completed before."""
    trials, contradictions = evidence.replay.trials, list(_lineage(evidence.replay))
    return looked(trials, NO_TRIAL, f"{len(trials)} trials without a gap", contradictions)


def _lineage(replay: Replay) -> Iterator[str]:
    for place, number in enumerate(replay.trials):
        if number != place:
            yield f"trial {number} stands where trial {place} should: trials are missing or moved"
            return
    for attempt in replay.attempts:
        trial, first = attempt.trial, replay.trials[attempt.trial.number].attempts[0].trial
        if trial.parent is not None and not _completed_before(replay, trial.parent, attempt):
            yield f"trial {trial.number} is a child of trial {trial.parent}, which had not completed then"
        if _identity(trial) != _identity(first):
            yield f"trial {trial.number} is another one in attempt {attempt.number} than it was at first"


def _identity(trial: Trial) -> tuple[object, ...]:
    """What a further attempt keeps; the batch may have been halved."""
    return trial.parent, trial.morphisms, trial.round, trial.epochs, trial.seed


def _completed_before(replay: Replay, parent: int, child: Attempt) -> bool:
    story = replay.trials.get(parent)
    if story is None:
        return False
    last = story.attempts[-1]
    if last.state is not State.COMPLETE or last.end_time is None:
        return False
    return (last.leg.index, last.end_time) <= (child.leg.index, child.dispatch_time)


def seed(evidence: Evidence) -> Seen:
    """The starting graph is the one that the configuration names, for its images and classes."""
    opened = evidence.replay.opened
    named, shape = opened.config.seed_architecture, opened.config.data
    try:
        graph = graph_from_json(opened.seed_graph)
    except (RecordError, ShapeError) as error:
        return Seen("", [f"it is no graph: {error}"])
    size = (shape.channels, shape.size, shape.size)
    if (graph.input, graph.classes) != (size, shape.classes):
        return Seen(
            "", [f"it reads {graph.input} for {graph.classes} classes; the data is {size}, {shape.classes}"]
        )
    if named not in SEEDS:
        return Seen(f"{named} is a file, not one of {', '.join(SEEDS)}", known=False)
    if graph != SEEDS[named](size, shape.classes):
        return Seen("", [f"the graph in the first line is not {named}"])
    return Seen(f"it is {named}")


def operations(evidence: Evidence) -> Seen:
    """Every architecture counted again from the seed and its morphisms."""
    contradictions = [f"trial {number}: {why}" for number, why in evidence.recount.failures.items()]
    for attempt in evidence.replay.attempts:
        found = evidence.recount.counts.get(attempt.trial.number)
        if found is not None:
            contradictions += _differences(attempt, evidence)
    counts = evidence.recount.counts
    return looked(counts, NO_TRIAL, f"{len(counts)} architectures counted again", contradictions)


def _differences(attempt: Attempt, evidence: Evidence) -> Iterator[str]:
    found, claimed = evidence.recount.counts[attempt.trial.number], recorded(attempt.dispatched)
    for what in ("graph_key", "forward", "backward", "evaluate", "parameters"):
        if getattr(found, what) != getattr(claimed, what):
            yield f"trial {attempt.trial.number}: its {what.replace('_', ' ')} is not that of its lineage"
    if attempt.began is not None and attempt.began.started.graph_key != found.graph_key:
        yield f"trial {attempt.trial.number}: the group built another architecture"


def bounds(evidence: Evidence) -> Seen:
    outside = sorted(evidence.recount.outside)
    contradictions = [f"trial {number} is outside search.bounds" for number in outside]
    counts = evidence.recount.counts
    return looked(counts, NO_TRIAL, "every candidate is within search.bounds", contradictions)


def steps(evidence: Evidence) -> Seen:
    """A segment's claim is what its blocks add up to."""
    totals = evidence.replay.totals()
    first, all_steps = totals.first.tolist(), totals.steps.tolist()
    all_images, all_seconds = totals.images.tolist(), totals.seconds.tolist()
    contradictions = []
    for attempt, validation in _validations(evidence.replay):
        segment, place = validation.segment, first[attempt.index] + validation.segment.index
        blocks = all_steps[place], all_images[place]
        if blocks != (segment.steps, segment.train_images):
            contradictions.append(
                f"{validation.name}: {segment.steps} steps and {segment.train_images} images, "
                f"but its blocks add up to {blocks[0]} and {blocks[1]}"
            )
        elif not isclose(all_seconds[place], segment.train_seconds, rel_tol=1e-6, abs_tol=1e-6):
            contradictions.append(f"{validation.name}: its blocks took {all_seconds[place]:.6f} s")
    text = f"{len(evidence.replay.blocks):,} blocks add up to their segments"
    closed = any(_validations(evidence.replay))
    return looked(closed, "no segment was closed, up to which steps could add", text, contradictions)


def accuracy(evidence: Evidence) -> Seen:
    """Right answers are no more than the images asked; the best on validation is tested, on all images."""
    replay, contradictions = evidence.replay, []
    manifest = replay.manifest
    expected = manifest.get("validation_images")
    for _, validation in _validations(replay):
        segment = validation.segment
        if not 0 <= segment.correct <= segment.of:
            contradictions.append(f"{validation.name}: {segment.correct} right of {segment.of}")
        if segment.of != expected:
            contradictions.append(
                f"{validation.name}: {segment.of} images, the validation part has {expected}"
            )
    tested, best = replay.tested, replay.best
    if tested is not None:
        if best is None or tested.trial != best.number:
            instead = "none" if best is None else f"trial {best.number}"
            contradictions.append(f"trial {tested.trial} was tested, but best on validation is {instead}")
        if tested.of != manifest.get("test_images") or not 0 <= tested.correct <= tested.of:
            contradictions.append(
                f"{tested.correct} right of {tested.of} test images; there are {manifest.get('test_images')}"
            )
        if not tested.seconds > 0:
            contradictions.append("the test took no time")
    test = "the best network was not tested" if tested is None else "the best network was tested"
    looked_at = tested is not None or any(_validations(replay))
    text = f"every validation saw all its images; {test}"
    return looked(looked_at, "no network was validated", text, contradictions)


def data(evidence: Evidence) -> Seen:
    """All ranks saw the images that the configuration names."""
    replay, config = evidence.replay, evidence.replay.opened.config.data
    if not any(leg.ranks for leg in replay.legs):
        return Seen("no rank was ready", known=False)
    contradictions = []
    for leg in replay.legs:
        for event in leg.ranks:
            manifest = event.ready.data
            if manifest != replay.manifest:
                contradictions.append(f"rank {event.ready.rank} of {event.ready.host} saw other images")
            for what in _declared(config):
                if manifest.get(what) != getattr(config, what):
                    contradictions.append(
                        f"data.{what} is {manifest.get(what)!r}, declared {getattr(config, what)!r}"
                    )
            used = manifest.get("training_images", 0) + manifest.get("validation_images", 0)
            if used > (official := manifest.get("official_training_images", used)):
                contradictions.append(f"{used} images to train and to validate, out of {official}")
            if manifest.get("synthetic") != (config.name == "synthetic"):
                contradictions.append(f"data.synthetic is {manifest.get('synthetic')!r} of {config.name}")
    return Seen(f"{config.name}, SHA-256 {str(replay.manifest.get('sha256'))[:12]}…", contradictions)


def _declared(config: DataConfig) -> Iterator[str]:
    """The keys of a manifest that the configuration fixes."""
    yield from ("name", "channels", "size", "classes", "validation_images")
    if config.training_images:
        yield "training_images"
    if config.name == "synthetic":
        yield "test_images"


def _validations(replay: Replay) -> Iterator[tuple[Attempt, Validation]]:
    for attempt in replay.attempts:
        for validation in attempt.validations:
            yield attempt, validation
