"""A folder of submissions, good and hostile, made into a site."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import MissingExtra
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules import reproduction
from aiperf.wording import rate, rates
from analysis.submissions import ranking
from analysis.submissions.canonical import parse
from analysis.submissions.fingerprint import measured
from analysis.submissions.ranking_page import index_html, listing_csv
from analysis.submissions.standing import Entry, RefusedPackage, Right, Signer, Standing, ValidRun, standing
from tests.analysis.exports.test_result import with_leaf
from tests.analysis.packages import Pages, changed, contents, make, packed, ranked, resealed
from tests.analysis.pages.test_report import HOSTILE, Elements
from tests.analysis.submissions.test_thefts import OWNER, Bench
from tests.journals import CIFAR, STARTED, Machine, resized, write_run

NOTHING = measured(Replay())
RECORDED = Path(__file__).parents[2] / "recorded"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Standing, Pages]:
    """Three valid systems, one of them with script for a name; a forgery; garbage."""
    folder = tmp_path_factory.mktemp("submissions")
    machines = {
        "small": Machine(groups=1, devices_per_group=1, device="Tesla T4"),
        "large": Machine(groups=4, devices_per_group=4, watts=400.0, random_seed=2),
        "other": Machine(groups=2, devices_per_group=2, device="Ascend910A", random_seed=3),
    }
    for name, machine in machines.items():
        precision = "fp16" if name == "small" else "bf16"
        config = replace(resized(CIFAR, 0.5), training=replace(CIFAR.training, format=precision))
        run = write_run(tmp_path_factory.mktemp("runs") / name, config, machine)
        if name == "large":
            moments = range(int(STARTED), int(STARTED) + 200)
            run.power("L2").parent.mkdir()
            run.power("L2").write_text("time,watts\n" + "".join(f"{at},10000\n" for at in moments))
        system = HOSTILE if name == "other" else f"System {name}"
        make(folder / f"{name}.tar.gz", run, system_name=system)
    forged = changed(
        contents(folder / "small.tar.gz"),
        "runs/small/result.json",
        lambda result: with_leaf(result, ("score", "ops_per_second"), 6e11),
    )
    packed(folder / "forged.tar.gz", resealed(forged))
    begun = write_run(tmp_path_factory.mktemp("runs") / "begun", resized(CIFAR, 0.5), Machine(groups=1))
    begun.journal.write_bytes(b"".join(begun.journal.read_bytes().splitlines(keepends=True)[:3]))
    make(folder / "begun.tar.gz", begun)
    (folder / "garbage.tar.gz").write_bytes(b"<b>not an archive</b>")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.pages.report.pictures", lambda judged, found: iter(()))
        return ranked(*sorted(folder.glob("*.tar.gz")))


def words(made: Standing) -> str:
    """Those of its page, without digits and words that a machine or a library may have otherwise."""
    text = "\n".join(Elements(index_html(made), frozenset({"style", "script"})).words) + "\n"
    return re.sub(r"damaged: .*; give", "damaged: …; give", re.sub(r"\.\d{4,}", "…", text))


def test_valid_ones_stand_by_sustained_ops_with_their_units_and_others_apart_with_their_reasons(
    site: tuple[Standing, Pages], as_it_was_read: Callable[[str, str], None]
) -> None:
    as_it_was_read(words(site[0]), "ranking.txt")
    sizes = [("NVIDIA", "9 to 64 devices"), ("Huawei", "up to 8 devices"), ("NVIDIA", "up to 8 devices")]
    assert [(entry.vendor, entry.size) for entry in site[0].entries] == sizes


def test_the_list_is_there_as_data(site: tuple[Standing, Pages]) -> None:
    standing, pages = site
    rows = list(csv.DictReader(io.StringIO(pages["ranking.csv"], newline="")))
    assert [row["place"] for row in rows] == ["", "", ""]  # of the class smoke
    assert [float(row["ops_per_second"]) for row in rows] == [one.ops_per_second for one in standing.entries]
    found = parse(pages["ranking.json"].encode())
    assert found["form"] == "aiperf-hpc/ranking/1"
    (only,) = found["lists"]
    assert (only["class"], only["division"], only["data"]) == ("smoke", "open", "cifar10")
    assert [run["system"] for run in only["runs"]] == [entry.system for entry in standing.entries]
    assert only["runs"][1]["ops_per_joule"] is None
    assert {one["package"] for one in found["not_ranked"]} == {one.package for one in standing.refused}
    assert 'href="ranking.csv"' in pages["index.html"]
    assert 'href="ranking.json"' in pages["index.html"]


def test_lists_are_of_one_class_division_set_of_images_seed_of_their_own_and_span(
    site: tuple[Standing, Pages], as_it_was_read: Callable[[str, str], None]
) -> None:
    """However many runs saw other images: they stand in a list of their own, and refuse nobody. Packed and
    unpacked images stand in one list, with a label."""
    smoke = site[0].entries[0]
    ranked = replace(smoke, run_class="ranked", division="closed")
    label = "packed at 256² by Pillow 13.0.0, SHA-256 0123456789ab…"
    entries = [
        replace(ranked, run="a", data_sha256="2" * 64, signer=Signer(Right.REGISTERED, "site A", "A")),
        *(replace(ranked, run=name, data_sha256="1" * 64) for name in ("b", "c", "d")),
        replace(ranked, run="e", division="open", packed=label),
        smoke,
        replace(smoke, run="own", seed_sha256="3" * 64),
        replace(smoke, run="spread", nodes_of_a_group=4),
    ]
    made = standing([ValidRun(each, f"{each.run}.tar.gz", "runs/x", 9, NOTHING) for each in entries], [])
    assert made.refused == []
    assert [(one.run_class, one.division, [e.run for e in one.entries]) for one in made.lists] == [
        ("ranked", "closed", ["a"]),
        ("ranked", "closed", ["b", "c", "d"]),
        ("ranked", "open", ["e"]),
        ("smoke", "open", [smoke.run]),
        ("smoke", "open", ["spread"]),
        ("smoke", "open", ["own"]),
    ]
    as_it_was_read(words(made), "lists.txt")
    assert made.text == "5 ranked, 3 smoke"
    rows = list(csv.DictReader(io.StringIO(listing_csv(made), newline="")))
    assert [row["packed"] for row in rows] == ["", "", "", "", label, "", "", ""]
    assert standing([], []) == Standing([], [])
    assert "No run is listed." in index_html(Standing([], []))


def test_a_list_may_ask_for_several_runs_of_a_system(site: tuple[Standing, Pages]) -> None:
    """The one with the median stands for them, of an even number the lower; its row names the others."""
    entry = site[0].entries[0]
    signed = replace(entry, machine="Signed", signer=Signer(Right.SIGNED, "key k", "k"))

    def run(of: Entry, name: str, gops: float, kind: str = "") -> ValidRun:
        one = replace(of, run=name, page=f"{name}.html", ops_per_second=1e9 * gops)
        return ValidRun(one, f"{name}.tar.gz", f"runs/{name}", 9, NOTHING, kind)

    four = [run(signed, name, gops) for name, gops in (("a", 74.0), ("b", 81.0), ("c", 52.0), ("d", 96.0))]
    other = replace(signed, signer=Signer(Right.SIGNED, "key l", "l"))
    apart = [run(other, "e", 70.0), run(other, "f", 71.0), run(other, "g", 72.0, kind="of other settings")]
    made = standing([*four, *apart], [RefusedPackage("x.tar.gz", ["broken"])], 3)
    (median,) = made.entries
    assert (median.run, median.runs, median.ops_range) == ("a", 4, (52e9, 96e9))
    assert [each.run for each in median.others] == ["c", "b", "d"]
    why = "its system has {} of this configuration and size, and the list asks for 3"
    assert {one.package: (*one.reasons, one.page) for one in made.refused} == {
        "x.tar.gz": ("broken", ""),
        **{f"{n}.tar.gz": (f"runs/{n}: {why.format('2 runs')}", f"{n}.html") for n in "ef"},
        "g.tar.gz": (f"runs/g: {why.format('1 run')}", "g.html"),
    }
    text = index_html(made)
    links = ", ".join(f'<a href="{name}.html">{name}</a>' for name in "cbd")
    assert f"<span>median of 4 runs, 52.00 to 96.00 GOPS; the others: {links}</span>" in text
    (row,) = csv.DictReader(io.StringIO(listing_csv(made), newline=""))
    shown = [row[name] for name in ("runs", "least_ops_per_second", "other_pages")]
    assert shown == ["4", "52000000000.0", "c.html; b.html; d.html"]
    assert [each.run for each in standing(four, []).entries] == ["d", "b", "a", "c"]


@pytest.mark.usefixtures("undrawn")
def test_the_page_of_a_median_names_the_other_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages of one key, with three runs in all; and one run of somebody else."""
    bench = Bench(tmp_path)
    third = bench.honest("third", 3)
    two = make(tmp_path / "two.tar.gz", bench.second, third, key=tmp_path / "a.key", submitter=OWNER)
    other = bench.package("other", bench.honest("fourth", 4), "b.key", OWNER)
    repeated, made_again = list[str](), reproduction._made_again

    def noting(run: Replay, *rest: Any) -> None:
        repeated.append(run.opened.run_id)
        made_again(run, *rest)

    monkeypatch.setattr(reproduction, "_made_again", noting)
    made, pages = ranked(bench.original, two, other, register=bench.register, runs=3)
    assert sorted(repeated) == ["first", "fourth", "second", "third"]  # none twice for its page
    (median,) = made.entries
    others = sorted((each.ops_per_second, each.run) for each in median.others)
    assert {median.run, *(name for _, name in others)} == {"first", "second", "third"}
    assert others[0][0] < median.ops_per_second < others[1][0]
    section = pages[median.page].split("<h2>Runs</h2>")[1].split("<h2>")[0]
    assert f"{rate(median.ops_per_second)}, the median of 3 runs" in section
    assert all(f"{each.run}, {each.page}" in section for each in median.others)
    assert rates(others[0][0], others[1][0]) in section
    assert "<h2>Runs</h2>" not in pages[median.others[0].page]
    assert [(one.package, *one.reasons) for one in made.refused] == [
        (
            "other.tar.gz",
            "runs/fourth: its system has 1 run of this configuration and size, and the list asks for 3",
        )
    ]


