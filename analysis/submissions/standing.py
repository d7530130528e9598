"""Who stands in a ranking, in which order, and who does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A valid run of a submission. What is not known is None."""

    page: str
    """File name of its own page."""
    system: str
    submitter: str
    run: str
    run_class: str
    vendor: str
    device: str
    precision: str
    devices: int
    size: str
    ops_per_second: float
    regulated_score: float | None
    mfu: float | None
    ops_per_joule: float | None
    """Of the devices only, as measured over the span."""
    error: float | None
    signed: bool

    @property
    def ops_per_second_per_device(self) -> float:
        return self.ops_per_second / max(1, self.devices)


@dataclass(frozen=True)
class RefusedPackage:
    """A package, or a run of one, that is not ranked, and why."""

    package: str
    reasons: Sequence[str]
    page: str = ""
    """Of a run that is valid, and has no place."""


@dataclass(frozen=True)
class ValidRun:
    """A valid run, and what decides whether it may stand beside the others."""

    entry: Entry
    package: str
    run: str
    """Its folder in the package."""
    begin: str
    """What its journal begins with, by which a run is told however far it went."""
    lines: int
    """Of its journal."""
    images: str
    """SHA-256 of the list of its images."""

    def refused(self, why: str) -> RefusedPackage:
        return RefusedPackage(self.package, [f"{self.run}: {why}"], self.entry.page)


@dataclass(frozen=True)
class Standing:
    entries: Sequence[Entry]
    """By sustained OPS, those of the class ranked first."""
    refused: Sequence[RefusedPackage]


def standing(found: Sequence[ValidRun], refused: Sequence[RefusedPackage]) -> Standing:
    """`refused`: packages, or runs of them, that nobody need compare with others."""
    single, repeated = _once(found)
    alike, others = _of_one_set(single)
    entries = sorted(
        (one.entry for one in alike), key=lambda entry: (entry.run_class != "ranked", -entry.ops_per_second)
    )
    return Standing(entries, [*refused, *repeated, *others])


def _once(found: Sequence[ValidRun]) -> tuple[list[ValidRun], list[RefusedPackage]]:
    """A run stands once, by the journal that tells most of it; of equals the first."""
    kept: dict[str, ValidRun] = {}
    for one in found:
        if one.begin not in kept or one.lines > kept[one.begin].lines:
            kept[one.begin] = one
    refused = [
        one.refused(f"its run is that of {kept[one.begin].package}; a run stands once")
        for one in found
        if kept[one.begin] is not one
    ]
    return list(kept.values()), refused


def _of_one_set(found: Sequence[ValidRun]) -> tuple[list[ValidRun], list[RefusedPackage]]:
    """Ranked runs saw the same images: of several sets those that most of them saw."""
    sets = Counter(one.images for one in found if one.entry.run_class == "ranked")
    usual = max(sets, key=lambda images: sets[images], default="")
    other = [one for one in found if one.entry.run_class == "ranked" and one.images != usual]
    refused = [
        one.refused(
            "its images are not those of the other ranked runs: SHA-256 of their list "
            f"{one.images:.12}…, not {usual:.12}…"
        )
        for one in other
    ]
    return [one for one in found if one not in other], refused
