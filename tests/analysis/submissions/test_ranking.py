"""A folder of submissions, good and hostile, made into a site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import MissingExtra
from aiperf.files import RunFiles
from analysis.submissions import ranking
from analysis.submissions.ranking import index_html, rank
from analysis.submissions.standing import Standing, ValidRun, standing
from tests.analysis.packages import changed, contents, make, packed, resealed
from tests.analysis.pages.test_report import HOSTILE, Elements
from tests.analysis.synthetic import CIFAR, Machine, resized, write_run

Pages = dict[str, str]


def ten_times_as_fast(result: dict[str, Any]) -> dict[str, Any]:
    score = result["score"]
    return {**result, "score": {**score, "ops_per_second": 10 * score["ops_per_second"]}}


def relinked(lines: list[bytes]) -> Iterator[bytes]:
    """Each line with the chain that follows from those above it."""
    chain = ""
    for line in lines:
        body = line.rpartition(b',"chain":')[0] + b"}"
        chain = sha256(chain.encode() + body).hexdigest()
        yield body[:-1] + b',"chain":"' + chain.encode() + b'"}\n'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Standing, Pages]:
    """Three valid systems, one of them with script for a name; a forgery; garbage."""
    folder = tmp_path_factory.mktemp("submissions")
    machines = {
        "small": Machine(groups=1, devices_per_group=1, device="Tesla T4"),
        "large": Machine(groups=4, devices_per_group=4, watts=400.0),
        "other": Machine(groups=2, devices_per_group=2, device="Ascend910A"),
    }
    for name, machine in machines.items():
        config = resized(CIFAR, 0.5)
        config = replace(
            config, training=replace(config.training, format="fp16" if name == "small" else "bf16")
        )
        run = write_run(tmp_path_factory.mktemp("runs") / name, config, machine)
        system = HOSTILE if name == "other" else f"System {name}"
        make(folder / f"{name}.tar.gz", run, system_name=system)
    files = contents(folder / "small.tar.gz")
    result = "runs/small/result.json"
    forged = resealed(changed(files, result, ten_times_as_fast))
    packed(folder / "forged.tar.gz", forged)
    cut = RunFiles(tmp_path_factory.mktemp("runs") / "another")
    cut.directory.mkdir()
    lines = files["runs/small/journal.jsonl"].splitlines()
    lines.remove(next(line for line in reversed(lines) if b'"type":"Beat"' in line))
    cut.journal.write_bytes(b"".join(relinked(lines)))
    make(folder / "another.tar.gz", cut, submitter="Somebody else", system_name="Another")
    begun = write_run(tmp_path_factory.mktemp("runs") / "begun", resized(CIFAR, 0.5), Machine(groups=1))
    begun.journal.write_bytes(b"".join(begun.journal.read_bytes().splitlines(keepends=True)[:3]))
    make(folder / "begun.tar.gz", begun)
    (folder / "garbage.tar.gz").write_bytes(b"<b>not an archive</b>")
    pages: Pages = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.pages.report.pictures", lambda judged, found: iter(()))
        standing = rank(sorted(folder.glob("*.tar.gz")), pages.__setitem__, lambda text: None)
    return standing, pages


def test_valid_ones_stand_by_sustained_ops(site: tuple[Standing, Pages]) -> None:
    entries = site[0].entries
    assert [entry.system for entry in entries] == ["System large", HOSTILE, "System small"]
    rates = [entry.ops_per_second for entry in entries]
    assert rates == sorted(rates, reverse=True)
    assert [entry.vendor for entry in entries] == ["NVIDIA", "Huawei", "NVIDIA"]
    assert [entry.devices for entry in entries] == [16, 4, 1]
    assert [entry.ops_per_joule for entry in entries[1:]] == [None, None]
    assert entries[0].ops_per_joule == pytest.approx(entries[0].ops_per_second / (16 * 400.0), rel=1e-9)
    assert [entry.size for entry in entries] == ["9 to 64 devices", "up to 8 devices", "up to 8 devices"]
    assert [entry.precision for entry in entries] == ["bf16", "bf16", "fp16"]


def test_invalid_ones_stand_apart_with_their_reasons(site: tuple[Standing, Pages]) -> None:
    refused = {one.package: one.reasons for one in site[0].refused}
    assert set(refused) == {"begun.tar.gz", "forged.tar.gz", "garbage.tar.gz", "another.tar.gz"}
    (begun,) = refused["begun.tar.gz"]
    assert begun.startswith("runs/begun: INCOMPLETE: the run goes on, or was killed;")
    assert begun.endswith("`aiperf-hpc resume runs/begun` goes on")
    assert refused["another.tar.gz"] == ["runs/another: its run is that of small.tar.gz; a run stands once"]
    assert "the journal gives" in refused["forged.tar.gz"][0]
    assert refused["garbage.tar.gz"][0].startswith("garbage.tar.gz is no gzip'ed tar archive")


def test_ranked_runs_saw_the_same_images(site: tuple[Standing, Pages]) -> None:
    """Of several sets that stands which most of them saw; a smoke run may have seen anything."""
    ranked = replace(site[0].entries[0], run_class="ranked")
    found = [
        ValidRun(replace(ranked, run=name), f"{name}.tar.gz", "runs/x", name, 9, digit * 64)
        for name, digit in (("a", "1"), ("b", "2"), ("c", "2"))
    ]
    smoke = ValidRun(site[0].entries[1], "d.tar.gz", "runs/x", "d", 9, "3" * 64)
    made = standing([*found, smoke], [])
    assert [entry.run for entry in made.entries] == ["b", "c", site[0].entries[1].run]
    (refused,) = made.refused
    assert refused.package == "a.tar.gz"
    assert "SHA-256 of their list 111111111111…, not 222222222222…" in refused.reasons[0]
    assert standing([], []) == Standing([], [])


def test_there_is_a_page_for_each(site: tuple[Standing, Pages]) -> None:
    standing, pages = site
    aside = [one.page for one in standing.refused if one.page]
    assert aside == ["somebody-else-another-another.html"]
    assert set(pages) == {"index.html", *aside, *(entry.page for entry in standing.entries)}
    assert f'<a href="{aside[0]}">its report</a>' in pages["index.html"]
    assert all(re.fullmatch(r"[a-z0-9-]+\.html", name) for name in pages)
    for entry in standing.entries:
        assert f'href="{entry.page}"' in pages["index.html"]
        assert [
            pages[entry.page].count(f"<h2>{title}</h2>") for title in ("Submission", "System", "Devices")
        ] == [1, 1, 1]
        assert "person@example.org" in pages[entry.page]


def test_names_are_text_everywhere(site: tuple[Standing, Pages]) -> None:
    for text in site[1].values():
        elements = Elements(text).found
        assert [tag for tag, _ in elements if tag == "img"] == []
        scripts = [a for tag, a in elements if tag == "script" and a.get("type") != "application/json"]
        assert scripts == [{}]


def test_nothing_is_fetched(site: tuple[Standing, Pages]) -> None:
    for text in site[1].values():
        for _, attributes in Elements(text).found:
            link = attributes.get("href")
            assert link is None or link.startswith(("#", "data:")) or link in site[1]


def test_an_empty_list_is_a_page() -> None:
    assert "No valid submission is here." in index_html(Standing([], []))


def test_what_the_ranker_lacks_is_no_fault_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checked(path: Path, show: object) -> object:
        raise MissingExtra("cryptography", "sign")

    monkeypatch.setattr(ranking, "checked", checked)
    with pytest.raises(MissingExtra):
        rank([tmp_path / "signed.tar.gz"], lambda name, text: None, lambda text: None)
