"""Somebody else's run submitted as one's own: whose it is stands, however the copy was changed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from aiperf.files import RunFiles
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from analysis.readings.judged import examine
from analysis.submissions.canonical import canonical, parse
from analysis.submissions.figures import is_same_run, measured
from analysis.submissions.keys import Register
from analysis.submissions.ranking import rank
from analysis.submissions.signature import make_key
from analysis.submissions.standing import Standing
from tests.analysis.packages import contents, make, packed, resealed
from tests.analysis.synthetic import CIFAR, Machine, resized, write_run

Record = dict[str, Any]
Theft = Callable[[list[Record]], list[Record]]
RECORDED = sorted(path.parent for path in Path("tests/recorded").glob("*/journal.jsonl"))
SITE, OWNER = "University A", "Department A"
"""The name in the register, and in the package."""

pytestmark = pytest.mark.usefixtures("undrawn")


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
        records = [json.loads(line) for line in run.journal.read_text().splitlines()]
        run.journal.write_text(rechained(each(noise(seed), "Stepped", "Closed")(records)))
        return run

    def package(self, name: str, run: RunFiles, key: str = "", submitter: str = "Thief") -> Path:
        path = self.folder / f"{name}.tar.gz"
        path.unlink(missing_ok=True)
        return make(path, run, key=self.folder / key if key else None, submitter=submitter)

    def stolen(self, theft: Theft, run: RunFiles | None = None) -> RunFiles:
        """A journal rewritten, its chain computed again."""
        records = [json.loads(line) for line in (run or self.run).journal.read_text().splitlines()]
        self.count += 1
        files = RunFiles(self.folder / f"stolen-{self.count}")
        files.directory.mkdir()
        files.journal.write_text(rechained(theft(records)))
        return files

    def ranked(self, *packages: Path, register: Register | None = None) -> Standing:
        known = self.register if register is None else register
        return rank(packages, known, lambda name, text: None, lambda text: None)


def rechained(records: list[Record]) -> str:
    chain, lines = "", []
    for record in records:
        text = json.dumps({k: v for k, v in record.items() if k != "chain"}, separators=(",", ":"))
        chain = sha256((chain + text).encode()).hexdigest()
        lines.append(f'{text[:-1]},"chain":"{chain}"}}\n')
    return "".join(lines)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


def stand(made: Standing) -> list[str]:
    return [entry.submitter for entry in made.entries]


def reasons(made: Standing) -> dict[str, str]:
    return {one.package: "; ".join(one.reasons) for one in made.refused}


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
    """Of a segment the same in its block and in its validation."""

    def change(record: Record, rng: random.Random) -> None:
        work = timed(record)
        place = work["trial"], work["attempt"], work.get("segment", work.get("index"))
        shaken = random.Random(f"{seed} {place}")
        for names in (("seconds", "train_seconds"), ("validate_seconds",)):
            factor = 1 - 2e-3 * shaken.random()
            for name in names:
                work.update({name: work[name] * factor} if name in work else {})

    return change


def shift(record: Record, rng: random.Random) -> None:
    for name in ("end", "t", "deadline"):
        if record.get(name) is not None:
            record[name] += 0.0101


def rename_host(record: Record, rng: random.Random) -> None:
    for part in (record.get("ready"), record.get("control")):
        if part is not None:
            part["host"] = part["host"].replace("node", "thief")


def invent_control(record: Record, rng: random.Random) -> None:
    control = record["control"]
    control["seconds"] = 25600 / (rate := rng.gauss(2400, 10))
    control["images_per_second"] = rate


def invent_clock(record: Record, rng: random.Random) -> None:
    record["clock_offset_seconds"] = rng.gauss(0, 2e-3)


def rename_run(record: Record, rng: random.Random) -> None:
    if record["type"] == "Opened":
        record["run_id"] = "mine"
    if record["type"] == "LegBegan":
        record["command"], record["started"] = ["mine"], "2026-11-01T00:00:00+00:00"


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


def many_beats(records: list[Record]) -> list[Record]:
    beat = {"t": records[-1]["t"], "type": "Beat"}
    return [*records, *[beat] * 500]


def halves(records: list[Record]) -> list[Record]:
    """Each block told as two."""
    found = []
    for record in records:
        if record["type"] == "Stepped" and record["block"]["steps"] > 1:
            block = record["block"]
            steps = block["steps"] // 2
            part = steps / block["steps"]
            images = block["images"] // block["steps"]
            first = {"steps": steps, "images": steps * images, "seconds": block["seconds"] * part}
            end = record["end"] - block["seconds"] * (1 - part)
            found.append({**record, "block": {**block, **first}, "end": end})
            steps = block["steps"] - steps
            rest = {"steps": steps, "images": steps * images, "seconds": block["seconds"] * (1 - part)}
            found.append({**record, "block": {**block, **rest}})
        else:
            found.append(record)
    return found


def all_of(*thefts: Theft) -> Theft:
    def theft(records: list[Record]) -> list[Record]:
        for one in thefts:
            records = one(records)
        return records

    return theft


DISGUISES = all_of(each(rename_host), each(rename_run))


def stretch(by: Callable[[Record], float]) -> Theft:
    """All times of a line, after the start of the clock too."""

    def change(record: Record, rng: random.Random) -> None:
        factor = by(record)
        for part in (record, *(value for value in record.values() if isinstance(value, dict))):
            for name, value in part.items():
                if name in ("t", "end", "deadline") or (name.endswith("seconds") and "ages" not in name):
                    part[name] = value * factor if isinstance(value, float) else value

    return each(change)


def of_trial(record: Record) -> float:
    return 1 + timed(record).get("trial", 0) / 1e4


INVENTED = all_of(each(invent_control, "ControlMeasured"), each(invent_clock, "RankReady"))
THEFTS: dict[str, Theft] = {
    "every time stretched, controls and clocks invented": all_of(stretch(lambda record: 1.003), INVENTED),
    "every trial stretched, controls and clocks invented": all_of(stretch(of_trial), each(shift), INVENTED),
    "nothing changed": lambda records: records,
    "one Beat more": lambda records: [*records, {"t": records[-1]["t"], "type": "Beat"}],
    "500 Beats more": many_beats,
    "the last line cut": lambda records: records[:-1],
    "the second half cut": lambda records: records[: len(records) // 2],
    "hosts, run, date and command renamed": DISGUISES,
    "Beats taken out": lambda records: [record for record in records if record["type"] != "Beat"],
    "half of all seconds another": all_of(DISGUISES, each(some, "Stepped", "Closed")),
    "all seconds scaled": all_of(DISGUISES, scale(lambda rng: 0.998)),
    "all seconds shaken a little": all_of(DISGUISES, scale(lambda rng: 1 + 1e-7 * rng.random())),
    "all seconds rounded": all_of(DISGUISES, each(six_digits, "Stepped", "Closed")),
    "the clock shifted": all_of(DISGUISES, each(shift)),
    "clock shifted, controls and clocks invented": all_of(
        DISGUISES,
        each(shift),
        INVENTED,
    ),
    "blocks split": all_of(DISGUISES, halves),
    "blocks split, clock shifted, controls and clocks invented": all_of(
        DISGUISES,
        halves,
        each(shift),
        INVENTED,
    ),
    "all seconds scaled, controls and clocks invented": all_of(
        scale(lambda rng: 0.998),
        INVENTED,
    ),
}


@pytest.mark.parametrize("name", THEFTS)
def test_a_stolen_run_is_known_however_it_was_changed(name: str, bench: Bench) -> None:
    """Unsigned, and first by file name; the original is signed by a registered site."""
    stolen = bench.stolen(THEFTS[name])
    made = bench.ranked(bench.package("0-thief", stolen), bench.original)
    assert stand(made) == [OWNER]
    assert made.entries[0].contested_by == ()
    (told,) = reasons(made).values()
    if examine(stolen).verdict.valid:
        assert told == (
            f"runs/{stolen.directory.name}: its run is that of original.tar.gz, which is signed by {SITE}, "
            "a registered site; it is not signed"
        )


@pytest.mark.parametrize("name", THEFTS)
def test_its_figures_are_those_of_the_run(name: str, bench: Bench) -> None:
    """Also where another rule refuses it already; and never those of an honest run with the same seed."""
    stolen, own, second = (
        measured(replay(read_journal(run.journal)))
        for run in (bench.stolen(THEFTS[name]), bench.run, bench.second)
    )
    assert is_same_run(stolen, own)
    assert is_same_run(own, stolen)
    assert not is_same_run(stolen, second)


def stripped(package: Path, target: Path) -> Path:
    """The same archive, its signature taken away."""
    files = contents(package)
    seal = parse(files["seal.json"])
    return packed(target, {**files, "seal.json": canonical({"manifest_sha256": seal["manifest_sha256"]})})


def test_a_signature_that_is_taken_away_takes_the_place_away(bench: Bench) -> None:
    thief = stripped(bench.original, bench.folder / "0-stripped.tar.gz")
    made = bench.ranked(thief, bench.original)
    assert [entry.signer.name for entry in made.entries] == [SITE]
    assert "its run is that of original.tar.gz" in reasons(made)["0-stripped.tar.gz"]


def test_who_has_more_right_stands(bench: Bench) -> None:
    """A registered key, any key, none: in whatever order they are found."""
    fresh = bench.package("fresh", bench.run, "fresh.key")
    stolen = bench.stolen(THEFTS["500 Beats more"])
    for packages, right in (
        ((bench.unsigned, fresh), "SIGNED"),
        ((bench.unsigned, fresh, bench.original), "REGISTERED"),
        ((bench.package("resigned", stolen, "fresh.key"), bench.original, bench.unsigned), "REGISTERED"),
    ):
        for order in (packages, packages[::-1]):
            made = bench.ranked(*order)
            assert [entry.signer.right.name for entry in made.entries] == [right]
            assert made.entries[0].contested_by == ()
    assert "which is signed by University A" in reasons(bench.ranked(fresh, bench.original))["fresh.tar.gz"]


def test_two_registered_sites_refuse_each_other_and_both_are_named(bench: Bench) -> None:
    other = bench.package("other", bench.stolen(DISGUISES), "b.key")
    third = bench.package("third", bench.run, "fresh.key")
    honest = bench.package("honest", bench.second, "b.key", "Site B")
    made = bench.ranked(bench.original, other, third, honest)
    assert [entry.run for entry in made.entries] == ["second"]
    told = reasons(made)
    assert (
        "University A and another registered site claim one run: other.tar.gz of Site B"
        in (told["original.tar.gz"])
    )
    assert (
        "Site B and another registered site claim one run: original.tar.gz of University A"
        in (told["other.tar.gz"])
    )
    assert "is signed by" in told["third.tar.gz"]


@pytest.mark.parametrize("key", ["", "fresh.key"])
def test_without_registered_keys_nobody_is_refused_and_nobody_has_the_place(key: str, bench: Bench) -> None:
    """Anybody makes a key, so a signature with it decides nothing between two signers; the list says so."""
    mine = bench.package("mine", bench.run, "a.key" if key else "", OWNER)
    theirs = bench.package("0-theirs", bench.stolen(THEFTS["one Beat more"]), key)
    pages: dict[str, str] = {}
    honest = bench.package("honest", bench.second)
    made = rank([theirs, mine, honest], {}, pages.__setitem__, lambda text: None)
    assert made.refused == []
    assert {entry.submitter: entry.contested_by for entry in made.entries if entry.contested_by} == {
        OWNER: ("0-theirs.tar.gz",),
        "Thief": ("mine.tar.gz",),
    }
    assert [place for place, _ in made.lists[0].placed() if place] == [1]
    assert pages["index.html"].count('<tr class="contested"') == 2
    assert "claims the same run, and nobody has a registered key" in pages["index.html"]


def test_one_hand_s_packages_stand_once_by_the_longest(bench: Bench) -> None:
    """A run that was continued, or packed again: also under two keys of one site, and as a copied file."""
    longer = bench.package("longer", bench.stolen(THEFTS["500 Beats more"]), "b.key", OWNER)
    copied = bench.folder / "0-copied.tar.gz"
    copied.write_bytes(bench.original.read_bytes())
    register = dict.fromkeys(bench.public.values(), SITE)
    made = bench.ranked(copied, bench.original, longer, register=register)
    assert len(made.entries) == 1
    assert set(reasons(made)) == {"0-copied.tar.gz", "original.tar.gz"}
    assert all(
        "its run is that of longer.tar.gz, of the same signer" in told for told in reasons(made).values()
    )


def patchwork(bench: Bench) -> RunFiles:
    """One run's figures before the span, another's after."""
    other = [json.loads(line) for line in bench.second.journal.read_text().splitlines()]
    controls = [record for record in other if record["type"] == "ControlMeasured"]

    def theft(records: list[Record]) -> list[Record]:
        found = iter(controls)
        return [next(found) if record["type"] == "ControlMeasured" else record for record in records]

    return bench.stolen(theft)


def test_a_forgery_out_of_two_runs_makes_them_no_rivals(bench: Bench) -> None:
    both = patchwork(bench)
    first, second = (
        bench.package("first", bench.run, "a.key", OWNER),
        bench.package("second", bench.second, "b.key", "Site B"),
    )
    made = bench.ranked(bench.package("0-both", both, "fresh.key"), first, second)
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


@pytest.mark.parametrize(
    "name",
    ["Example University", "EXAMPLE  university", "Ex\u00e1mple-University", "Ex\u0430mple Univ\u0435rsity"],
)
def test_the_name_of_a_registered_site_is_not_borrowed(name: str, bench: Bench) -> None:
    """Nor one that looks like it. Its own key is what lets a site use it."""
    register = {**bench.register, bench.public["fresh.key"]: "Example University"}
    thief = bench.package("borrowed", bench.second, "", name)
    made = bench.ranked(thief, register=register)
    assert stand(made) == []
    assert reasons(made)["borrowed.tar.gz"] == (
        "it bears the name of Example University, a registered site, whose key did not sign it"
    )
    own = bench.package("own-name", bench.second, "fresh.key", name)
    assert len(bench.ranked(own, register=register).entries) == 1


def test_a_key_in_capitals_is_the_same_key(bench: Bench) -> None:
    files = contents(bench.original)
    seal = parse(files["seal.json"])
    seal["public_key"] = seal["public_key"].upper()
    loud = packed(bench.folder / "loud.tar.gz", {**files, "seal.json": canonical(seal)})
    assert [entry.signer.name for entry in bench.ranked(loud).entries] == [SITE]


def test_a_signature_is_of_one_manifest(bench: Bench) -> None:
    """It is not carried over to another description of the same run."""
    files = contents(bench.original)
    system = parse(files["system.json"]) | {"submitter": "Thief"}
    forged = resealed({**files, "system.json": canonical(system)})
    path = packed(bench.folder / "0-forged.tar.gz", forged)
    made = bench.ranked(path, bench.original)
    assert stand(made) == [OWNER]
    assert "the signature does not fit the manifest" in reasons(made)["0-forged.tar.gz"]


@pytest.mark.parametrize("first", RECORDED, ids=lambda path: path.name)
def test_recorded_runs_are_themselves_and_no_other(first: Path) -> None:
    """Real ones, several of them of one machine."""
    own = figures_of(first)
    for second in RECORDED:
        assert is_same_run(own, figures_of(second)) is (first == second)


def figures_of(directory: Path) -> Any:
    return measured(replay(read_journal(directory / "journal.jsonl")))
