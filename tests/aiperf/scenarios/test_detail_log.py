"""LoadGen's detail log: what real tests came to, and what is no such log.

`logs` holds lines of `mlperf_log_detail.txt` that LoadGen 6.0.17 wrote under `infer --seconds 3` on a digits
run and a busy processor: version, effective settings, results. Lists of samples and files are left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.errors import AiperfError
from aiperf.scenarios.detail_log import Detail, read_detail
from aiperf.scenarios.latencies import Latencies

LOGS = Path(__file__).parent / "logs"


def ns(count: int) -> float:
    return 1e-9 * count


def test_a_test_that_is_valid() -> None:
    """The figures as they stand in the file, read by eye."""
    counts = {"50.00": 973785, "90.00": 21560033, "95.00": 25437357}
    counts |= {"97.00": 25644905, "99.00": 29681415, "99.90": 33614492}
    assert read_detail(LOGS / "single-stream.txt") == Detail(
        version="6.0.17",
        valid=True,
        reason="",
        early_stopping="Processed at least 64 queries (464). Would discard 30 highest latency queries. Early "
        "stopping 90.0th percentile estimate: 23819125 Not enough queries processed for 99.0th percentile "
        "early stopping estimate (would need to process at least 662 total queries).",
        queries=464,
        latencies=Latencies(
            number=464,
            mean=ns(6415242),
            least=ns(771625),
            most=ns(33614492),
            percentiles={percentile: ns(count) for percentile, count in counts.items()},
        ),
        samples_per_second=154.295,
        early_stopping_percentile=ns(23819125),
        errors=0,
    )


def test_a_server_that_is_late_says_what_is_not_met() -> None:
    found = read_detail(LOGS / "server-late.txt")
    assert (found.valid, found.queries, found.latencies.number) == (False, 662, 662)
    assert found.reason == (
        "the latency is above the bound, early stopping is not met (LoadGen: Reduce target QPS to improve "
        "latency.)"
    )


def test_of_a_query_of_eight_samples_the_latency_is_that_of_the_query() -> None:
    found = read_detail(LOGS / "multi-stream.txt")
    assert (found.valid, found.queries, found.latencies.number) == (True, 662, 662)
    assert found.latencies.percentiles["99.00"] == ns(41450409)
    assert found.samples_per_second == pytest.approx(8 / found.latencies.mean)


def test_of_one_query_of_all_samples_each_sample_has_a_latency() -> None:
    found = read_detail(LOGS / "offline.txt")
    assert (found.queries, found.early_stopping, found.early_stopping_percentile) == (1, "", None)
    # LoadGen: samples over the latency of the last.
    assert found.samples_per_second == pytest.approx(found.latencies.number / found.latencies.most, rel=1e-4)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "effective_scenario is missing"),
        (':::MLLOG {"key": "effective_scenario", "value": "Offline"}\n', "result_query_count is missing"),
        (":::MLLOG {\n", "Expecting property name"),
        (":::MLLOG 3\n", "not subscriptable"),
    ],
)
def test_what_is_no_log_of_a_test_that_ended(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "mlperf_log_detail.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(AiperfError, match=f"is not LoadGen's log of a test that ended: .*{why}"):
        read_detail(path)


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AiperfError, match=r"nothing\.txt: No such file"):
        read_detail(tmp_path / "nothing.txt")
