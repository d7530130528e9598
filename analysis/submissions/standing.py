"""Who stands in a ranking, in which order, and who does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum

from aiperf.rules.verdict import RunClass
from aiperf.tasks.task import Task
from aiperf.wording import counted
from analysis.submissions.fingerprint import Figures, is_same_run
from nas.frozen import frozen


class Right(IntEnum):
    """Right to a run that several packages claim: the claimant with more right is ranked."""

    UNSIGNED = 0
    """Not signed: anybody who has the journal can have packed it."""
    SIGNED = 1
    """Signed with a key that is not registered; anybody can make one."""
    REGISTERED = 2
    """Signed with a key in the register of the list."""


@frozen
class Signer:
    """Who vouches for a package."""

    right: Right
    party: str
    """Equal where one hand packed: the registered site, the key, or the package itself."""
    name: str
    """Name of the registered site; else the key; empty for an unsigned package."""

    @property
    def party_of_several(self) -> str:
        """Equal for packages that may be of one submitter: nothing tells unsigned ones apart."""
        return "" if self.right is Right.UNSIGNED else self.party

    @property
    def text(self) -> str:
        if self.right is Right.UNSIGNED:
            return "not signed"
        return self.name if self.right is Right.REGISTERED else f"key {self.name:.8}…, not registered"


@frozen
class Entry:
    """A valid run of a submission. What is not known is None."""

    page: str
    """File name of its own page."""
    machine: str
    """The name of the system."""
    system: str
    """The same, with the run's name where a package has several."""
    submitter: str
    run: str
    date: str
    """When the run began, ISO 8601."""
    run_class: str
    division: str
    """closed or open, as the submitter states it."""
    task: Task
    data: str
    """Name of the images, or of the text."""
    data_sha256: str
    """SHA-256 of the list of the images, or of the text."""
    seed_sha256: str
    """SHA-256 of the seed's graph if it was a file; empty for a seed of the program."""
    packed: str
    """How the images were decoded beforehand; empty where they were not."""
    vendor: str
    """Maker of the devices, for the filter."""
    device: str
    precision: str
    """Format in which was trained, such as bf16."""
    search: str
    """Name of the search."""
    nodes: int
    devices: int
    nodes_of_a_group: int
    """Most nodes over which a group lies; with several, every gradient crosses the network."""
    size: str
    """Size by number of devices, for the filter."""
    ops_per_second: float
    regulated_score: float | None
    mfu: float | None
    """Tensor OPS ÷ dense peak of the devices."""
    ops_per_joule: float | None
    """Operations per joule of the devices only (L0), as measured over the span."""
    error: float | None
    """Error of the best network in the test."""
    control_examples_per_second: float | None
    """Examples of the task's control network, all devices together."""
    control_rate: str
    """The same in what the task states rates in: "38,400 images/s"."""
    control_size: str
    """Size of the control's examples: "224²"."""
    signer: Signer
    coupled_share: float | None = None
    """Rate of the control coupled over all devices, of the uncoupled one."""
    bus_bytes_per_second: float | None = None
    """Bus bandwidth of the largest all-reduce over all ranks."""
    ops_per_joule_l1: float | None = None
    """Operations per joule of the nodes; next, of nodes, network and storage. Levels are never compared."""
    ops_per_joule_l2: float | None = None
    notary: str = ""
    """By whom it is notarised, and how far; empty if the list has no notaries."""
    notary_text: str = ""
    """The same with reasons and times."""
    contested_by: Sequence[str] = ()
    """Packages that claim the same run with no less right."""
    others: Sequence[Entry] = ()
    """Further runs of its system, where it stands for several: it is the one with the median OPS."""

    @property
    def ops_per_second_per_device(self) -> float:
        return self.ops_per_second / max(1, self.devices)

    @property
    def list_key(self) -> tuple[str, str, str, str, str, bool]:
        """Runs in which these are equal may be compared. A seed of one's own can be any network, and so have
        any rate."""
        data = self.data, self.data_sha256, self.seed_sha256
        return self.run_class, self.division, *data, self.nodes_of_a_group > 1

    @property
    def runs(self) -> int:
        """How many runs it stands for, itself included."""
        return 1 + len(self.others)

    @property
    def ops_range(self) -> tuple[float, float]:
        """The least and the greatest sustained OPS of these."""
        rates = [each.ops_per_second for each in (self, *self.others)]
        return min(rates), max(rates)


