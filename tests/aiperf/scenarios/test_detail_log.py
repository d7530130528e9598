"""LoadGen's detail log: what real tests came to, and what is no such log.

`logs` holds lines of `mlperf_log_detail.txt` that LoadGen 6.0.17 wrote under `infer --seconds 3` on a digits
run and a busy processor: version, effective settings, results. Lists of samples and files are left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.scenarios.detail_log import Detail, read_detail
from tests.tables import ComesTo

LOGS = Path(__file__).parent / "logs"


def kept(name: str) -> Detail:
    return read_detail(LOGS / name)


def short(text: str) -> None:
    Path("short.txt").write_text(text, encoding="utf-8")
    read_detail(Path("short.txt"))


def test_what_a_log_says_and_what_is_no_log_of_a_test_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """The figures as they stand in the file. One query of eight samples has one latency; of one query of all
    samples each has its own."""
    monkeypatch.chdir(tmp_path)
    comes_to_what_was_read("detail_logs.txt", globals())
