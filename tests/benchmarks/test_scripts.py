"""Each script of benchmarks/ runs at its smallest size, and prints columns and rows as its page has them;
figures to compare networks of text with, against the definition written down."""

from __future__ import annotations

import lzma
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import astuple
from itertools import groupby
from math import log2
from pathlib import Path
from random import Random

import numpy as np
import psutil
import pytest

from aiperf.config import load_preset
from aiperf.data.texts import reading
from aiperf.pretending.assumptions import Speed
from benchmarks import cores, large_runs, links, master, proposals, scatter, search, steps, stream
from benchmarks.on_device.parts import BY_NAME
from benchmarks.text import bundled, marks, optimizers
from nas.ops import TENSOR_OPS
from tests.house.tree import ROOT
from tests.mpi.jobs import environ
from tests.packaging.recipes import said
from tests.tables import ComesTo

Table = list[list[str]]


def tables(text: str) -> list[Table]:
    """The tables of a page, by rows of cells, with their heads and without the lines below these."""
    runs = groupby(text.splitlines(), lambda line: line.startswith("|"))
    found = [
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in run] for is_one, run in runs if is_one
    ]
    return [[head, *rows] for head, _, *rows in found]


def of_page(name: str) -> list[Table]:
    return tables((ROOT / "docs" / name).read_text(encoding="utf-8"))


def column(table: Table, index: int = 0) -> list[str]:
    return [row[index] for row in table]


def printed(capsys: pytest.CaptureFixture[str]) -> Table:
    (table,) = tables(capsys.readouterr().out)
    return table


def shape(line: str) -> str:
    """With one # for each number, and one space between words."""
    return re.sub(r"[-+]?\d(?:[\d,.]*\d)?", "#", " ".join(line.split()))


def started(script: str, *words: object) -> str:
    """What a script prints that a user starts from the checkout. Fails with all that it said."""
    command = (sys.executable, "-m", f"benchmarks.{script}", *words)
    # Short vectors: with them oneDNN had killed the bare loop, `nas.layers.convolutions.TOO_FEW_CHANNELS`.
    return said(*command, cwd=ROOT, environment=environ(ONEDNN_MAX_CPU_ISA="AVX2"))


def test_every_script_is_run_here() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    scripts = [path for path in (ROOT / "benchmarks").rglob("*.py") if "__main__" in path.read_text("utf-8")]
    by_others = ("bare.py", "dispatch_others.py", "dispatch_rank.py", "loop.py", "process.py", "__main__.py")
    by_others += ("triton_kernels.py",)  # make test-kernels
    assert [each.name for each in scripts if each.name not in by_others and each.stem not in tests] == []


def test_a_script_that_is_run_by_its_path_imports_no_other() -> None:
    """Its folder is then the first place of imports, not the checkout, unless it changes that."""
    texts = {path.relative_to(ROOT): path.read_text("utf-8") for path in (ROOT / "benchmarks").rglob("*.py")}
    by_path = {path: text for path, text in texts.items() if f"python {path} " in text}
    assert Path("benchmarks/device.py") in by_path
    importing = re.compile("^(?:from|import) benchmarks", re.MULTILINE)
    before = {path: text.partition("sys.path[0] =")[0] for path, text in by_path.items()}
    assert [path for path, text in before.items() if importing.search(text)] == []


@pytest.mark.slow
def test_the_page_of_scaling_has_the_masters_rows(capsys: pytest.CaptureFixture[str]) -> None:
    master.main(["--groups", "4", "--minutes", "3", "--pressed", "104", "--offered-seconds", "3"])
    output = capsys.readouterr().out
    (table,) = tables(output)
    assert table[0] == ["", "4 groups", "104"]
    assert column(table) in map(column, of_page("scaling.md"))
    assert [row.count("–") for row in table] == [0, *[1] * 8]
    assert shape(output.splitlines()[-1]) == (
        "# groups that offer # outcomes per second: the next candidate leaves # ms after an outcome "
        "(median; #th percentile # ms)"
    )


