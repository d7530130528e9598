"""Devices that compute wrongly: what the device checks of a run say when equal devices are compared.

Devices are equal if everything is that their bits may depend on: name, software, settings of the libraries,
instruction set, caches, number of multiprocessors. The bits of equal devices are equal or somebody is wrong.
A device is named only where the others leave no doubt about who it is; otherwise nothing is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from aiperf.journal.attempts import Leg
from aiperf.journal.replay import Replay
from aiperf.wire.reports import TRAITS, DeviceCheck, Ready
from aiperf.wording import counted, first_few
from nas.frozen import frozen

CHECKED_SINCE = 2
"""Version of the rules since which a deviating device costs the class ranked."""
LEAST_EQUAL = 3
"""Devices of a kind of which one can be found to deviate: of two, either may be right."""
MOST_DEVIATING = 10
"""One in this many may deviate, and always one; if more do, the software is the likelier cause."""
DECISIVE = ("ATEN_", "DNNL_", "ISA", "MKL_", "ONEDNN_", "OPENBLAS_", *TRAITS)
"""Beginnings of the settings on which bits may depend."""

Kind = tuple[object, ...]
"""All that the bits of a device may depend on."""


@frozen
class Deviation:
    """A device that computes wrongly."""

    rank: int
    host: str
    device: str
    how: str
    """What it did, as the end of a sentence that begins with the device."""

    @property
    def text(self) -> str:
        return f"rank {self.rank} on {self.host} ({self.device}) {self.how}"


@frozen
class Agreement:
    """What the device checks of a run say."""

    deviations: tuple[Deviation, ...]
    """Devices that were found to compute wrongly, in the order of legs and ranks."""
    unknown: tuple[str, ...]
    """Why it is not known of some or all of the devices."""
    agreed: int = 0
    """Devices that computed the same bits as their equals, and after the span as before it."""
    alone: int = 0
    """Devices among these without an equal, which agree with themselves only."""

    @property
    def agreed_text(self) -> str:
        """The sentence for a run in which all is known and no device deviates."""
        same = "computed the same bits before and after the span"
        if self.alone == self.agreed:
            return f"{counted(self.agreed, 'device')} {same}; without an equal to compare with"
        alone = f"; {self.alone} of them without an equal" if self.alone else ""
        return f"{counted(self.agreed, 'device')} {same}, equal to those of equal devices{alone}"


def agreement(replay: Replay) -> Agreement:
    """What the checks before and after the span say, over all legs with a span."""
    legs = [leg for leg in replay.counted_legs if leg.checks]
    if not legs:
        return Agreement((), ("no device was checked",))
    found = [(leg, each) for leg in legs for each in (at_beginning(leg), at_end(leg))]
    unknown = [
        text if len(legs) == 1 else f"{text} (leg {leg.index})" for leg, one in found for text in one.unknown
    ]
    last = found[-1][1]
    return Agreement(
        tuple(each for _, one in found for each in one.deviations),
        tuple(dict.fromkeys(unknown)),
        last.agreed,
        last.alone,
    )


def suspects(leg: Leg) -> list[int]:
    """Ranks whose first check deviates from those of enough equal devices, and which were not asked again."""
    return [
        rank
        for ranks in _kinds(leg, leg.checks).values()
        for rank in _minority(leg.checks, ranks)
        if rank not in leg.repeats
    ]


def at_beginning(leg: Leg) -> Agreement:
    """What the checks before the span say: a device deviates if it does so in both of its checks."""
    deviations, unknown, agreed, alone = [], [*_unanswered(leg, leg.checks)], 0, 0
    for ranks in _kinds(leg, leg.checks).values():
        right, different = _majority(leg.checks, ranks)
        named = _minority(leg.checks, ranks)
        one = leg.devices[ranks[0]]
        if different and not named:
            unknown.append(_undecided(one, len(ranks), len(different)))
            continue
        for rank in named:
            repeat = leg.repeats.get(rank)
            if repeat is not None and repeat.digests and repeat.digests != (right,):
                deviations.append(
                    _deviation(leg, rank, f"computed other bits than {_equals(ranks, different)}, twice")
                )
            else:
                unknown.append(f"{_where(leg, rank)} deviated once and {_again(repeat)}")
        agreed += len(ranks) - len(different)
        alone += len(ranks) == 1
    return Agreement(tuple(deviations), tuple(unknown), agreed, alone)


def at_end(leg: Leg) -> Agreement:
    """What the checks after the span say: a device deviates if it computes other bits than before it, while
    the devices equal to it do not."""
    if not leg.end_checks:
        return Agreement((), ("no device was checked after the span",))
    before = {rank: leg.repeats.get(rank, check) for rank, check in leg.checks.items()}
    missing = [rank for rank in leg.checks if rank not in leg.end_checks]
    deviations, unknown, agreed, alone = [], [*_unanswered(leg, leg.end_checks)], 0, 0
    if missing:
        unknown.append(f"{first_few([_where(leg, rank) for rank in missing])} not checked after the span")
    compared = _kinds(leg, leg.end_checks)
    if others := [rank for ranks in compared.values() for rank in ranks if not _is_as_before(leg, rank)]:
        where = first_few([_where(leg, rank) for rank in others])
        unknown.append(f"{where} had another device, or other software, after the span than before it")
    for ranks in compared.values():
        ranks = [rank for rank in ranks if len(before[rank].digests) == 1 and _is_as_before(leg, rank)]
        changed = [rank for rank in ranks if leg.end_checks[rank].digests != before[rank].digests]
        if len(changed) > max(1, len(ranks) // MOST_DEVIATING):
            all_of = f"{len(changed)} of {counted(len(ranks), 'device')} ({leg.devices[ranks[0]].device})"
            unknown.append(f"{all_of} computed other bits after the span than before it")
            continue
        deviations += [
            _deviation(leg, rank, "computed other bits after the span than before it") for rank in changed
        ]
        agreed += len(ranks) - len(changed)
        alone += len(ranks) == 1
    return Agreement(tuple(deviations), tuple(unknown), agreed, alone)


def _kinds(leg: Leg, checks: Mapping[int, DeviceCheck]) -> Mapping[Kind, list[int]]:
    """The ranks of equal devices that computed something, by what their bits depend on."""
    kinds: dict[Kind, list[int]] = {}
    for rank in sorted(checks.keys() & leg.checks.keys()):
        if checks[rank].digests:
            kinds.setdefault(_kind(leg.first_devices[rank]), []).append(rank)
    return kinds


def _kind(ready: Ready) -> Kind:
    flags = () if ready.processor is None else (ready.processor.flags, ready.processor.vector_bits)
    settings = {name: text for name, text in ready.settings.items() if name.startswith(DECISIVE)}
    mappings = (ready.software, settings)
    return (ready.device, flags, *(tuple(sorted(each.items())) for each in mappings))


def _is_as_before(leg: Leg, rank: int) -> bool:
    """Whether the rank has an equal device at the end: it may have been started again in between."""
    return _kind(leg.devices[rank]) == _kind(leg.first_devices[rank])


def _majority(checks: Mapping[int, DeviceCheck], ranks: Iterable[int]) -> tuple[str, list[int]]:
    """The hash of most of these devices, and those that have another one or several."""
    single = Counter(checks[rank].digests for rank in ranks if len(checks[rank].digests) == 1)
    most = max(single, key=lambda digests: (single[digests], digests), default=())
    return most[0] if most else "", [rank for rank in ranks if checks[rank].digests != most]


def _minority(checks: Mapping[int, DeviceCheck], ranks: list[int]) -> list[int]:
    """Those of equal devices that deviate, if they are few enough to be named."""
    different = _majority(checks, ranks)[1]
    few = len(ranks) >= LEAST_EQUAL and len(different) <= max(1, len(ranks) // MOST_DEVIATING)
    return different if few else []


def _again(repeat: DeviceCheck | None) -> str:
    if repeat is None:
        return "was not asked again"
    return "did not when it was asked again" if repeat.digests else f"then computed nothing: {repeat.why_not}"


def _undecided(one: Ready, number: int, different: int) -> str:
    if number == 1:
        return f"the only device of its kind ({one.device}) computed different bits in the same work"
    if different >= number - 1:
        return f"{number} equal devices ({one.device}) all computed different bits"
    return f"{different} of {number} equal devices ({one.device}) computed other bits than the rest"


def _equals(ranks: list[int], different: list[int]) -> str:
    return counted(len(ranks) - len(different), "equal device")


def _deviation(leg: Leg, rank: int, how: str) -> Deviation:
    ready = leg.devices[rank]
    return Deviation(rank, ready.host, ready.device, how)


def _where(leg: Leg, rank: int) -> str:
    return f"rank {rank} on {leg.devices[rank].host}"


def _unanswered(leg: Leg, checks: Mapping[int, DeviceCheck]) -> Iterator[str]:
    """The reasons of devices that computed nothing, each with its first rank."""
    reasons: dict[str, list[int]] = {}
    for rank, check in sorted(checks.items()):
        if not check.digests:
            reasons.setdefault(check.why_not or "nothing was computed", []).append(rank)
    for why_not, ranks in reasons.items():
        more = f" and {len(ranks) - 1} more" if ranks[1:] else ""
        yield f"{_where(leg, ranks[0])}{more}: {why_not}"
