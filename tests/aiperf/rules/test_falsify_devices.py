"""What ranks state of themselves, what devices can do, and how long things took, falsified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from aiperf.hardware.device_names import folded_name, plain_name, refused_letters, visible_name
from aiperf.hardware.peak import PEAKS, listed
from aiperf.journal import events
from aiperf.journal.events import Began, Ended, LegBegan, RankReady
from aiperf.rules.measurements import measurement_faults
from aiperf.rules.rule import Outcome
from aiperf.score.lineage import recount
from aiperf.tasks.images.task import IMAGES
from aiperf.wire.reports import Processor, Rate, Ready, Rung, StepTime, TimedStep
from nas.graph import Graph
from nas.ops import TENSOR_OPS
from tests.aiperf.rules.forged import (
    LOST,
    TIMED,
    Edit,
    each,
    found,
    judged,
    of,
    rows,
    said,
    together,
    with_ceiling,
    with_control,
    with_ready,
)
from tests.journals import Scene, replayed, told

LINUX = {"system": "Linux-6.18.44-fc-v595-x86_64-with-glibc2.36"}
ZEN_3 = Processor("x86_64", logical=8, top_hertz=0.0, flags=("avx", "avx2", "fma", "sse2"))
UNLISTED = told(Scene(minutes=0.3, device="AMD EPYC"))
ON_ZEN_3 = with_ready(processor=ZEN_3, software=LINUX)(UNLISTED)
ONE_TIMED: dict[str, Any] = {"threads": 1, "thread_seconds": {"1": 0.5}}
SPEED = 20e9
"""Operations per second of a group in these journals, about 19e9 of them tensor operations."""
SLOW = replace(ZEN_3, logical=1, top_hertz=1e6, flags=("sse2",))
THREE_GROUPS = told(Scene(minutes=0.1, groups=3))


def called(name: str) -> Edit:
    """An edit that renames the device everywhere, as a careful forger does."""
    return together(with_ready(device=name), with_ceiling(device=name), with_control(device=name))


def by_horovod(event: LegBegan) -> LegBegan:
    return replace(event, backend="horovod")


def placed(host: str, device_id: str, visible: int = 1) -> Edit:
    """`{}` stands for the rank's number."""

    def change(ready: Ready) -> Ready:
        return replace(
            ready,
            host=host.format(ready.rank),
            device_id=device_id.format(ready.rank),
            visible_devices=visible,
        )

    return each(RankReady, lambda event: replace(event, ready=change(event.ready)))


def of_zen_3(**fields: Any) -> Edit:
    """The run on a processor that is otherwise like that one."""
    return of(ON_ZEN_3, with_ready(processor=replace(ZEN_3, **fields)))


def ceiling_on_zen_3(**fields: Any) -> Edit:
    return of(ON_ZEN_3, with_ceiling(**fields))


CONTROL: dict[str, Any] = {"batch_size": 8, "steps": 2, "seconds": 4.0, "examples_per_second": 4.0}
"""What such a processor does in some seconds, at 224²."""


RUNG = Rung(size=112, batch_size=8, steps=4, seconds=2.0)
"""What it timed on its way there."""


def with_other(**fields: Any) -> Mapping[str, Any]:
    return {"others": (replace(RUNG, **fields),)}


def made_on(processor: Processor | None, fastest: float, **control: object) -> Edit:
    """The same run, whose ranks have that processor and measured that ceiling."""
    return together(
        with_ready(processor=processor),
        with_ceiling(product=Rate(fastest, fastest, 0.0)),
        with_control(**{**CONTROL, **control}),
    )


def on_zen_3(fastest: float = 1e11, **control: object) -> Edit:
    return of(UNLISTED, made_on(ZEN_3, fastest, **control))


ONE, TWO = Rate(1e11, 9e10, 0.1), Rate(2e11, 1.5e11, 0.1)
"""Products with one thread, which these ranks used, and with two."""


def with_products(**products: Rate) -> Edit:
    """By number of threads: t1, t2."""
    return of(
        UNLISTED,
        made_on(ZEN_3, 1e11),
        with_ceiling(
            product=ONE,
            threads=1,
            thread_seconds={"1": 0.01, "2": 0.02},
            thread_products={name[1:]: rate for name, rate in products.items()},
        ),
    )


