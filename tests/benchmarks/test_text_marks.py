"""Figures to compare networks with, against the definition written down; and how the bundled text is made."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections import Counter
from math import log2
from pathlib import Path

import numpy as np
import pytest

from aiperf.data.texts import reading
from benchmarks.text.bundled import LARGEST_FILE, joined
from benchmarks.text.marks import backed_off, main, marks, xz

WORDS = random.Random(1).choices([b"one ", b"two ", b"three, ", b"\xff\n"], [8, 4, 2, 1], k=400)
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
    assert backed_off(*arrays, order) == pytest.approx(by_definition(training, tested, order))


def test_the_test_part_alone_is_measured() -> None:
    text = bytes(950) + TEXT[:50]
    found = dict(marks(text))
    assert found["xz -9e"] == xz(TEXT[:50]) * 8 / 50
    assert found["order 2, counted in training"] > 8
    assert list(found) == [
        "order 0, counted in training",
        "order 1, counted in training",
        "order 2, counted in training",
        "gzip -9",
        "xz -9e",
        "xz -9e, after training",
    ]


@pytest.mark.skipif(shutil.which("xz") is None, reason="needs the program xz")
def test_xz_is_the_program_of_that_name() -> None:
    done = subprocess.run(["xz", "-9e", "-c"], input=TEXT, capture_output=True, check=True)
    assert xz(TEXT) == len(done.stdout)


def test_the_bundled_text_is_small_files_in_an_order_of_their_names_alone(tmp_path: Path) -> None:
    """By sha256sum of a name: zip.rst.txt 1e0a…, c/d.rst.txt 948d…, about.rst.txt f809…"""
    (tmp_path / "c").mkdir()
    for name in ("about.rst.txt", "zip.rst.txt", "c/d.rst.txt", "other.txt"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "large.rst.txt").write_bytes(bytes(LARGEST_FILE + 1))
    assert joined(tmp_path) == b"zip.rst.txtc/d.rst.txtabout.rst.txt"


def test_a_file_and_its_bytes_have_the_same_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK_BYTES", 100)
    (tmp_path / "text").write_bytes(TEXT)
    main(str(tmp_path / "text"))
    headed, *lines = capsys.readouterr().out.splitlines()
    tested = len(TEXT) - len(TEXT) * 95 // 100
    assert headed == f"{tmp_path}/text: {len(TEXT):,} bytes, {tested} of them the test part"
    assert [line.split("  ")[0] for line in lines] == list(dict(marks(TEXT)))
    assert [float(line.split()[-1]) for line in lines] == [
        pytest.approx(bits / 8, abs=1e-4) for bits in dict(marks(TEXT)).values()
    ]
