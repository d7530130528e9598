"""Somebody else's run submitted as one's own: whose it is stands, however the copy was changed.

The ways to change a copy and what becomes of it are one file, because each way is named in its tests.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.journal.run_files import RunFiles
from aiperf.wire.reports import SEED, Rate, Rung, TimedStep
from analysis.submissions import fingerprint
from analysis.submissions.canonical import canonical, parse
from analysis.submissions.fingerprint import Sample, is_same_run, measured
from analysis.submissions.keys import Register, claimed_site
from analysis.submissions.signature import make_key
from analysis.submissions.standing import Standing
from tests.aiperf.rules.forged import TIMED, together, with_ceiling, with_control
from tests.analysis.packages import Record, contents, make, packed, ranked, records_of, resealed, written
from tests.journals import CIFAR, Machine, replayed, resized, write_run
from tests.tables import ComesTo

Theft = Callable[[list[Record]], list[Record]]
SITE, OWNER = "University A", "Department A"
"""The name in the register, and in the package."""


class Bench:
    """Two runs of one machine with one seed, three sites with keys, and packages of what a test wants."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.run, self.second = (self.honest(name, seed) for name, seed in (("first", 1), ("second", 2)))
        self.public = {name: make_key(folder / name) for name in ("a.key", "b.key", "fresh.key")}
        self.register: Register = {self.public["a.key"]: SITE, self.public["b.key"]: "Site B"}
        self.original = self.package("original", self.run, "a.key", OWNER)
        self.unsigned = self.package("unsigned", self.run, "", OWNER)

    def honest(self, name: str, seed: int) -> RunFiles:
        """No two steps take the same time on a real machine, as they do on a simulated one."""
        run = write_run(self.folder / name, resized(CIFAR, 0.4), Machine(groups=2, random_seed=seed))
        return written(each(noise(seed), "Stepped", "Closed")(records_of(run)), run.directory)

    def package(self, name: str, run: RunFiles, key: str = "", submitter: str = "Thief") -> Path:
        path = self.folder / f"{name}.tar.gz"
        path.unlink(missing_ok=True)
        return make(path, run, key=self.folder / key if key else None, submitter=submitter)

    def stolen(self, theft: Theft) -> RunFiles:
        """A journal rewritten, its chain computed again."""
        self.count += 1
        return written(theft(records_of(self.run)), self.folder / f"stolen-{self.count}")

    def ranked(self, *packages: Path, register: Register | None = None) -> Standing:
        return ranked(*packages, register=self.register if register is None else register)[0]


def each(change: Callable[[Record, random.Random], object], *kinds: str) -> Theft:
    def theft(records: list[Record]) -> list[Record]:
        rng = random.Random(7)
        for record in records:
            if not kinds or record["type"] in kinds:
                change(record, rng)
        return records

    return theft


def timed(record: Record) -> Record:
    """What of a line holds seconds."""
    found: Record = record.get("block") or record.get("segment") or {}
    return found


def scale(by: Callable[[random.Random], float]) -> Theft:
    def change(record: Record, rng: random.Random) -> None:
        for name, value in timed(record).items():
            if name.endswith("seconds"):
                timed(record)[name] = value * by(rng)

    return each(change, "Stepped", "Closed")


def noise(seed: int) -> Callable[[Record, random.Random], object]:
    """Noise on the seconds, the same in a segment's blocks and in its validation."""

    def change(record: Record, rng: random.Random) -> None:
        work = timed(record)
        place = work["trial"], work["attempt"], work.get("segment", work.get("index"))
        shaken = random.Random(f"{seed} {place}")
        training, validating = (1 - 2e-3 * shaken.random() for _ in range(2))
        for name in ("seconds", "train_seconds", "validate_seconds"):
            if name in work:
                work[name] *= validating if name == "validate_seconds" else training

    return change


def shift(record: Record, rng: random.Random) -> None:
    for name in ("end", "t", "deadline"):
        if record.get(name) is not None:
            record[name] += 0.0101


def rename(record: Record, rng: random.Random) -> None:
    """Hosts, run, date and command."""
    for part in (record.get("ready"), record.get("control")):
        if part is not None:
            part["host"] = part["host"].replace("node", "thief")
    if record["type"] == "Opened":
        record["run_id"] = "mine"
    if record["type"] == "LegBegan":
        record["command"], record["started"] = ["mine"], "2026-11-01T00:00:00+00:00"