SECONDS = (-1.0, 0.0, 1e9, float("nan"))
"""Times that nothing took."""
IN_NO_TIME, WITH_TWO = (TimedStep("seed", 1, "eager", 0.0, 5),), (TimedStep("seed", 2, "eager", 0.1, 5),)
UNTIMED = "threads do not follow from the times of 1"
FORGERIES: dict[str, list[tuple[Edit, str]]] = {
    "ranks": [
        # A name that is read for another.
        (called("NВIDIA H200"), "U+0412 CYRILLIC CAPITAL LETTER VE"),
        (called("NVΙDIA H200"), "U+0399 GREEK CAPITAL LETTER IOTA"),
        (called("NVIDIA\u200b H200"), "U+200B ZERO WIDTH SPACE"),
        (called("NVIDIA H20\u202e0"), "U+202E RIGHT-TO-LEFT OVERRIDE"),
        (called("NVIDIA Hƻ00"), "U+01BB"),
        (called("NVIDIA H2\x00"), "U+0000"),
        (called("NVlDIA H200"), "looks like NVIDIA H200, but differs from it"),
        (called("NVIDIA H2OO"), "looks like NVIDIA H200, but differs from it"),
        (called("nvidia-h2oo"), "looks like NVIDIA H200, but differs from it"),
        # What a listed device has.
        (with_ready(memory_bytes=10**15), "NVIDIA H200 has 141 GiB of memory, not 9.313e+05"),
        (with_ready(memory_bytes=-1), "-1 bytes of memory"),
        (with_ready(seconds=-1.0), "reports -1 s until it was ready"),
        (with_ready(processor=ZEN_3), "its device is NVIDIA H200, but it reports a processor"),
        # A processor that does not fit its system, or that nobody makes.
        (of_zen_3(machine="aarch64"), "its processor is aarch64, but its system is Linux-6.18.44"),
        (of_zen_3(flags=("fma", "svebf16")), "its processor is x86_64, which has no svebf16"),
        (of_zen_3(logical=10**6), "1000000 processors"),
        (of_zen_3(logical=0), "0 processors"),
        (of_zen_3(top_hertz=-1.0), "8 processors at -1 Hz"),
        (of_zen_3(vector_bits=4096), "it reports vectors of 4096 bits"),
        (of_zen_3(vector_bits=200), "it reports vectors of 200 bits"),
        (of_zen_3(vector_bits=-128), "it reports vectors of -128 bits"),
        # A device belongs to one rank, and a host has as many as ranks.
        (of(LOST, placed("node1", "GPU-1")), "rank 1 and rank 2 share device GPU-1 on node1"),
        (of(THREE_GROUPS, placed("node1", "GPU-{}", visible=2)), "3 ranks share the 2 devices on node1"),
        (of(LOST, each(LegBegan, by_horovod)), "rank 2 was restarted, which Horovod does not allow"),
    ],
    "measurements": [
        # Threads are those of the processor, and those of trials were timed.
        (with_ceiling(threads=4), "used 4 threads"),
        (ceiling_on_zen_3(threads=-3), "used -3 threads"),
        (ceiling_on_zen_3(threads=9), "used 9 threads, but its device has 8"),
        (ceiling_on_zen_3(threads=4, thread_seconds={"1": 0.5}), f"4 {UNTIMED}"),
        (ceiling_on_zen_3(threads=1, thread_seconds={"1": -0.5}), f"1 {UNTIMED}"),
        (ceiling_on_zen_3(threads_share=1.5), "1.5 is not a share of measurements"),
        (ceiling_on_zen_3(timed=IN_NO_TIME, **ONE_TIMED), "or in no time"),
        (ceiling_on_zen_3(timed=WITH_TWO, **ONE_TIMED), "with other threads than 1"),
        (of(ON_ZEN_3, said(Began, threads=(64,))), "with 64 threads, which were not timed before the span"),
        (of(ON_ZEN_3, with_ceiling(**ONE_TIMED), said(Began, threads=(2,))), "trained with 2 threads, w"),
        (ceiling_on_zen_3(seed_steps={"eager": StepTime(-1.0)}), "a step has a negative duration or error"),
        (ceiling_on_zen_3(steps={"eager": StepTime(1.0, error=-0.1)}), "a step has a negative duration or"),
        (ceiling_on_zen_3(side=-1), "a side or a spread is negative"),
        # More than the processor can do, or of images that the control does not have.
        (on_zen_3(1e13), "times the most that AMD EPYC can do"),
        (on_zen_3(size=225), "used 225² images"),
        (on_zen_3(size=-1), "used -1² images"),
        (on_zen_3(steps=10**9, examples_per_second=2e9), "is more than AMD EPYC can do"),
        (on_zen_3(**with_other(size=113)), "used 113² images; possible sizes are 32, 64, 112, 160, 224"),
        (on_zen_3(**with_other(network="gpt-4x128")), "'gpt-4x128', which the task does not have"),
        (on_zen_3(**with_other(steps=10**9)), "is more than AMD EPYC can do"),
        (on_zen_3(**with_other(seconds=0.0)), "4 steps of 8 112² images took 0.00 s"),
        (on_zen_3(**with_other(batch_size=-8, steps=-4)), "-4 steps of -8 112² images took 2.00 s"),
        (on_zen_3(**with_other(size=224)), "two rates of the same images in the same batch"),
        # Products with other threads are checked like the ceiling.
        (with_products(t2=TWO), "the products with 2 threads do not fit those with 1"),
        (with_products(t1=TWO, t2=TWO), "the products with 1, 2 threads do not fit those with 1"),
        (with_products(t1=ONE, t4=TWO), "the products with 1, 4 threads do not fit those with 1"),
        (with_products(t1=ONE, t2=Rate(1e13, 1e13, 0.0)), "times the most that AMD EPYC can do"),
        (with_products(t1=ONE, t2=Rate(1e11, 2e11, 0.0)), "the fastest rate is below the typical rate"),
    ],
    "speed": [(of(UNLISTED, made_on(SLOW, 1.5e7)), "did more work than its devices can do")],
    # What happened takes time, and no more than there was.
    "times": [
        *((said(Began, prepare_seconds=seconds), "s to prepare, but began") for seconds in SECONDS),
        *((said(Ended, age_seconds=seconds), "its end was") for seconds in SECONDS if seconds),
    ],
    "accuracy": [(said(events.Tested, seconds=seconds), "the test took") for seconds in SECONDS],
}
HONEST: dict[str, list[Edit]] = {
    "ranks": [
        of(ON_ZEN_3),
        of(LOST, placed("node1", "")),  # processors, and what no driver tells apart
        of(LOST, placed("node1", "MIG-{}", visible=2)),  # partitions, and a rank that was started again
        of(LOST, placed("node{}", "npu-0")),
        of(LOST, placed("node1", "GPU-{}")),  # the launcher shows each rank its own
        of(THREE_GROUPS, placed("node1", "GPU-{}", visible=3)),
    ],
    "measurements": [with_products(t1=ONE, t2=TWO)],
    "times": [said(Ended, age_seconds=0.0)],  # news may be reported at once
}


