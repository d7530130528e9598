"""A pretended trial keeps the plan and the deadline as a trained one does, on any clock. A file of
assumptions says all of them, and what is wrong with it is one line."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from math import exp
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.conduct.actions import Action, Close, Keep, Say, Train, Validate
from aiperf.conduct.course import Course
from aiperf.conduct.events import BlockDone, ValidationDone
from aiperf.config import Config, load_preset, with_overrides
from aiperf.errors import ConfigError
from aiperf.pretending.assumptions import (
    AllReduce,
    Heat,
    NodeNetwork,
    Spread,
    assumed,
    assumption_names,
    assumptions_toml,
)
from aiperf.pretending.group_model import GroupExtent, Learnt, Pretended, PretendedTrial, slowest
from aiperf.pretending.rank_report import pretended_group, pretended_manifest
from aiperf.proposing.pace import Pace
from aiperf.proposing.plan import plan
from aiperf.rules.eligibility import unrankable
from aiperf.wire.layout import layout
from aiperf.wire.messages import Steps, Validated
from aiperf.wire.trial import HyperParameters, State, Trial
from nas.morphisms import Widen
from nas.seeds import resolve_seed
from tests.tables import ComesTo

LAPTOP = assumed("laptop")
DIGITS = with_overrides(load_preset("digits"), {"training.format": "fp32", "data.validation_examples": 2000})
SEED = resolve_seed("residual-4-8-16", (1, 32, 32), 10)


def group(config: Config = DIGITS, ranks: int = 1) -> Pretended:
    found = pretended_group(LAPTOP, config, SEED, (1,))
    return replace(found, manifest={**found.manifest, "training_examples": 200}, ranks=ranks)


def trial(epochs: int = 6, batch_size: int = 50, number: int = 3) -> Trial:
    return Trial(number, None, (), HyperParameters(0.1, batch_size), 1, epochs, 17)


class Followed:
    """A trial to its end on a virtual clock."""

    def __init__(self, of: Pretended, trial: Trial, deadline: float = float("inf")) -> None:
        self.now, self.said = 0.0, list[tuple[float, Steps | Validated]]()
        self.trial = PretendedTrial(of, trial, 0, Learnt(of.seed))
        course = Course(trial.number, 0, self.trial.built, Pace(deadline=deadline))
        works = deque[Action]([course.first()])
        while not isinstance(work := works.popleft(), Close):
            if isinstance(work, Keep):
                self.trial.keep(work)
                continue
            for action in course.take(self.event(work), self.now):
                if isinstance(action, Say):
                    assert isinstance(action.message, Steps | Validated)
                    self.said.append((self.now, action.message))
                else:
                    works.append(action)
        self.end = work

    def event(self, work: Action) -> BlockDone | ValidationDone:
        """What comes of a work, and the clock after it."""
        if isinstance(work, Train):
            self.now += (seconds := self.trial.train_seconds(work.steps, self.now))
            return self.trial.trained(work, seconds, self.now)
        assert isinstance(work, Validate), work
        self.now += (seconds := self.trial.validate_seconds(self.now))
        return self.trial.validated(work, seconds, self.now)

    @property
    def blocks(self) -> list[Steps]:
        return [said for _, said in self.said if isinstance(said, Steps)]

    @property
    def validations(self) -> list[tuple[float, Validated]]:
        return [(t, said) for t, said in self.said if isinstance(said, Validated)]


@given(
    epochs=st.integers(1, 60),
    batch_size=st.sampled_from([2, 30, 50, 200]),
    every=st.integers(1, 5000),
    ranks=st.sampled_from([1, 2, 8]),
)
@settings(max_examples=25)
def test_all_steps_of_the_plan_are_made_and_each_segment_closed(
    epochs: int, batch_size: int, every: int, ranks: int
) -> None:
    config = with_overrides(DIGITS, {"training.validate_every_examples": every})
    followed = Followed(group(config, ranks), trial(epochs, batch_size))
    planned = plan(trial(epochs, batch_size), config.training, 200)
    assert sum(said.block.steps for said in followed.blocks) == planned.steps
    assert sum(said.block.examples for said in followed.blocks) == planned.steps * batch_size
    made = Counter[int]()
    for said in followed.blocks:
        made[said.block.segment] += said.block.steps
    closed = {said.segment.index: said.segment for _, said in followed.validations}
    assert {index: segment.steps for index, segment in closed.items()} == made
    assert all(segment.train_examples == segment.steps * batch_size for segment in closed.values())
    assert followed.end.state is State.COMPLETE
    waited = sum(said.block.seconds for said in followed.blocks)
    waited += sum(segment.validate_seconds for segment in closed.values())
    assert followed.now == pytest.approx(waited)


@given(deadline=st.floats(1.0, 300.0), epochs=st.integers(1, 400))
@settings(max_examples=25)
def test_the_closing_validation_is_over_before_the_deadline(deadline: float, epochs: int) -> None:
    """But for the first one of all, before which nobody knows how long one takes."""
    followed = Followed(group(), trial(epochs), deadline)
    times = [t for t, _ in followed.said]
    assert times == sorted(times)
    assert all(t <= deadline for t, _ in followed.validations[1:])
    assert followed.end.state is (State.COMPLETE if followed.now < deadline - 4 else followed.end.state)


def test_the_same_trial_takes_the_same_course_and_another_one_another() -> None:
    assert Followed(group(), trial()).said == Followed(group(), trial()).said
    assert Followed(group(), trial()).now != Followed(group(), trial(number=4)).now


def test_an_error_falls_with_images_and_is_one_network_s_own() -> None:
    of, child = group(), replace(trial(), morphisms=(Widen("stage1.block1.1.conv", 8, 1),))
    errors = [of.error(Learnt(SEED, examples)) for examples in (0, 1_000, 100_000, 10**9)]
    assert errors[0] == pytest.approx(0.9)
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] > 0.0
    wider = Learnt(SEED, 1_000).child(child, LAPTOP.spread)
    assert wider.examples == 1_000
    assert of.error(wider) != of.error(Learnt(SEED, 1_000))


def test_text_has_a_law_of_errors_of_text() -> None:
    text = load_preset("text")
    seed = resolve_seed(text.seed_architecture, (text.data.size,), text.data.classes)
    of = pretended_group(LAPTOP, text, seed, (1,))
    first, last = (of.error(Learnt(seed, windows)) for windows in (0, 10**9))
    assert first == pytest.approx(1.0)
    assert last == pytest.approx(LAPTOP.errors.language.floor, rel=0.05)
    assert last > 3 * LAPTOP.errors.images.floor


def test_ranks_share_a_step_and_pay_for_the_gradients() -> None:
    alone, eight = (group(ranks=ranks).step_seconds(Learnt(SEED), 400) for ranks in (1, 8))
    assert alone / 8 < eight < alone


@pytest.mark.parametrize(("devices", "spread"), [(2, 0.02), (8, 0.05), (64, 0.3)])
def test_a_step_waits_for_the_slowest_device(devices: int, spread: float) -> None:
    """As drawn, to within the error of so many draws."""
    drawn = np.exp(np.random.default_rng(1).normal(0.0, spread, (4000, devices)))
    assert slowest(devices, spread) == pytest.approx(drawn.max(axis=1).mean() / drawn.mean(), rel=0.01)
    assert slowest(devices, 0.0) == slowest(1, spread) == 1.0, "exactly: older models stay as they were"
    alone, uneven = group(), replace(LAPTOP, spread=replace(LAPTOP.spread, step=spread))
    several = replace(alone, ranks=devices, assumptions=replace(LAPTOP, group=AllReduce(1e24, 0.0, 0.0)))
    slower = replace(several, assumptions=replace(uneven, group=several.assumptions.group))
    ratio = slower.step_seconds(Learnt(SEED), 50) / several.step_seconds(Learnt(SEED), 50)
    assert ratio == pytest.approx(slowest(devices, spread))


def test_clocks_fall_with_heat_in_training_and_validation() -> None:
    """By the stated share, of which 63 % is lost in the stated time since the devices were ready."""
    cold = replace(group(), ready=7.0)
    hot = replace(cold, assumptions=replace(LAPTOP, heat=Heat(0.2, 60.0)))
    for begins, rate in ((7.0, 1.0), (67.0, 1 - 0.2 * (1 - exp(-1))), (1e6, 0.8)):
        was, becomes = (PretendedTrial(each, trial(), 0, Learnt(SEED)) for each in (cold, hot))
        assert becomes.train_seconds(5, begins) == pytest.approx(was.train_seconds(5, begins) / rate)
        assert becomes.validate_seconds(begins) == pytest.approx(was.validate_seconds(begins) / rate)
    assert cold.longer(1e6) == 1.0, "exactly"


@pytest.mark.parametrize(
    ("hosts", "size", "spread", "bytes_per_second", "hops"),
    [
        ("aaabbccdd", 2, False, 1000.0, 0),  # within a node
        ("aaabbccdd", 4, False, 400.0, 4),  # two neighbours below one switch
        ("aaabbccdd", 8, False, 100.0, 8),  # all nodes, below two switches
        ("aaabbccdd", 2, True, 50.0, 4),  # half of what each of two distant nodes sends
    ],
)
def test_a_group_over_nodes_has_its_part_of_what_they_send(
    hosts: str, size: int, spread: bool, bytes_per_second: float, hops: int
) -> None:
    fabric = NodeNetwork(400.0, nodes_a_switch=2, oversubscription=4.0, hop_seconds=0.5)
    places = [place for place in layout(hosts, size, spread) if 1 in place.group]
    own = replace(LAPTOP, fabric=fabric, group=AllReduce(1000.0, 3.0, 0.0))
    found = replace(group(), assumptions=own, ranks=size, extent=GroupExtent.of(places, fabric))
    expected = 3.0 + 0.5 * hops + 2 * (size - 1) / size * 6000 / bytes_per_second
    assert found.all_reduce_seconds(6000) == pytest.approx(expected)


def test_a_network_is_as_fast_as_its_parent_and_a_little_more_or_less() -> None:
    """By its own draw, which is the same for the same architecture wherever it is trained."""
    wide = replace(trial(), morphisms=(Widen("stage1.block1.1.conv", 8, 1),))
    wider = replace(trial(), morphisms=(Widen("stage2.block1.1.conv", 16, 1),))
    spread = Spread(0.0, 0.0, network=0.1, lineage=0.5)
    child = Learnt(SEED).child(wide, spread)
    grandchild, both = child.child(wider, spread), (*wide.morphisms, *wider.morphisms)
    own = [Random(f"rate of {learnt.graph.key}").gauss(0.0, 0.1) for learnt in (child, grandchild)]
    assert child.rate_offset == own[0] != 0.0
    assert grandchild.rate_offset == pytest.approx(0.5 * own[0] + own[1])
    assert Learnt(SEED).child(replace(wide, morphisms=both), spread) == grandchild
    for seconds in (group().step_seconds, group().validate_seconds):
        usual = seconds(Learnt(grandchild.graph), 50)
        assert seconds(grandchild, 50) == pytest.approx(usual * exp(-grandchild.rate_offset))
    assert Learnt(SEED).child(wide, Spread(0.0, 0.0)).rate_offset == 0.0


# A file of assumptions says all of them

TEXT, RATE = assumptions_toml(LAPTOP), "5000000000.0"


def test_what_is_packaged_can_be_read_and_written(tmp_path: Path) -> None:
    assert assumption_names() == ["h100", "laptop"]
    for name in assumption_names():
        path = tmp_path / f"{name}.toml"
        path.write_text(assumptions_toml(assumed(name)), encoding="utf-8")
        assert assumed(str(path)) == assumed(name)


def with_change(old: str, new: str) -> None:
    Path("mine.toml").write_text(TEXT.replace(old, new) if old else TEXT + new, encoding="utf-8")
    assumed("mine.toml")


@pytest.mark.usefixtures("here")
def test_what_is_wrong_is_one_line(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("refused_assumptions.txt", globals())
    for wrong in ("[speed]\n" + TEXT, "x = " + "[" * 50_000):  # told by the parser of each Python
        with pytest.raises(ConfigError, match=r"^mine\.toml: .*$"):
            with_change(TEXT, wrong)


def test_a_ranked_run_can_be_pretended_without_its_images() -> None:
    config = with_overrides(load_preset("ranked"), {"training.format": "bf16"})
    assert unrankable(config, pretended_manifest(config)) == []
