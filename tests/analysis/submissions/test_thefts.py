"""Somebody else's run submitted as one's own: whose it is stands, however the copy was changed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from aiperf.wire.reports import SEED, Rate, Rung, TimedStep
from analysis.submissions import fingerprint
from analysis.submissions.canonical import canonical, parse
from analysis.submissions.fingerprint import Sample, is_same_run, measured
from analysis.submissions.keys import claimed_site
from analysis.submissions.standing import Standing
from tests.aiperf.rules.forged import TIMED, together, with_ceiling, with_control
from tests.analysis.packages import contents, make, packed, ranked, resealed
from tests.analysis.thefts import DISGUISES, OWNER, SITE, THEFTS, Bench, Record
from tests.journals import replayed
from tests.tables import ComesTo

RECORDED = sorted(path.parent for path in Path("tests/recorded").glob("*/journal.jsonl"))

PACKED = ("500 Beats more", "the last line cut", "clock shifted, controls and clocks invented")
"""Thefts that are also tried as packages, which are recounted whole."""

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
    stolen = bench.stolen(THEFTS[name])
    made = bench.ranked(bench.package("0-thief", stolen), bench.original)
    assert stand(made) == [OWNER]
    assert made.entries[0].contested_by == ()
    (told,) = reasons(made).values()
    claim = f"its run is that of original.tar.gz, which is signed by {SITE}, a registered site"
    if name == "500 Beats more":  # others break a rule
        assert told == f"runs/{stolen.directory.name}: {claim}; it is not signed"


@pytest.mark.parametrize("name", THEFTS)
def test_its_figures_are_those_of_the_run(name: str, bench: Bench) -> None:
    """Also where another rule refuses it already; and never those of an honest run with the same seed."""
    stolen = figures_of(bench.stolen(THEFTS[name]).directory)
    own, second = (figures_of(run.directory) for run in (bench.run, bench.second))
    assert is_same_run(stolen, own)
    assert is_same_run(own, stolen)
    assert not is_same_run(stolen, second)


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
    stolen = bench.stolen(THEFTS["500 Beats more"])
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
    theirs = bench.package("0-theirs", bench.stolen(THEFTS["500 Beats more"]), key)
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
    longer = bench.package("longer", bench.stolen(THEFTS["500 Beats more"]), "b.key", OWNER)
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
    other = [json.loads(line) for line in bench.second.journal.read_text().splitlines()]
    controls = iter(record for record in other if record["type"] == "ControlMeasured")

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