@pytest.mark.parametrize(("rule", "edit", "says"), rows(FORGERIES))
def test_what_cannot_be_is_invalid(rule: str, edit: Edit, says: str) -> None:
    finding = found(edit(TIMED), rule)
    assert finding.outcome is Outcome.FAILED
    assert says in finding.text


@pytest.mark.parametrize(("rule", "edit"), [(rule, edit) for rule, edits in HONEST.items() for edit in edits])
def test_what_looks_like_it_and_is_honest_passes(rule: str, edit: Edit) -> None:
    assert found(edit(TIMED), rule).outcome is Outcome.PASSED


@pytest.mark.parametrize("name", ["nvidia h200", "NVIDIA-H200", "NVIDIA H 200", "NVIDIA  H200."])
def test_a_name_that_is_written_otherwise_has_the_same_bound(name: str) -> None:
    assert listed(name) is listed("NVIDIA H200")
    seen = found(called(name)(TIMED), "speed")
    assert (seen.outcome, seen.text) == (Outcome.PASSED, "0.0015 % of the most that the devices can do")


def test_no_two_listed_devices_share_a_name() -> None:
    assert len({folded_name(name) for name in PEAKS}) == len(PEAKS)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "AMD EPYC 9004",
            "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz",
            "Intel(R) Core(TM)2 Duo CPU     E8400",
        ),
        *("Intel® Xeon® Platinum™ 8480+", "海光 Hygon C86 7285", "Ascend910B4-1"),
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    ],
)
def test_an_honest_name_is_taken_as_it_is(name: str) -> None:
    assert visible_name(name) == plain_name(name)
    assert found(called(name)(TIMED), "ranks").outcome is Outcome.PASSED


