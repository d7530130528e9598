"""What makes a run INVALID and what only costs its class: what devices can do, and their ceilings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.aiperf.rules.test_falsify_course import replay_of

from aiperf.journal.events import CeilingMeasured, ControlMeasured, Event, RankReady
from aiperf.rules.measured import of_leg
from aiperf.rules.rule import Finding, Kind, Outcome
from aiperf.rules.verdict import Verdict
from aiperf.score.lineage import recount
from aiperf.tasks.images import IMAGES
from aiperf.wire.messages import Processor, Rate
from nas.graph import Graph
from nas.ops import TENSOR_OPS
from tests.aiperf.rules.test_falsify import careful, verdict_on
from tests.journals import Scene, Timed, told

UNLISTED = told(Scene(minutes=0.3, device="AMD EPYC"))
ZEN_3 = Processor("x86_64", logical=2, top_hertz=0.0, flags=("avx", "avx2", "fma", "sse2"))
SPEED = 20e9
"""Of a group in these journals: operations a second, about 19e9 of them tensor operations."""


CONTROL: dict[str, Any] = {"batch_size": 8, "steps": 2, "seconds": 4.0, "examples_per_second": 4.0}
"""What such a processor does in some seconds, at 224²."""


def made_on(processor: Processor | None, fastest: float, timed: list[Timed] = UNLISTED) -> list[Timed]:
    """The same run, whose ranks have that processor and measured that ceiling."""

    def change(event: Event) -> Event:
        if isinstance(event, RankReady):
            return replace(event, ready=replace(event.ready, processor=processor))
        if isinstance(event, CeilingMeasured):
            return replace(event, ceiling=replace(event.ceiling, product=Rate(fastest, fastest, 0.0)))
        if isinstance(event, ControlMeasured):
            return replace(event, control=replace(event.control, **CONTROL))
        return event

    return [(t, change(event)) for t, event in timed]


def found(verdict: Verdict, rule: str) -> Finding:
    (finding,) = [finding for finding in verdict.findings if finding.rule == rule]
    return finding


def convicted(verdict: Verdict) -> set[str]:
    return {finding.rule for finding in verdict.failed(Kind.INTEGRITY)}


def test_below_its_ceiling_a_run_passes(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, careful(made_on(ZEN_3, 1e11)))
    assert found(verdict, "measurements").outcome is Outcome.PASSED
    assert found(verdict, "speed").outcome is Outcome.PASSED
    assert found(verdict, "ranked speed").outcome is Outcome.PASSED


@pytest.mark.parametrize("processor", [ZEN_3, None], ids=["bound", "no bound"])
def test_beyond_its_ceiling_a_run_is_unknown_and_not_ranked(
    tmp_path: Path, processor: Processor | None
) -> None:
    """As one product in emulated bf16 was: 3.2 times below the honest work of the same run."""
    verdict = verdict_on(tmp_path, careful(made_on(processor, SPEED / 3.2)))
    finding = found(verdict, "measurements")
    assert finding.outcome is Outcome.UNKNOWN
    assert "times the ceilings measured before the span" in finding.text
    assert "run again on idle devices" in finding.text
    assert found(verdict, "ranked speed").outcome is Outcome.FAILED
    assert "measurements" not in convicted(verdict)
    assert "speed" not in convicted(verdict)


@pytest.mark.parametrize(("times", "doubted"), [(3.9, False), (4.1, True)])
def test_one_piece_may_be_four_times_as_fast_as_the_ceiling(
    tmp_path: Path, times: float, doubted: bool
) -> None:
    run = replay_of(UNLISTED)
    counts, column = recount(run).counts, run.blocks.column
    fastest = max(
        counts[run.attempts[attempt].trial.number].train.price(TENSOR_OPS) * examples / seconds
        for attempt, examples, seconds in zip(column("attempts"), column("examples"), column("seconds"))
    )
    verdict = verdict_on(tmp_path, careful(made_on(ZEN_3, fastest / times)))
    assert ("of work exceeded 4 times" in found(verdict, "measurements").text) == doubted


def test_beyond_the_bound_a_run_is_invalid(tmp_path: Path) -> None:
    slow = replace(ZEN_3, logical=1, top_hertz=1e6, flags=("sse2",))
    verdict = verdict_on(tmp_path, careful(made_on(slow, 1.5e7)))
    assert "speed" in convicted(verdict)
    assert "did more work than its devices can do" in found(verdict, "speed").text


def test_a_ceiling_beyond_the_bound_is_invalid(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, careful(made_on(ZEN_3, 1e13)))
    assert "times the most that AMD EPYC can do" in found(verdict, "measurements").text
    assert "measurements" in convicted(verdict)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"size": 225}, "used 225² images"),
        ({"size": -1}, "used -1² images"),
        ({"steps": 10**9, "examples_per_second": 2e9}, "is more than AMD EPYC can do"),
    ],
)
def test_a_control_that_cannot_be_is_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], text: str
) -> None:
    monkeypatch.setitem(globals(), "CONTROL", {**CONTROL, **changed})
    finding = found(verdict_on(tmp_path, careful(made_on(ZEN_3, 1e11))), "measurements")
    assert finding.outcome is Outcome.FAILED
    assert text in finding.text


def test_the_control_is_counted_once_for_all_ranks() -> None:
    """Counting ResNet-50 takes milliseconds, and a machine has tens of thousands of ranks."""
    counted = list[object]()

    def count(size: int) -> Graph:
        counted.append(size)
        return IMAGES.control.graph(size)

    network = replace(IMAGES.control, graph=count)
    replay = replay_of(told(Scene(groups=8, ranks_of_a_group=4, minutes=0.05)))
    assert len(replay.leg.controls) == 32
    assert list(of_leg(replay.leg, "bf16", network)) == []
    assert len(counted) == 1