def test_the_page_of_scaling_has_the_columns_of_searches_and_says_how_far_one_came(
    capsys: pytest.CaptureFixture[str],
) -> None:
    proposals.main(["--searches", "evolution,random", "--proposals", "20,60", "--groups", "8"])
    table = printed(capsys)
    assert table[0] in [each[0] for each in of_page("scaling.md")]
    assert [row[:2] for row in table[1:]] == [
        [name, num] for name in ("evolution", "random") for num in ("20", "60")
    ]
    assert [shape(" ".join(row[2:])) for row in table[1:]] == ["# s # ms # ms # B"] * 4
    proposals.main(["--searches", "random", "--proposals", "20", "--seconds", "0"])
    assert [row[1] for row in printed(capsys)[1:]] == ["1"]


@pytest.mark.slow
def test_the_page_of_scaling_has_the_columns_of_pretending_workers() -> None:
    output = started("pretending", 2, "--minutes", 0.05)
    (table,) = tables(output)
    assert table[0] in [each[0] for each in of_page("scaling.md")]
    assert len(table[1]) == len(table[0])
    assert output.splitlines()[-1].endswith("none missing; rules of integrity that failed: none")


@pytest.mark.mpi
@pytest.mark.torch
def test_the_page_of_scaling_has_the_rows_of_dispatching_programs() -> None:
    """The tests' own environment has one of the other programs, mpi4py."""
    output = started("dispatch", "--groups", 2, "--rounds", 1, "--seconds", 2.0, "--others", sys.prefix)
    (table,) = tables(output)
    assert column(table) in map(column, of_page("scaling.md"))
    assert [cell == "–" for cell in column(table, 1)[1:]] == [False, False, False, True, True, True]
    assert shape(output.splitlines()[-1]) == (
        "# groups that offer # outcomes per second: # arrived per second, the next candidate followed "
        "after # ms (median; #th percentile # ms)"
    )


@pytest.mark.slow
def test_the_page_of_scaling_has_the_commands_of_a_large_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert large_runs.main(["--trials", "40", "--groups", "4", "--directory", str(tmp_path / "run")]) == 0
    (table,) = tables(capfd.readouterr().out)
    (page,) = (each for each in of_page("scaling.md") if each[0][0] == "command")
    assert [row for row in column(table) if row in column(page)] == column(page)
    assert table[0] == [*page[0], "goal"]


@pytest.mark.slow
def test_the_page_of_scaling_has_the_rows_of_grown_networks(capsys: pytest.CaptureFixture[str]) -> None:
    scatter.main(["--networks", "digits", "--children", "4", "--seconds", "1"])
    pages = of_page("scaling.md")
    for table in tables(capsys.readouterr().out):
        (page,) = (each for each in pages if column(each) == column(table))
        assert page[0][:2] == table[0]


def test_what_a_morphism_adds_to_a_rate_and_what_a_child_keeps_is_found() -> None:
    """A machine follows the model, except for a deviation of each network."""
    preset = load_preset("digits")
    networks, rng = scatter.children(preset, 80), Random(1)
    speed, offsets = Speed(5e10, 1e-3, 1e-4), [0.0]
    for one in networks[1:]:
        offsets.append(0.6 * offsets[one.parent] + rng.gauss(0.0, 0.03))
    usual = [
        1e-3 + 1e-4 * len(one.graph.nodes) + one.graph.cost.train.price(TENSOR_OPS) * 50 / 5e10
        for one in networks
    ]
    seconds = np.array(usual) * np.exp(-np.array(offsets))
    found = scatter.Timed(networks, 50, np.array(usual), np.ones(80))
    assert astuple(found.speed) == pytest.approx(astuple(speed))
    assert found.own == pytest.approx(0.0, abs=1e-6)
    found = scatter.Timed(networks, 50, seconds, np.ones(80))
    vars(found)["speed"] = speed  # a fit takes a part of the scatter for its own
    assert found.off == pytest.approx(np.array(offsets))
    assert found.kept == pytest.approx(0.6, abs=0.2)
    assert found.own == pytest.approx(0.03, rel=0.4)


@pytest.mark.slow
def test_the_page_of_performance_has_the_columns_of_steps(capsys: pytest.CaptureFixture[str]) -> None:
    steps.main(["--networks", "digits, 0 edits", "--threads", "1", "--formats", "fp32", "--seconds", "0"])
    head, row = printed(capsys)
    (page,) = (each for each in of_page("performance.md") if each[0] == head)
    assert row[:3] in [each[:3] for each in page]
    assert set(column(page)[1:]) == set(steps.WORKS)


