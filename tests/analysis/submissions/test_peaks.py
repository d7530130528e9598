"""Peaks that the operator of a list adds: a file of them, and what they change in a package's judgement."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.hardware.peak import listed
from aiperf.rules.rule import Outcome
from analysis.submissions.peaks import read_peaks
from analysis.submissions.verify import Checked, checked
from tests.aiperf.rules.forged import found
from tests.analysis.packages import make
from tests.journals import CIFAR, Machine, resized, write_run
from tests.tables import ComesTo

ABACUS = """
["Abacus 9"]
bf16 = 300
fp32 = 20.5
memory_gib = 80
source = "Abacus 9 data sheet, 2026, table 2"
"""


def test_a_wrong_file_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("peaks.toml")

    def read(text: str) -> object:
        path.write_text(text, encoding="utf-8")
        return read_peaks(path)

    comes_to_what_was_read("refused_peaks.txt", {"read": read, "ABACUS": ABACUS})
    with pytest.raises(AiperfError, match=r"^peaks\.toml.*not valid TOML"):
        read("[")


def test_an_added_peak_bounds_the_runs_of_a_list_and_changes_no_claim(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", resized(CIFAR, 0.5), Machine(device="Abacus 9"))
    package, given = make(tmp_path / "package.tar.gz", run), tmp_path / "peaks.toml"
    given.write_text(ABACUS.replace("Abacus 9", "abacus-9", 1), encoding="utf-8")

    def judged(**further: object) -> Checked:
        with checked(package, **further) as submission:  # type: ignore[arg-type]
            (only,) = submission.runs
            return only

    before, after = judged(), judged(peaks=read_peaks(given))
    assert before.reasons == after.reasons == []
    assert found(before.judged.verdict, "speed").outcome is Outcome.UNKNOWN
    assert found(after.judged.verdict, "speed").outcome is Outcome.PASSED
    assert (before.judged.score.mfu, listed("Abacus 9")) == (None, None)
    assert after.judged.score.mfu is not None