@frozen
class RefusedPackage:
    """A package, or a run of one, that is not ranked, and why."""

    package: str
    """Name of its file."""
    reasons: Sequence[str]
    page: str = ""
    """File name of its own page, for a run that is valid but not ranked; else empty."""


@frozen
class ValidRun:
    """A valid run, and what decides whether it may be compared with the others."""

    entry: Entry
    package: str
    run: str
    """Its folder in the package."""
    lines: int
    """Number of lines of its journal."""
    figures: Figures
    """The measured figures by which it is known again."""
    kind: str = ""
    """Equal where configuration, code, data, devices and their number are; the random seed may differ."""

    @property
    def signer(self) -> Signer:
        return self.entry.signer

    @property
    def place(self) -> tuple[str, str]:
        return self.package, self.run

    def refused(self, why: str) -> RefusedPackage:
        return RefusedPackage(self.package, [f"{self.run}: {why}"], self.entry.page)


@frozen
class RankedList:
    """Runs that may be compared: of one class, division and set of data, which is of one task; either with
    seeds of the program or with one of their own; groups of all of them lie within nodes, or of none."""

    run_class: str
    division: str
    data: str
    data_sha256: str
    seed_sha256: str
    spans_nodes: bool
    """Whether groups lie over several nodes."""
    entries: Sequence[Entry]
    """Entries by sustained OPS, the highest first."""

    @property
    def task(self) -> Task:
        return self.entries[0].task

    @property
    def is_ranked(self) -> bool:
        """Whether its runs have places: those of the class smoke compare with similar runs only."""
        return self.run_class != RunClass.SMOKE.value

    def placed(self) -> list[tuple[int | None, Entry]]:
        """Each with its place; a contested one, and one of the class smoke, has none."""
        found, place = list[tuple[int | None, Entry]](), 0
        for entry in self.entries:
            has_place = self.is_ranked and not entry.contested_by
            place += has_place
            found.append((place if has_place else None, entry))
        return found


@frozen
class Standing:
    """A ranking: its lists in their order, and what is not on them."""

    lists: Sequence[RankedList]
    """The class ranked first, then the closed division, then the data that a registered site used."""
    refused: Sequence[RefusedPackage]
    """What is not on a list, with the reasons."""

    @property
    def entries(self) -> list[Entry]:
        return [entry for one in self.lists for entry in one.entries]

    @property
    def text(self) -> str:
        """ "1 ranked, 2 smoke, 3 refused"."""
        ranked = sum(len(one.entries) for one in self.lists if one.is_ranked)
        smoke = len(self.entries) - ranked
        refused = [f"{len(self.refused):,} refused"] if self.refused else []
        return ", ".join([f"{ranked:,} ranked", f"{smoke:,} smoke", *refused])


def standing(found: Sequence[ValidRun], refused: Sequence[RefusedPackage], runs: int = 1) -> Standing:
    """`refused` holds packages, or runs of them, that were refused before they are compared. `runs` is the
    number of runs that each system must have; if it is more than one, the run with the median OPS stands for
    all."""
    latest, repeated = _latest(found)
    kept, lost = _settled(latest, found)
    few = list[RefusedPackage]()
    if runs > 1:
        kept, few = _medians(kept, runs)
    return Standing(_lists([one.entry for one in kept]), [*refused, *repeated, *lost, *few])


