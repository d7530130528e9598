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

ABACUS = """
["Abacus 9"]
bf16 = 300
fp32 = 20.5
memory_gib = 80
source = "Abacus 9 data sheet, 2026, table 2"
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ABACUS.replace("Abacus 9", "nvidia h200", 1), "this program lists the device already"),
        (ABACUS.replace("Abacus 9", "NVIDIA H2OO", 1), "the name looks like NVIDIA H200, but differs"),
        (ABACUS.replace("Abacus 9", "Ab\u0430cus 9", 1), "U+0430 CYRILLIC SMALL LETTER A"),
        (ABACUS.replace("300", "-300"), "bf16 is -300"),
        (ABACUS.replace("80", "inf"), "memory_gib is inf; it must be above 0"),
        (ABACUS.replace("300", '"fast"'), "bf16"),
        (ABACUS.replace("Abacus 9 data sheet, 2026, table 2", "me"), "source must name the"),
        ("[a]\nsource = 'Abacus 9 data sheet, 2026'\n", "it has no figure; give fp32"),
        ("[a]\nbf16 = 3\n", "source"),
        (ABACUS + "int8 = 600\n", "int8"),
        ("Abacus = 9\n", "'Abacus'"),
        ("[", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "peaks.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(AiperfError) as refusal:
        read_peaks(path)
    assert str(refusal.value).startswith(f"{path}")
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


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
