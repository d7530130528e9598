"""The measured figures of a run, by which it is known again: a clock never gives the same twice.

Two runs of one machine with one seed share architectures, losses and answers, but no seconds. So a run is
that of another package where a share of its seconds and rates are the same, in one of the kinds below: a copy
that was renamed, cut, continued, put in another order or changed in most of its figures is still known.

Figures that were rounded are equal to none. But a clock gives microseconds, so a run with rounded seconds
shows by itself that it was changed, and is compared with others by fewer digits.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from hashlib import sha256

from aiperf.journal.replay import Replay
from aiperf.wire.reports import Ceiling, Rate
from nas.frozen import frozen

SHARE = 0.05
"""Least share of equal figures that makes two runs one, relative to the run with fewer figures. Two honest
runs share less than a thousandth by chance, with 10^5 blocks of two seconds that vary by 0.1 %."""
LEAST = 3
"""Fewest equal figures that make two runs one: one or two may be chance in a short run."""
MOST = 200_000
"""Most figures of a kind that are kept; of more, a sample that depends on the figures alone, so that equal
figures give equal samples. The number is large enough that to hide a run among invented figures takes
gigabytes of them."""
ROUNDED_SHARE = 0.9
"""Least share of equal seconds of three digits that makes two runs one, if those of one were rounded."""
FEWEST_ROUNDED = 20
"""Fewest seconds that show whether they were rounded: of as many measured ones more than half end in a zero
with a chance below 10^-6."""
ROUND = 4
"""Significant digits of a figure that was not measured: a figure with no more than these is a limit, a
default or 0."""


Place = tuple[tuple[tuple[int, int], int], int | str]
"""Trial and attempt, segment, and what of it: a block by its number, or by name."""


@frozen
class Sample:
    """Figures of one kind as hashes; of many those that 2^`halved` divides."""

    halved: int
    """How often the sample was halved."""
    hashes: array[int]

    @classmethod
    def of(cls, figures: Iterable[Hashable]) -> Sample:
        """A sample of these figures. Whenever they are too many, half of them are dropped, by their
        hashes."""
        hashes, halved = set[int](), 0
        for figure in figures:
            if not (value := _hash(figure)) % (1 << halved):
                hashes.add(value)
            if len(hashes) > MOST:
                halved += 1
                hashes = {value for value in hashes if not value % (1 << halved)}
        return cls(halved, array("Q", hashes))

    def shares(self, other: Sample, share: float = SHARE) -> bool:
        """Whether so large a share of the smaller sample is in the other one. Both are first thinned to the
        same degree."""
        part = 1 << max(self.halved, other.halved)
        own, its = ({value for value in one.hashes if not value % part} for one in (self, other))
        return len(own & its) >= max(LEAST, share * min(len(own), len(its)))


@frozen
class Figures:
    """By what a run is known again."""

    kinds: Mapping[str, Sample]
    """Samples of the figures, by kind."""
    rounded: Sample
    """Seconds at their place, to three digits."""
    was_rounded: bool
    """Whether its seconds have fewer digits than a clock gives."""


def measured(replay: Replay) -> Figures:
    """The figures of a run, by kind."""
    kinds = {name: Sample.of(found(replay)) for name, found in _KINDS.items()}
    rounded = Sample.of((place, f"{seconds:.3g}") for place, _, seconds in _durations(replay))
    return Figures(kinds, rounded, _was_rounded(replay))


def is_same_run(first: Figures, second: Figures) -> bool:
    """Whether two journals tell of one run, as far as any kind of figure shows it."""
    if any(first.kinds[kind].shares(second.kinds[kind]) for kind in _KINDS):
        return True
    return (first.was_rounded or second.was_rounded) and first.rounded.shares(second.rounded, ROUNDED_SHARE)


def _was_rounded(replay: Replay) -> bool:
    """Whether most seconds are whole multiples of ten microseconds; a journal has single ones."""
    tens = [seconds * 1e5 for _, _, seconds in _durations(replay)]
    return len(tens) >= FEWEST_ROUNDED and sum(abs(n - round(n)) < 1e-3 for n in tens) > len(tens) / 2


def _before(replay: Replay) -> Iterator[Hashable]:
    """What each rank measured before the span, whatever rank and host are called."""
    for leg in replay.legs:
        for event in leg.ranks:
            yield from _digits(9, event.clock_offset_seconds, event.ready.seconds)
            yield from _digits(9, *event.ready.formats.values())
        for control in leg.controls.values():
            yield from _digits(9, control.seconds, control.examples_per_second)
            yield from _digits(9, *(rung.seconds for rung in control.others))
        for ceiling in leg.ceilings.values():
            yield from _digits(9, *_of_ceiling(ceiling))


def _of_ceiling(ceiling: Ceiling) -> Iterator[float]:
    """Every rate and time that a rank measured before the span."""
    rates = (ceiling.product, ceiling.copy, ceiling.upload, ceiling.all_reduce, ceiling.seed)
    for rate in (*rates, *ceiling.thread_products.values()):
        if isinstance(rate, Rate):
            yield from (rate.fastest, rate.typical, rate.spread)
    yield from ceiling.thread_seconds.values()
    yield from (step.seconds for step in ceiling.timed)


def _by_trial(replay: Replay) -> Iterator[Hashable]:
    """The seconds of a run with their place in it, to seven digits. They match those of a copy whose seconds
    were changed a little."""
    for place, _, seconds in _durations(replay):
        for text in _digits(7, seconds):
            yield (place, text)


def _by_shape(replay: Replay) -> Iterator[Hashable]:
    """Seconds of an example over those before it in the trial: also where all were made longer or shorter."""
    before: dict[Hashable, float] = {}
    for (trial, what), (_, examples), seconds in _durations(replay):
        of_example = seconds / examples if examples else 0.0
        kind = trial[0], isinstance(what, int) or what
        if of_example > 0 < before.get(kind, 0.0):
            for text in _digits(7, round(of_example / before[kind], 7)):
                yield (trial, what, text)
        before[kind] = of_example


def _by_work(replay: Replay) -> Iterator[Hashable]:
    """Seconds of this many steps and examples, wherever they stand: also where trials were numbered anew."""
    for _, work, seconds in _durations(replay):
        if work[0]:
            for text in _digits(9, seconds):
                yield (work, text)


def _times(replay: Replay) -> Iterator[Hashable]:
    """When work ended, to the microsecond since its leg began."""
    ends = [*replay.blocks.column("ends").tolist(), *replay.validations.column("end").tolist()]
    for attempt in replay.attempts:
        ends += [end for end in (attempt.began, attempt.ended) if end is not None]
    for end in ends:
        if round(end, 3) != end:
            yield f"{end:.6f}"


def _durations(replay: Replay) -> Iterator[tuple[Place, tuple[int, int], float]]:
    """Place, steps and examples, seconds."""
    blocks, ordinal = replay.blocks, Counter[object]()
    trials = [(attempt.trial.number, attempt.number) for attempt in replay.attempts]
    columns = ("attempts", "segments", "steps", "examples", "seconds")
    for index, at, steps, examples, seconds in zip(*[blocks.column(name).tolist() for name in columns]):
        place = (trials[index], at)
        ordinal[place] += 1
        yield (place, ordinal[place]), (steps, examples), seconds
    for trial, attempt in zip(trials, replay.attempts):
        if attempt.began is not None:
            yield ((trial, -1), "prepared"), (0, 0), attempt.prepare_seconds
        for row in attempt.rows:
            yield ((trial, row.segment), "trained"), (row.steps, row.train_examples), row.train_seconds
            yield ((trial, row.segment), "validated"), (0, row.of), row.validate_seconds


def _digits(digits: int, *values: float) -> Iterator[str]:
    """The measured ones of the values, as text of `digits` significant digits; those of `ROUND` are left
    out."""
    return (f"{value:.{digits}g}" for value in values if float(f"{value:.{ROUND}g}") != value)


def _hash(figure: Hashable) -> int:
    """A figure as a number of 64 bits, the same on every machine."""
    return int.from_bytes(sha256(repr(figure).encode()).digest()[:8], "big")


_KINDS: Mapping[str, Callable[[Replay], Iterator[Hashable]]] = {
    "before the span": _before,
    "by trial": _by_trial,
    "by shape": _by_shape,
    "by work": _by_work,
    "times": _times,
}
"""The kinds of figures: each outlasts another way to disguise a run."""