def _medians(kept: Sequence[ValidRun], least: int) -> tuple[list[ValidRun], list[RefusedPackage]]:
    """For each system the run with the median OPS (of an even number the lower of the two in the middle), and
    the refused runs of systems with fewer than `least`."""
    systems = defaultdict[tuple[object, ...], list[ValidRun]](list)
    for one in sorted(kept, key=lambda one: one.entry.ops_per_second):
        entry = one.entry
        whose = (entry.submitter, entry.signer.party_of_several, entry.machine, one.kind)
        systems[whose + entry.list_key].append(one)
    medians, few = list[ValidRun](), list[RefusedPackage]()
    for group in systems.values():
        if len(group) < least:
            runs = counted(len(group), "run")
            why = f"its system has {runs} of this configuration and size, and the list asks for {least}"
            few += [one.refused(why) for one in group]
            continue
        middle = group[(len(group) - 1) // 2]
        others = tuple(one.entry for one in group if one is not middle)
        medians.append(replace(middle, entry=replace(middle.entry, others=others)))
    return medians, few


def _latest(found: Sequence[ValidRun]) -> tuple[list[ValidRun], list[RefusedPackage]]:
    """Each run once per signer, by its longest journal (of equal ones the first), and the refused copies."""
    kept, refused = list[ValidRun](), list[RefusedPackage]()
    for one in sorted(found, key=lambda one: -one.lines):
        same = next((other for other in kept if _same_hand(one, other) and _same(one, other)), None)
        if same is None:
            kept.append(one)
        else:
            refused.append(
                one.refused(f"its run is that of {same.package}, by the same signer; a run is ranked once")
            )
    return kept, refused


def _settled(
    latest: Sequence[ValidRun], found: Sequence[ValidRun]
) -> tuple[list[ValidRun], list[RefusedPackage]]:
    """The runs that no claimant with more right contests, and the refused ones.

    Each pair is compared by itself: a forgery made of two runs does not make those two rivals of each other.
    """
    kept, refused = list[ValidRun](), list[RefusedPackage]()
    stronger = {one.place: _rivals(one, found, more=True) for one in latest}
    for one in latest:
        # Who is refused for having less right than another contests nothing.
        equal = [other for other in _rivals(one, latest, more=False) if not stronger[other.place]]
        if above := stronger[one.place]:
            refused.append(one.refused(_weaker_text(one, max(above, key=lambda other: other.signer.right))))
        elif equal and one.signer.right is Right.REGISTERED:
            refused.append(one.refused(_registered_text(one, equal)))
        else:
            contested_by = tuple(dict.fromkeys(other.package for other in equal))
            kept.append(replace(one, entry=replace(one.entry, contested_by=contested_by)))
    return kept, refused


def _lists(entries: Iterable[Entry]) -> list[RankedList]:
    """The entries in lists of runs that may be compared, each by falling OPS."""
    groups: dict[tuple[str, str, str, str, str, bool], list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.list_key, []).append(entry)
    found = [
        RankedList(*key, sorted(group, key=lambda entry: -entry.ops_per_second))
        for key, group in groups.items()
    ]
    return sorted(found, key=_order)


def _order(one: RankedList) -> tuple[object, ...]:
    """Sorting key of a list. It does not use how many runs a set of data has, because anybody can invent
    runs."""
    known = any(entry.signer.right is Right.REGISTERED for entry in one.entries)
    data = one.data, one.data_sha256, one.seed_sha256, one.spans_nodes
    return one.run_class != "ranked", one.division, not known, *data


def _same(one: ValidRun, other: ValidRun) -> bool:
    """Whether two entries tell of one run."""
    return one is not other and is_same_run(one.figures, other.figures)


def _same_hand(one: ValidRun, other: ValidRun) -> bool:
    """Whether one party packed both, who may submit a run again."""
    return one.signer.party == other.signer.party


def _rivals(one: ValidRun, others: Sequence[ValidRun], more: bool) -> list[ValidRun]:
    """Claimants of its run by other signers, with more right than its own or with the same."""
    right = one.signer.right
    return [
        other
        for other in others
        if (other.signer.right > right if more else other.signer.right is right)
        and not _same_hand(one, other)
        and _same(one, other)
    ]


def _weaker_text(one: ValidRun, other: ValidRun) -> str:
    """Why `one` is refused for a package with more right."""
    own = "its key is not registered" if one.signer.right is Right.SIGNED else "it is not signed"
    by = (
        f"by {other.signer.name}, a registered site" if other.signer.right is Right.REGISTERED else "by a key"
    )
    return f"its run is that of {other.package}, which is signed {by}; {own}"


def _registered_text(one: ValidRun, others: Sequence[ValidRun]) -> str:
    """Why none of several registered sites is ranked: only they can settle whose run it is."""
    named = ", ".join(dict.fromkeys(f"{other.package} of {other.signer.name}" for other in others))
    return (
        f"{one.signer.name} and another registered site claim one run: {named}; neither is ranked until "
        f"they agree whose it is and one package is removed"
    )
