"""The bound of element-wise work, and kernels that mostly see padding: runs of own seeds, which could have
any rate if products alone were bounded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.journal.events import Opened
from aiperf.rules.rule import Outcome
from aiperf.wire.reports import Processor
from nas.layers import BatchNorm, Conv2d, Dense, GlobalPool
from nas.record import graph_to_json
from tests.aiperf.rules.forged import each, found, together, with_config, with_ready, worked
from tests.journals import OPS_PER_SECOND, Scene, Timed, told
from tests.nas.graphs import chain
from tests.tables import ComesTo

ZEN_3 = Processor("x86_64", logical=8, top_hertz=0.0, flags=("avx", "avx2", "fma", "sse2"))


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
