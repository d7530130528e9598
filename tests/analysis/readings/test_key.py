"""The figures of a score in words, where they are known and where they are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aiperf.tally import Classified
from analysis.readings.judged import Judged, examine
from analysis.readings.key import ERROR, RATE, figures
from tests import journals
from tests.journals import Scene, told


def test_what_is_not_known_says_why(tmp_path: Path) -> None:
    judged = examine(journals.write_run(tmp_path / "run", told(Scene())[:6]))
    lines = {key: one.line for key, one in figures(judged.replay, judged.score).items()}
    assert lines == {
        "ops_per_second": "0 OPS (over 0:00; no stable window)",
        "tensor_ops_per_second": "0 OPS (multiply-accumulates of convolutions and dense layers)",
        "raw_ops_per_second": "0 OPS",
        "regulated_score": "none (no network was tested)",
        "mfu": "unknown (nothing was timed)",
        "span_seconds": "0:00",
        "devices": "2",
        "ops_per_second_per_device": "0 OPS (2 devices)",
        "validation_error": "none",
        "error": "none (no trial was validated)",
        "control_examples_per_second": "not measured (ResNet-50 v1.5, before the span)",
        "goodput": "none (of the operations done were credited; 0 training images)",
        "aiperf1_ops_per_second": "0 OPS (the same run by the rules of 2021; not a score)",
    }


def test_of_a_bound_it_is_said_that_it_is_one(judged: Judged) -> None:
    quality = judged.score.quality
    assert quality is not None
    quality = replace(quality, test=Classified(200, 200), error=1 / 400, error_is_bound=True)
    found = figures(judged.replay, replace(judged.score, quality=quality))
    assert found["error"].line.startswith("0.25 % (0 of 200 wrong, taken as 1/(2N); ")
    assert found["regulated_score"].aside.endswith(
        "; no test example was wrong; the error is taken as 1/(2N)"
    )


def test_shares_differ_by_points_and_rates_by_per_cent() -> None:
    assert (ERROR.change(0.5, 0.25), RATE.change(2.0, 1.0)) == ("−25.00 points", "−50.00 %")
    assert (ERROR.change(0.0, 0.25), RATE.change(0.0, 1.0)) == ("+25.00 points", "")
    assert (ERROR.change(None, 0.25), RATE.change(1.0, None)) == ("", "")
    assert (ERROR.change(0.00018, 0.0002), RATE.change(120.0, 120.0 + 3e-14)) == ("+0.0020 points", "+0.00 %")