@pytest.mark.usefixtures("undrawn")
def test_tasks_never_stand_in_one_list(tmp_path: Path) -> None:
    """Two recorded runs, of images and of language: each is in its own list."""
    packages = [
        make(tmp_path / f"{name}.tar.gz", RunFiles(RECORDED / name), system_name=name)
        for name in ("groups", "language")
    ]
    made, pages = ranked(*packages)
    assert made.refused == []
    lists = parse(pages["ranking.json"].encode())["lists"]
    placed = {
        one["task"]: [(run["place"], run["task"], run["system"]) for run in one["runs"]] for one in lists
    }
    assert len(lists) == 2
    assert placed == {"images": [(None, "images", "groups")], "language": [(None, "language", "language")]}
    assert pages["index.html"].count('<table class="ranking unplaced">') == 2
    assert '<p class="conclusion">0 ranked, 2 smoke</p>' in pages["index.html"]


def test_there_is_a_page_for_each(site: tuple[Standing, Pages]) -> None:
    standing, pages = site
    lists = {"index.html", "ranking.csv", "ranking.json"}
    assert set(pages) == lists | {entry.page for entry in standing.entries}
    assert all(re.fullmatch(r"[a-z0-9-]+\.html", name) for name in set(pages) - lists)
    for entry in standing.entries:
        assert f'href="{entry.page}"' in pages["index.html"]
        assert [
            pages[entry.page].count(f"<h2>{title}</h2>") for title in ("Submission", "System", "Devices")
        ] == [1, 1, 1]
        assert "person@example.org" in pages[entry.page]
    for text in (text for name, text in pages.items() if name.endswith(".html")):
        elements = Elements(text).found
        assert [tag for tag, _ in elements if tag == "img"] == []  # names are text
        scripts = [a for tag, a in elements if tag == "script" and a.get("type") != "application/json"]
        assert scripts == [{}]
        links = {attributes.get("href") or "#" for _, attributes in elements}
        assert {link for link in links if not link.startswith(("#", "data:"))} <= set(pages)


def test_what_the_ranker_lacks_is_no_fault_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checked(*given: object) -> object:
        raise MissingExtra("cryptography", "sign")

    monkeypatch.setattr(ranking, "checked", checked)
    with pytest.raises(MissingExtra):
        ranked(tmp_path / "signed.tar.gz")