def test_what_a_driver_says_is_recorded_without_letters_that_would_be_refused() -> None:
    assert visible_name("  Чип\u200b 9\n") == "???? 9"
    assert refused_letters(visible_name("Чип\u200b 9")) == []


def test_a_trial_may_have_any_threads_that_were_timed_and_is_compared_with_their_ceiling() -> None:
    """It is no doubt that a rank with a ceiling for one thread is faster with two."""
    one, two = Rate(SPEED / 2, SPEED / 2, 0.0), Rate(SPEED, SPEED, 0.0)
    measured = with_ceiling(
        **{**ONE_TIMED, "thread_seconds": {"1": 0.5, "2": 0.4}},
        product=one,
        seed=None,
        thread_products={"1": one, "2": two},
    )
    faster = "the rate is 1.8 times the ceilings measured before the span"
    assert faster in found(measured(ON_ZEN_3), "measurements").text
    for threads in ((1,), (2,)):
        finding = found(together(measured, said(Began, threads=threads))(ON_ZEN_3), "measurements")
        assert (faster in finding.text) == (threads == (1,))
        assert finding.outcome is not Outcome.FAILED


def test_more_threads_than_processors_may_be_stated_by_the_environment_of_a_processor_alone() -> None:
    stated = together(with_ready(settings={"threads": "16"}), with_ceiling(threads=16))
    assert "threads" not in found(stated(ON_ZEN_3), "measurements").text


# The ceilings only cost the class


def outcomes(edit: Edit) -> tuple[Outcome, ...]:
    verdict = judged(edit(UNLISTED))
    return tuple(found(verdict, rule).outcome for rule in ("measurements", "speed", "ranked speed"))


def test_below_its_ceiling_a_run_passes() -> None:
    assert outcomes(made_on(ZEN_3, 1e11)) == (Outcome.PASSED,) * 3
    assert outcomes(made_on(ZEN_3, 1e11, **with_other())) == (Outcome.PASSED,) * 3


@pytest.mark.parametrize(
    ("processor", "speed"), [(ZEN_3, Outcome.PASSED), (None, Outcome.UNKNOWN)], ids=["bound", "no bound"]
)
def test_beyond_its_ceiling_a_run_is_unknown_and_not_ranked(
    processor: Processor | None, speed: Outcome
) -> None:
    """As one product in emulated bf16 was: 3.2 times below the honest work of the same run."""
    beyond = made_on(processor, SPEED / 3.2)
    assert outcomes(beyond) == (Outcome.UNKNOWN, speed, Outcome.FAILED)
    text = found(beyond(UNLISTED), "measurements").text
    assert "times the ceilings measured before the span" in text
    assert "run again on idle devices" in text


@pytest.mark.parametrize(("times", "doubted"), [(3.9, False), (4.1, True)])
def test_one_piece_may_be_four_times_as_fast_as_the_ceiling(times: float, doubted: bool) -> None:
    run = replayed(UNLISTED)
    counts, column = recount(run).counts, run.blocks.column
    fastest = max(
        counts[run.attempts[attempt].trial.number].train.price(TENSOR_OPS) * examples / seconds
        for attempt, examples, seconds in zip(column("attempts"), column("examples"), column("seconds"))
    )
    text = found(made_on(ZEN_3, fastest / times)(UNLISTED), "measurements").text
    assert ("of work exceeded 4 times" in text) == doubted


def test_the_control_is_counted_once_for_all_ranks() -> None:
    """Counting ResNet-50 takes milliseconds, and a machine has tens of thousands of ranks."""
    counted = list[object]()

    def count(size: int) -> Graph:
        counted.append(size)
        return IMAGES.control.graph(size)

    network = replace(IMAGES.control, graph=count)
    leg = replayed(told(Scene(groups=8, ranks_of_a_group=4, minutes=0.05))).leg
    assert len(leg.controls) == 32
    assert list(measurement_faults(leg, "bf16", network)) == []
    assert len(counted) == 1