def invent(record: Record, rng: random.Random) -> None:
    """Controls and clocks."""
    if record["type"] == "ControlMeasured":
        rate = rng.gauss(2400, 10)
        record["control"] |= {"seconds": 25600 / rate, "examples_per_second": rate}
    if record["type"] == "RankReady":
        record["clock_offset_seconds"] = rng.gauss(0, 2e-3)


def some(record: Record, rng: random.Random) -> None:
    if rng.random() < 0.5:
        for name in ("seconds", "train_seconds", "validate_seconds"):
            if name in timed(record):
                timed(record)[name] *= 0.999


def six_digits(record: Record, rng: random.Random) -> None:
    for name in timed(record):
        if name.endswith("seconds"):
            timed(record)[name] = float(f"{timed(record)[name]:.7g}")
    if "end" in record:
        record["end"] = round(record["end"], 6)


def rounded(digits: int) -> Theft:
    """All times of a line, controls and clocks too."""

    def change(record: Record, rng: random.Random) -> None:
        for part in (record, *(value for value in record.values() if isinstance(value, dict))):
            for name, value in part.items():
                if isinstance(value, float):
                    part[name] = float(f"{value:.{digits}g}")

    return each(change)


def halves(records: list[Record]) -> list[Record]:
    """Each block told as two."""
    found = []
    for record in records:
        block = record.get("block", {})
        if block.get("steps", 0) < 2:
            found.append(record)
            continue
        steps, seconds = block["steps"], block["seconds"]
        begin, done = record["end"] - seconds, 0
        for until in (steps // 2, steps):
            part = {name: block[name] * (until - done) / steps for name in ("examples", "seconds")}
            part |= {"steps": until - done, "examples": int(part["examples"])}
            found.append({**record, "block": {**block, **part}, "end": begin + seconds * until / steps})
            done = until
    return found


def all_of(*thefts: Theft) -> Theft:
    def theft(records: list[Record]) -> list[Record]:
        for one in thefts:
            records = one(records)
        return records

    return theft


DISGUISES, INVENTED = each(rename), each(invent)


def stretch(by: Callable[[Record], float]) -> Theft:
    """All times of a line, after the start of the clock too."""

    def change(record: Record, rng: random.Random) -> None:
        factor = by(record)
        for part in (record, *(value for value in record.values() if isinstance(value, dict))):
            for name, value in part.items():
                if name in ("t", "end", "deadline") or (name.endswith("seconds") and "ages" not in name):
                    part[name] = value * factor if isinstance(value, float) else value

    return each(change)


def hide(records: list[Record]) -> list[Record]:
    """The run's figures among invented ones."""
    rng = random.Random(7)
    for record in records:
        if record["type"] == "RankReady":
            record["ready"]["formats"] = {f"f{number}": rng.random() for number in range(4_000)}
    return records


def more_beats(records: list[Record]) -> list[Record]:
    return [*records, *[{"t": records[-1]["t"], "type": "Beat"}] * 500]


PACKED = {
    "500 Beats more": more_beats,
    "the last line cut": lambda records: records[:-1],
    "clock shifted, controls and clocks invented": all_of(DISGUISES, each(shift), INVENTED),
}
"""Thefts that are also tried as packages, which are recounted whole."""
RECORDED = sorted(path.parent for path in Path("tests/recorded").glob("*/journal.jsonl"))

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


def stand(made: Standing) -> list[str]:
    return [entry.submitter for entry in made.entries]


def reasons(made: Standing) -> dict[str, str]:
    return {one.package: "; ".join(one.reasons) for one in made.refused}


def test_every_size_of_the_control_and_every_number_of_threads_is_a_figure() -> None:
    rung, rate = Rung(64, 8, 3, 0.123456789, ""), Rate(1.23456789e11, 1.12345678e11, 0.0123456)
    timed = (TimedStep(SEED, 2, "eager", 0.0234567891, 5),)
    more = together(
        with_control(others=(rung,)),
        with_ceiling(thread_seconds={}, thread_products={"2": rate}, timed=timed),
    )
    before, after = (
        set(measured(replayed(timed)).kinds["before the span"].hashes) for timed in (TIMED, more(TIMED))
    )
    assert before < after
    assert len(after) == len(before) + 5


@pytest.mark.parametrize("name", PACKED)
def test_a_stolen_run_is_known_however_it_was_changed(name: str, bench: Bench) -> None:
    """Unsigned, and first by file name; the original is signed by a registered site."""
    stolen = bench.stolen(PACKED[name])
    made = bench.ranked(bench.package("0-thief", stolen), bench.original)
    assert stand(made) == [OWNER]
    assert made.entries[0].contested_by == ()
    (told,) = reasons(made).values()
    claim = f"its run is that of original.tar.gz, which is signed by {SITE}, a registered site"
    if name == "500 Beats more":  # others break a rule
        assert told == f"runs/{stolen.directory.name}: {claim}; it is not signed"


def test_its_figures_are_those_of_the_run(bench: Bench, comes_to_what_was_read: ComesTo) -> None:
    """Also where another rule refuses it already; and never those of an honest run with the same seed."""
    own, second = (figures_of(run.directory) for run in (bench.run, bench.second))

    def known(theft: Theft) -> tuple[bool, bool, bool]:
        """Whether it is the run, the run is it, and it is the other run."""
        stolen = figures_of(bench.stolen(theft).directory)
        return is_same_run(stolen, own), is_same_run(own, stolen), is_same_run(stolen, second)

    comes_to_what_was_read("thefts.txt", {**globals(), "known": known})


def test_a_signature_is_of_one_manifest_and_taken_away_takes_the_place_away(bench: Bench) -> None:
    """It is not carried over to another description of the same run; a key in capitals is the same key."""
    files = contents(bench.original)
    seal = parse(files["seal.json"])
    system = parse(files["system.json"]) | {"submitter": "Thief"}
    unsigned = {"manifest_sha256": seal["manifest_sha256"]}
    loud = seal | {"public_key": seal["public_key"].upper()}
    stripped, forged, capitals = (
        packed(bench.folder / f"0-{name}.tar.gz", changed)
        for name, changed in (
            ("stripped", {**files, "seal.json": canonical(unsigned)}),
            ("forged", resealed({**files, "system.json": canonical(system)})),
            ("capitals", {**files, "seal.json": canonical(loud)}),
        )
    )
    made = bench.ranked(stripped, forged, bench.original)
    assert [(entry.signer.name, entry.submitter) for entry in made.entries] == [(SITE, OWNER)]
    assert "its run is that of original.tar.gz" in reasons(made)["0-stripped.tar.gz"]
    assert "the signature does not match the manifest" in reasons(made)["0-forged.tar.gz"]
    assert [entry.signer.name for entry in bench.ranked(capitals).entries] == [SITE]


def test_who_has_more_right_stands(bench: Bench) -> None:
    """A registered key, any key, none."""
    fresh = bench.package("fresh", bench.run, "fresh.key")
    stolen = bench.stolen(more_beats)
    for packages, right in (
        ((bench.unsigned, fresh), "SIGNED"),
        ((bench.package("resigned", stolen, "fresh.key"), bench.original, bench.unsigned), "REGISTERED"),
    ):
        made = bench.ranked(*packages)
        assert [entry.signer.right.name for entry in made.entries] == [right]
        assert made.entries[0].contested_by == ()


def test_two_registered_sites_refuse_each_other_and_both_are_named(bench: Bench) -> None:
    other = bench.package("other", bench.stolen(DISGUISES), "b.key")
    third = bench.package("third", bench.run, "fresh.key")
    honest = bench.package("honest", bench.second, "b.key", "Site B")
    made = bench.ranked(bench.original, other, third, honest)
    assert [entry.run for entry in made.entries] == ["second"]
    for package, words in (
        ("original", "University A and another registered site claim one run: other.tar.gz of Site B"),
        ("other", "Site B and another registered site claim one run: original.tar.gz of University A"),
        ("third", "is signed by"),
    ):
        assert words in reasons(made)[f"{package}.tar.gz"]


@pytest.mark.parametrize("key", ["", "fresh.key"])
def test_without_registered_keys_nobody_is_refused_and_nobody_has_the_place(key: str, bench: Bench) -> None:
    """Anybody makes a key, so a signature with it decides nothing between two signers; the list says so."""
    mine = bench.package("mine", bench.run, "a.key" if key else "", OWNER)
    theirs = bench.package("0-theirs", bench.stolen(more_beats), key)
    made, pages = ranked(theirs, mine, bench.package("honest", bench.second))
    assert made.refused == []
    assert {entry.submitter: entry.contested_by for entry in made.entries if entry.contested_by} == {
        OWNER: ("0-theirs.tar.gz",),
        "Thief": ("mine.tar.gz",),
    }
    as_ranked = replace(made.lists[0], run_class="ranked")  # smoke has no places
    assert [place for place, _ in as_ranked.placed() if place] == [1]
    assert pages["index.html"].count('<tr class="contested"') == 2
    assert "claims the same run, and nobody has a registered key" in pages["index.html"]


def test_one_hand_s_packages_stand_once_by_the_longest(bench: Bench) -> None:
    """A run that was continued, or packed again: also under two keys of one site, and as a copied file."""
    longer = bench.package("longer", bench.stolen(more_beats), "b.key", OWNER)
    copied = bench.folder / "0-copied.tar.gz"
    copied.write_bytes(bench.original.read_bytes())
    register = dict.fromkeys(bench.public.values(), SITE)
    made = bench.ranked(copied, bench.original, longer, register=register)
    assert len(made.entries) == 1
    assert set(reasons(made)) == {"0-copied.tar.gz", "original.tar.gz"}
    assert all(
        "its run is that of longer.tar.gz, by the same signer" in told for told in reasons(made).values()
    )


def test_a_forgery_out_of_two_runs_makes_them_no_rivals(bench: Bench) -> None:
    """One run's figures before the span, another's after."""
    controls = iter(record for record in records_of(bench.second) if record["type"] == "ControlMeasured")

    def theft(records: list[Record]) -> list[Record]:
        return [next(controls) if record["type"] == "ControlMeasured" else record for record in records]

    both = bench.stolen(theft)
    second = bench.package("second", bench.second, "b.key", "Site B")
    made = bench.ranked(bench.package("0-both", both, "fresh.key"), bench.original, second)
    assert sorted(stand(made)) == [OWNER, "Site B"]
    assert all(not entry.contested_by for entry in made.entries)
    # What is itself refused contests nothing.
    made = bench.ranked(bench.package("0-both", both), bench.unsigned, second)
    assert {entry.submitter: entry.contested_by for entry in made.entries} == {OWNER: (), "Site B": ()}


def test_an_honest_run_beside_a_stolen_one_in_one_package_stands(bench: Bench) -> None:
    own = bench.honest("own", 9)
    path = bench.folder / "two.tar.gz"
    make(path, own, bench.stolen(DISGUISES), submitter="Thief")
    made = bench.ranked(path, bench.original)
    assert sorted(entry.run for entry in made.entries) == ["first", "own"]
    assert stand(made).count(OWNER) == 1


def test_a_name_that_looks_like_a_registered_one_is_claimed(comes_to_what_was_read: ComesTo) -> None:
    register = {"a": "Another", "b": "Example University", "c": "Site B"}
    comes_to_what_was_read("claimed_names.txt", {"claimed": lambda name: claimed_site(register, name)})


def test_the_name_of_a_registered_site_is_not_borrowed(bench: Bench) -> None:
    """Its own key is what lets a site use it."""
    register = {**bench.register, bench.public["fresh.key"]: "Example University"}
    made = bench.ranked(bench.package("borrowed", bench.second, "", "Exarnple University"), register=register)
    assert stand(made) == []
    assert reasons(made)["borrowed.tar.gz"] == (
        "it names the registered site Example University, but was not signed with its key"
    )
    own = bench.package("own-name", bench.second, "fresh.key", "Exarnple University")
    assert len(bench.ranked(own, register=register).entries) == 1


@pytest.mark.parametrize("first", RECORDED, ids=lambda path: path.name)
def test_recorded_runs_are_themselves_and_no_other(first: Path) -> None:
    """Real ones, several of them of one machine."""
    own = figures_of(first)
    for second in RECORDED:
        assert is_same_run(own, figures_of(second)) is (first == second)


@cache
def figures_of(directory: Path) -> Any:
    return measured(replay(read_journal(directory / "journal.jsonl")))


def test_a_sample_knows_what_the_whole_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long runs are known by their samples, and so is a short one that is hidden in a long one."""
    own, others = [f"own {number}" for number in range(4000)], [f"other {number}" for number in range(40_000)]
    monkeypatch.setattr(fingerprint, "MOST", 5000)
    whole, part, hidden, foreign = map(Sample.of, (own, own[:400], others + own, others))
    assert (whole.halved, hidden.halved > 2, foreign.halved > 2) == (0, True, True)
    assert all(one.shares(hidden) and hidden.shares(one) for one in (whole, part))
    assert not any(one.shares(foreign) for one in (whole, part))
    few = Sample.of([*others[:3900], *own[:100]])
    assert not few.shares(whole)