@pytest.mark.slow
def test_the_page_of_performance_has_the_columns_of_cores(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    cores.main(["--networks", "llama-1x64", "--formats", "fp32", "--rounds", "0"])
    head, *rows = printed(capsys)
    (page,) = (each for each in of_page("performance.md") if each[0] == head)
    assert {row[0] for row in page[1:]} <= set(cores.NETWORKS)
    assert {"attention", "matrix products", "RMS norm"} <= {row[2] for row in rows}
    assert rows[-1][2] == "**all**"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    with pytest.raises(SystemExit, match="set OMP_WAIT_POLICY=passive"):
        cores.main([])


def test_the_page_of_performance_has_the_parts_of_a_device() -> None:
    (page,) = (each for each in of_page("performance.md") if each[0][:2] == ["part", "measured"])
    named = re.findall(r"`([\w-]+)(…?)`", " ".join(column(page)))
    assert [
        part for part in BY_NAME if (part, "") not in named and (f"{part.split('-')[0]}-", "…") not in named
    ] == []


@pytest.mark.slow
@pytest.mark.torch
def test_the_programs_work_is_compared_with_bare_loops() -> None:
    run, median = started("overhead", "--repeats", 1, "--trials", 1, "--seconds", 0.05).splitlines()
    assert shape(run) == (
        "run #: efficiency #, bare loops' own spread ±#%, #% of the span neither training nor validating"
    )
    assert (
        shape(median) == "median of #: efficiency # (goal ≥ #), spread ±#%, rest #% at the most (goal ≤ # %)"
    )


@pytest.mark.slow
@pytest.mark.torch
def test_a_text_is_learned_by_the_program_and_by_a_loop_of_its_own(tmp_path: Path) -> None:
    text = tmp_path / "text"
    with lzma.open(ROOT / "aiperf/data/texts/python_docs.txt.xz") as bundled_text:
        text.write_bytes(bundled_text.read(20_000))
    seed, mean = started("text.outside", text, "--repeats", 1, "--steps", 6).splitlines()
    assert shape(seed) == "seed #: program # nats per byte in # s, loop # in # s"
    assert shape(mean) == "mean difference # nats per byte; the program is # times as fast (medians)"


@pytest.mark.parametrize("name", ["search.jsonl", "search_longer.jsonl"])
def test_the_page_of_searches_has_the_tables_of_its_runs(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    search.main(["--table", str(ROOT / "docs" / name)])
    pages = of_page("searches.md")
    assert [table for table in tables(capsys.readouterr().out) if table not in pages] == []


@pytest.mark.slow
def test_ways_of_searching_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was measured is not measured again, and a line that is cut off is not counted."""
    results = tmp_path / "results"
    words = ["--data", "digits", "--arms", "evolution", "continued", "--seeds", "1", "--groups", "2"]
    search.main([*words, "--gops", "10", "--results", str(results)])
    (table,) = tables(capsys.readouterr().out)[:1]
    errors = ["test error", "from random's", "validation error", "regulated score"]
    assert table[0] == ["arm", "seeds", *errors, "trials", "lineage", "growth"]
    assert column(table) == ["arm", "evolution"]
    written = results.read_text("utf-8")
    search.main([*words, "--gops", "10", "--results", str(results), "--figure", str(tmp_path / "figure.svg")])
    assert results.read_text("utf-8") == written
    assert "</svg>" in (tmp_path / "figure.svg").read_text("utf-8")
    results.write_text(written[:-9], "utf-8")
    with pytest.raises(
        SystemExit, match=r"results, line 2: no result of this benchmark .*; remove the line$"
    ):
        search.main(["--table", str(results)])


def test_a_run_of_too_few_or_other_operations_or_images_is_refused_with_a_remedy_that_helps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    """Another file helps only if the file that is given has a run. One of 14 GOP may be one of --gops 15, and
    is not one of --gops 14."""
    monkeypatch.chdir(tmp_path)

    def searched(data: str, gops: int, folder: str = "here", groups: int = 1) -> str:
        """Why a run that had 14 GOP is refused."""
        made = search.Result(data, "random", 1, 14 * 10**9, 9, 0.5, 0.5, 1.0, 10**9, [], 1.0, groups=groups)
        monkeypatch.setattr(search, "measured", lambda wanted: made)
        words = f"--data {data} --arms random --seeds 1 --results results --gops {gops} --folder {folder}"
        try:
            search.main(words.split())
        except SystemExit as refusal:
            return str(refusal)
        return ""

    comes_to_what_was_read("refused_searches.txt", {"searched": searched})


@pytest.mark.slow
def test_the_links_of_ranks_are_measured_beside_each_other() -> None:
    (table,) = tables(started("links", "--ranks", 3, "--rounds", 1))
    assert [row[:2] for row in table[1:]] == [[link, "3"] for link in links.LINKS]
    assert [shape(" ".join(row[2:])) for row in table[1:]] == ["# # # #"] * 3


def test_no_rank_is_left_when_the_links_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "LIMIT_SECONDS", 0.0)
    before = psutil.Process().children()
    with pytest.raises(subprocess.TimeoutExpired):
        links.measured(links.LINKS[1], 2)
    assert psutil.Process().children() == before


def test_optimizers_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    optimizers.main(["--seeds", "1", "--steps", "1"])
    seed, muon = capsys.readouterr().out.splitlines()
    assert shape(seed) == "seed #: adamw #, muon # bits per byte"
    assert shape(muon) == (
        "muon # bits per byte (# to #); its steps take # times the processor time (median; # to #)"
    )


def test_images_are_read_as_fast_as_by_a_plain_index(capsys: pytest.CaptureFixture[str]) -> None:
    stream.main(["--steps", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [*map(shape, lines)] == [
        f"{name} # µs per step of # (# to #)" for name in ("bare index", "stream")
    ]


@pytest.mark.slow
def test_the_page_of_data_has_the_marks_of_the_bundled_text(capsys: pytest.CaptureFixture[str]) -> None:
    marks.main()
    table = printed(capsys)
    assert table in [[row[:3] for row in each] for each in of_page("data.md")]


def test_the_bundled_text_is_small_files_in_an_order_of_their_names_alone(tmp_path: Path) -> None:
    """By sha256sum of a name: zip.rst.txt 1e0a…, c/d.rst.txt 948d…, about.rst.txt f809…"""
    (tmp_path / "c").mkdir()
    for name in ("about.rst.txt", "zip.rst.txt", "c/d.rst.txt", "other.txt"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "large.rst.txt").write_bytes(bytes(bundled.LARGEST_FILE + 1))
    bundled.main(tmp_path, tmp_path / "text.xz")
    assert lzma.decompress((tmp_path / "text.xz").read_bytes()) == b"zip.rst.txtc/d.rst.txtabout.rst.txt"


WORDS = Random(1).choices([b"one ", b"two ", b"three, ", b"\xff\n"], [8, 4, 2, 1], k=400)
TEXT = b"".join(WORDS)


def by_definition(training: bytes, tested: bytes, order: int) -> float:
    def probability(context: bytes, byte: int) -> float:
        following = Counter(
            training[at + len(context)]
            for at in range(len(training) - len(context))
            if training[at : at + len(context)] == context
        )
        shorter = probability(context[1:], byte) if context else 1 / 256
        if not following:
            return shorter
        return (following[byte] + len(following) * shorter) / (following.total() + len(following))

    spent = [-log2(probability(tested[max(0, at - order) : at], byte)) for at, byte in enumerate(tested)]
    return sum(spent) / len(spent)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_counted_model_is_witten_and_bells(order: int) -> None:
    training, tested = TEXT[:1200], TEXT[1200:1300] + b"\x00new"
    arrays = [np.frombuffer(each, np.uint8) for each in (training, tested)]
    assert marks.backed_off(*arrays, order) == pytest.approx(by_definition(training, tested, order))


def test_the_test_part_alone_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read piece by piece."""
    monkeypatch.setattr(reading, "CHUNK_BYTES", 100)
    (tmp_path / "text").write_bytes(bytes(950) + TEXT[:50])
    marks.main(str(tmp_path / "text"))
    head, _, *rows = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    found = {name.removeprefix("| "): float(bits) for name, bits, _ in rows}
    assert head == ["| model", "text", "error |"]
    assert found["xz -9e, the test part alone"] == marks.xz(TEXT[:50]) * 8 / 50
    assert found["order 2, counted in training"] > 8


@pytest.mark.skipif(shutil.which("xz") is None, reason="needs the program xz")
def test_xz_is_the_program_of_that_name() -> None:
    done = subprocess.run(["xz", "-9e", "-c"], input=TEXT, capture_output=True, check=True)
    assert marks.xz(TEXT) == len(done.stdout)
