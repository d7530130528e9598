"""Figures to compare networks with, against the definition written down."""

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
from benchmarks.text.marks import backed_off, main, xz

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


def test_the_test_part_alone_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read piece by piece."""
    monkeypatch.setattr(reading, "CHUNK_BYTES", 100)
    (tmp_path / "text").write_bytes(bytes(950) + TEXT[:50])
    main(str(tmp_path / "text"))
    head, _, *rows = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    found = {name.removeprefix("| "): float(bits) for name, bits, _ in rows}
    assert head == ["| model", "text", "error |"]
    assert found["xz -9e, the test part alone"] == xz(TEXT[:50]) * 8 / 50
    assert found["order 2, counted in training"] > 8


@pytest.mark.skipif(shutil.which("xz") is None, reason="needs the program xz")
def test_xz_is_the_program_of_that_name() -> None:
    done = subprocess.run(["xz", "-9e", "-c"], input=TEXT, capture_output=True, check=True)
    assert xz(TEXT) == len(done.stdout)
