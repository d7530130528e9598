"""What ranks state of themselves and how long things took, falsified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.aiperf.rules.test_falsify_facts import Edit, each, with_ceiling, with_control, with_ready

from aiperf.device_names import folded_name, plain_name, refused_letters, visible_name
from aiperf.journal import events
from aiperf.journal.events import Began, Ended
from aiperf.journal.replay import Replay
from aiperf.rules.rule import Kind, Outcome
from aiperf.rules.verdict import RunClass, judge
from aiperf.score.bound import MOST_OF_THE_PEAK, bound_ops_per_second
from aiperf.score.peak import GIB, PEAKS, listed
from aiperf.wire.messages import Processor
from tests.aiperf.groups import READY
from tests.aiperf.rules.test_falsify import TIMED, careful, verdict_on
from tests.aiperf.rules.test_falsify_images import found, recorded
from tests.journals import Scene, Timed, told, within

LINUX = {"system": "Linux-6.18.44-fc-v595-x86_64-with-glibc2.36"}
ZEN_3 = Processor("x86_64", logical=8, top_hertz=0.0, flags=("avx", "avx2", "fma", "sse2"))
UNLISTED = told(Scene(minutes=0.15, device="AMD EPYC"))
MAX_1550 = "Intel(R) Data Center GPU Max 1550"


def called(name: str, timed: list[Timed]) -> list[Timed]:
    """Everywhere, as a careful forger does."""
    return with_ready(device=name)(with_ceiling(device=name)(with_control(device=name)(timed)))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("NВIDIA H200", "U+0412 CYRILLIC CAPITAL LETTER VE"),
        ("NVΙDIA H200", "U+0399 GREEK CAPITAL LETTER IOTA"),
        ("NVIDIA\u200b H200", "U+200B ZERO WIDTH SPACE"),
        ("NVIDIA H20\u202e0", "U+202E RIGHT-TO-LEFT OVERRIDE"),
        ("NVIDIA Hƻ00", "U+01BB"),
        ("NVIDIA H2\x00", "U+0000"),
        ("NVlDIA H200", "looks like NVIDIA H200, but differs from it"),
        ("NVIDIA H2OO", "looks like NVIDIA H200, but differs from it"),
        ("nvidia-h2oo", "looks like NVIDIA H200, but differs from it"),
    ],
)
def test_a_name_that_is_read_for_another_is_refused(tmp_path: Path, name: str, says: str) -> None:
    finding = found(verdict_on(tmp_path, careful(called(name, TIMED))), "ranks")
    assert finding.outcome is Outcome.FAILED
    assert says in finding.text


@pytest.mark.parametrize("name", ["nvidia h200", "NVIDIA-H200", "NVIDIA H 200", "NVIDIA  H200."])
def test_a_name_that_is_written_otherwise_has_the_same_bound(tmp_path: Path, name: str) -> None:
    assert listed(name) is listed("NVIDIA H200")
    seen = found(verdict_on(tmp_path, careful(called(name, TIMED))), "speed")
    assert (seen.outcome, seen.text) == (Outcome.PASSED, "0.0015 % of the most that the devices can do")


def test_no_two_listed_devices_share_a_name() -> None:
    assert len({folded_name(name) for name in PEAKS}) == len(PEAKS)


@pytest.mark.parametrize(
    "name",
    [
        "AMD EPYC 9004",
        "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz",
        "Intel(R) Core(TM)2 Duo CPU     E8400",
        "Intel® Xeon® Platinum™ 8480+",
        "海光 Hygon C86 7285",
        "Ascend910B4-1",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    ],
)
def test_an_honest_name_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    assert visible_name(name) == plain_name(name)
    assert found(verdict_on(tmp_path, careful(called(name, TIMED))), "ranks").outcome is Outcome.PASSED


def test_what_a_driver_says_is_recorded_without_letters_that_would_be_refused() -> None:
    assert visible_name("  Чип\u200b 9\n") == "???? 9"
    assert refused_letters(visible_name("Чип\u200b 9")) == []


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (with_ready(memory_bytes=10**15), "NVIDIA H200 has 141 GiB of memory, not 9.313e+05"),
        (with_ready(memory_bytes=-1), "-1 bytes of memory"),
        (with_ready(seconds=-1.0), "reports -1 s until it was ready"),
        (with_ready(processor=ZEN_3), "its device is NVIDIA H200, but it reports a processor"),
    ],
)
def test_a_listed_device_has_what_it_has(tmp_path: Path, edit: Edit, says: str) -> None:
    assert says in found(verdict_on(tmp_path, careful(edit(TIMED))), "ranks").text


@pytest.mark.parametrize(
    ("processor", "says"),
    [
        (replace(ZEN_3, machine="aarch64"), "its processor is aarch64, but its system is Linux-6.18.44"),
        (replace(ZEN_3, flags=("fma", "svebf16")), "its processor is x86_64, which has no svebf16"),
        (replace(ZEN_3, logical=10**6), "1000000 processors"),
        (replace(ZEN_3, logical=0), "0 processors"),
        (replace(ZEN_3, top_hertz=-1.0), "8 processors at -1 Hz"),
    ],
)
def test_a_processor_fits_its_system(tmp_path: Path, processor: Processor, says: str) -> None:
    forged = with_ready(processor=processor, software=LINUX)(UNLISTED)
    assert says in found(verdict_on(tmp_path, careful(forged)), "ranks").text
    honest = with_ready(processor=ZEN_3, software=LINUX)(UNLISTED)
    assert found(verdict_on(tmp_path / "honest", careful(honest)), "ranks").outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (with_ceiling(threads=-3), "used -3 threads"),
        (with_ceiling(threads=9), "used 9 threads, but its device has 8"),
        (with_ceiling(threads=4, thread_seconds={"1": 0.5}), "4 threads do not follow from the times of 1"),
        (with_ceiling(threads=1, thread_seconds={"1": -0.5}), "1 threads do not follow from the times of 1"),
        (with_ceiling(side=-1), "a side or a spread is negative"),
    ],
)
def test_threads_are_those_of_the_processor(tmp_path: Path, edit: Edit, says: str) -> None:
    forged = edit(with_ready(processor=ZEN_3, software=LINUX)(UNLISTED))
    assert says in found(verdict_on(tmp_path, careful(forged)), "measurements").text


def test_more_threads_than_processors_may_be_stated_by_the_environment(tmp_path: Path) -> None:
    ready = with_ready(processor=ZEN_3, software=LINUX, settings={"threads": "16"})
    finding = found(verdict_on(tmp_path, careful(with_ceiling(threads=16)(ready(UNLISTED)))), "measurements")
    assert "threads" not in finding.text


def test_a_gpu_has_no_threads(tmp_path: Path) -> None:
    forged = careful(with_ceiling(threads=4)(TIMED))
    assert "used 4 threads" in found(verdict_on(tmp_path, forged), "measurements").text


@pytest.mark.parametrize("gib", [64, 128, 10**6])
def test_no_memory_that_is_claimed_removes_a_bound(gib: int) -> None:
    """The name stands for one stack and for both, and the bound is that of both."""
    ready = replace(READY, device=MAX_1550, memory_bytes=gib * GIB)
    assert bound_ops_per_second([ready], "bf16") == pytest.approx(2 * MOST_OF_THE_PEAK * 419.5e12)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e9, float("nan")])
def test_a_preparation_takes_time_and_no_more_than_there_was(seconds: float) -> None:
    forged = each(Began, lambda event: within(event, prepare_seconds=seconds))(TIMED)
    assert "s to prepare, but began" in text_of("times", forged)


@pytest.mark.parametrize("seconds", [-1.0, 1e9, float("nan")])
def test_news_is_not_older_than_what_it_tells_of(seconds: float) -> None:
    forged = each(Ended, lambda event: within(event, age_seconds=seconds))(TIMED)
    assert "its end was" in text_of("times", forged)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e9, float("nan")])
def test_a_test_takes_time_and_no_more_than_there_was(seconds: float) -> None:
    forged = each(events.Tested, lambda event: within(event, seconds=seconds))(TIMED)
    assert "the test took" in text_of("accuracy", forged)


def text_of(rule: str, forged: list[Timed]) -> str:
    """What the rule finds; of what no journal can hold, as it would be folded."""
    run = Replay()
    for t, event in forged:
        run.add(t, event)
    finding = found(judge(run, None), rule)
    assert finding.outcome is Outcome.FAILED
    return finding.text


def test_a_foreign_search_makes_its_trials_unknown_and_costs_the_rank(tmp_path: Path) -> None:
    """Every trial may then be said to be as large as the bounds allow."""
    lines = recorded("alone")
    assert found(verdict_on(tmp_path, careful(lines)), "search").outcome is Outcome.PASSED
    for number, change in enumerate(({"search": 99}, {"libraries": {"scikit-learn": "0"}})):
        forged = each(events.Opened, lambda event, change=change: replace(event, **change))(lines)
        verdict = verdict_on(tmp_path / str(number), careful(forged))
        finding = found(verdict, "search")
        assert finding in [*verdict.unmet, *verdict.failed(Kind.INTEGRITY)]
        assert verdict.run_class is not RunClass.RANKED
