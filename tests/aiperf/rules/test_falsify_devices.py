"""What ranks state of themselves, what devices can do, how long things took, falsified; and what an honest
run could resemble on a bad day: then the rule is "unknown", which costs the class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.hardware.bound import bound_of_group
from aiperf.hardware.device_names import folded_name, plain_name, refused_letters, visible_name
from aiperf.hardware.peak import PEAKS
from aiperf.journal import events
from aiperf.journal.events import Began, Closed, LegBegan, Opened, RankReady
from aiperf.rules.measurements import measurement_faults
from aiperf.rules.rule import Outcome
from aiperf.score.lineage import recount
from aiperf.tasks.images.task import IMAGES
from aiperf.wire.reports import Processor, Rate, Ready, Rung, TimedStep
from nas.graph import Graph
from nas.layers import BatchNorm, Conv2d, Dense, GlobalPool
from nas.ops import TENSOR_OPS
from nas.record import graph_to_json
from tests.aiperf.rules.forged import (
    NAMES,
    TIMED,
    Edit,
    changed,
    each,
    finds,
    found,
    judged,
    of,
    places,
    retimed,
    said,
    together,
    with_ceiling,
    with_config,
    with_control,
    with_ready,
    worked,
)
from tests.journals import OPS_PER_SECOND, READY, Scene, Timed, part, replayed, told, within
from tests.nas.graphs import chain
from tests.tables import ComesTo

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


IN_NO_TIME, WITH_TWO = (TimedStep("seed", 1, "eager", 0.0, 5),), (TimedStep("seed", 2, "eager", 0.1, 5),)


def honestly_called(name: str) -> tuple[str, str]:
    """What is said of a name that a driver may give, which is taken as it is."""
    assert visible_name(name) == plain_name(name)
    return finds("ranks", called(name))


def outcomes(edit: Edit) -> tuple[str, ...]:
    """What three rules find: a ceiling only costs the class."""
    verdict = judged(edit(UNLISTED))
    return tuple(found(verdict, rule).outcome.name for rule in ("measurements", "speed", "ranked speed"))


def test_what_cannot_be_is_invalid_and_what_looks_like_it_and_is_honest_passes(
    comes_to_what_was_read: ComesTo,
) -> None:
    comes_to_what_was_read("forged_devices.txt", {**NAMES, **globals(), "refused_letters": refused_letters})


def test_no_two_listed_devices_share_a_name() -> None:
    assert len({folded_name(name) for name in PEAKS}) == len(PEAKS)


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


# What may be honest


RELEASE = 12.0
TWO_LONG_LEGS = told(Scene(minutes=0.5, killed_at=20.0))
PAIRS = told(Scene(minutes=0.25, ranks_of_a_group=2))


def in_six_milliseconds(timed: list[Timed]) -> list[Timed]:
    """All that was done, in a seventieth of the time; the work itself is said to have taken as long."""

    def shorter(t: float) -> float:
        return RELEASE + (t - RELEASE) / 70 if t > RELEASE else t

    return [(t if isinstance(e, events.Tested) else shorter(t), retimed(e, shorter)) for t, e in timed]


def worked_in_each_leg(*factors: float) -> Edit:
    """The work of each leg, said to have taken this many times as long."""

    def edit(timed: list[Timed]) -> list[Timed]:
        first, second = (*places(timed, LegBegan),)
        legs = timed[:second], timed[second:]
        assert first < second
        return [line for lines, factor in zip(legs, factors) for line in worked(factor)(lines)]

    return edit


def a_longer_last_validation(timed: list[Timed]) -> list[Timed]:
    """It is said to have begun while the group trained on; what the group idled before makes room for it."""
    place = places(timed, Closed)[-1]
    closed = timed[place][1]
    seconds = part(closed).validate_seconds + 0.13
    return changed(timed, place, within(closed, validate_seconds=seconds))


A_MOMENT, SIX_MILLISECONDS = told(Scene(minutes=0.007)), with_config(**{"limits.minutes": 0.0001})


def with_rank_2(**fields: object) -> Edit:
    return each(RankReady, lambda e: within(e, **fields) if e.ready.rank % 2 == 0 else e)


def doubted(rule: str, edit: Edit) -> tuple[str, str, str]:
    """The verdict, and what a rule says that costs the class."""
    verdict = judged(edit(TIMED))
    finding = found(verdict, rule)
    assert finding in verdict.unmet
    return verdict.answer.name, finding.outcome.name, finding.text


def test_what_may_be_honest_costs_the_class_and_a_device_without_a_bound_lifts_no_other(
    comes_to_what_was_read: ComesTo,
) -> None:
    """A format that a device computes in fp32 has the bound of fp32. What is late in one of two legs is
    within their share."""
    comes_to_what_was_read("doubts.txt", {**NAMES, **globals()})


def test_a_group_is_held_by_the_slowest_of_its_listed_devices() -> None:
    names = ("NVIDIA H200", "Abacus 9", "NVIDIA A100-SXM4-80GB")
    ranks = [replace(READY, rank=rank, device=name) for rank, name in enumerate(names)]
    a100 = bound_of_group(ranks[2:], "bf16")
    assert a100 is not None
    assert bound_of_group(ranks, "bf16") == 2 * 3 * a100


# Element-wise work, and kernels that mostly see padding: of own seeds, which could have any rate else


@pytest.fixture(scope="module")
def of_norms(tmp_path_factory: pytest.TempPathFactory) -> list[Timed]:
    """A run of an own seed of one product and 150 norms, in which no product takes long."""
    layers = [BatchNorm() for _ in range(150)]
    seed = tmp_path_factory.mktemp("seed") / "norms.json"
    graph = chain(Conv2d(8, 1), *layers, GlobalPool(), Dense(10), input=(1, 32, 32))
    seed.write_text(json.dumps(graph_to_json(graph)), encoding="utf-8")
    return told(Scene(minutes=0.1, changes=(("seed_architecture", str(seed)), ("training.epochs", (1,)))))


def test_element_wise_work_has_a_bound(of_norms: list[Timed], comes_to_what_was_read: ComesTo) -> None:
    """An honest machine may have a network in its caches, fuse what it computes and do it in 16 bits: still
    beyond none of these."""

    def speed(device: str, operations: float, format: str = "fp16", **ready: object) -> tuple[str, str]:
        configured = with_config(**{"training.format": format})
        edit = together(with_ready(device=device, **ready), worked(OPS_PER_SECOND / operations), configured)
        seen = found(edit(of_norms), "speed")
        return seen.outcome.name, seen.text.partition(";")[0]

    comes_to_what_was_read("element_wise.txt", {"speed": speed, "ZEN_3": ZEN_3})


def test_groups_on_one_host_share_its_processors(of_norms: list[Timed]) -> None:
    """Each of two groups has less than the bound of the host, and both together more."""
    slow = replace(ZEN_3, logical=1, top_hertz=1.2e8)
    on_one = together(
        with_ready(device="AMD EPYC", processor=slow, host="node1"),
        with_config(**{"training.format": "fp32"}),
    )
    seen = found(on_one(of_norms), "speed")
    assert "more element-wise work" not in seen.text
    assert "% of the most element-wise work that the devices can do" in seen.text


@pytest.mark.parametrize(("rules", "outcome"), [(1, Outcome.PASSED), (2, Outcome.UNKNOWN)])
def test_a_kernel_far_beyond_its_image_costs_the_class_since_version_2(
    rules: int, outcome: Outcome, tmp_path: Path
) -> None:
    """Its taps on the padding are counted: on one pixel all but one of 65,025."""
    seed = tmp_path / "kernel.json"
    graph = chain(Conv2d(4, 1, 32), Conv2d(4, 255), GlobalPool(), Dense(10), input=(1, 32, 32))
    seed.write_text(json.dumps(graph_to_json(graph)), encoding="utf-8")
    timed = told(Scene(minutes=0.1, changes=(("seed_architecture", str(seed)),)))
    seen = found(each(Opened, lambda event: replace(event, rules=rules))(timed), "speed")
    assert seen.outcome is outcome
    says = (
        "trial 0: the kernel of Conv2d.1 has 255 taps along 1 pixel; nobody computes most of what is counted"
    )
    assert seen.text.startswith(says) == (outcome is Outcome.UNKNOWN)
