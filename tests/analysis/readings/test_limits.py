"""Ceilings as `peak` writes them and as a run's journal has them, what they allow a network, and which share
of them is usual, by the table of the program and by a site's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aiperf.journal.columns import Worked
from aiperf.journal.events import CeilingMeasured, LegBegan, LegEnded, RankReady, Released
from aiperf.journal.replay import Replay
from aiperf.rules.measurements import mean_ceiling
from aiperf.score.example_counts import counted
from aiperf.score.score import score
from aiperf.wire.reports import Ceiling, Processor, Rate
from analysis.readings.devices import ceiling_text, roofline_share_text
from analysis.readings.limits import (
    Limits,
    Machine,
    Record,
    limits_of,
    machine_json,
    machine_text,
    read_limits,
)
from analysis.readings.references import kind_of_machine, references, usual_text
from analysis.readings.roofline import example_seconds, intensity, roofline, roofline_text
from nas.graph import Graph, Node
from nas.layers import BatchNorm, Conv2d, Dense, GlobalPool, ReLU
from nas.ops import TENSOR_OPS
from nas.seeds import resnet50
from nas.text_seeds import TEXT_SEEDS, gpt_4x128
from tests.aiperf.rules.forged import each
from tests.analysis.readings.test_outliers import measured
from tests.journals import Scene, replayed, told, within
from tests.tables import ComesTo

MACHINE = Machine(
    device="NVIDIA H200",
    memory_bytes=140 << 30,
    software={"torch": "2.13.0"},
    products=(
        Record("bf16", 4096, Rate(6.5e14, 6.4e14, 0.004)),
        Record("bf16", 8192, Rate(7.9e14, 7.7e14, 0.012)),
        Record("fp32", 8192, Rate(5.1e13, 5.0e13, 0.001)),
    ),
    copy=Rate(4.2e12, 4.1e12, 0.003),
    upload=Rate(5.5e10, 5.4e10, 0.01),
)
LIMITS = Limits("a device", "bf16", 1e14, 1e12)


def test_what_was_written_is_read_and_what_is_no_such_file_is_refused(
    here: Path, comes_to_what_was_read: ComesTo
) -> None:
    path = Path("peak.json")

    def read(text: str | None, formats: tuple[str, ...] = ("bf16", "fp16")) -> Limits:
        if text is not None:
            path.write_text(text)
        return read_limits(path, formats)

    names = {"read": read, "machine_json": machine_json, "math": math}
    comes_to_what_was_read("read_limits.txt", {**globals(), **names})


def test_the_limits_of_a_run_are_the_median_of_its_ranks() -> None:
    found = limits_of(measured([7.0e14, 7.2e14, 5.0e14], copies=[4e12, 3e12, 5e12]))
    assert found == Limits("NVIDIA H200", "bf16", 7.0e14, 4e12)


def test_the_ceiling_of_a_run_is_weighted_by_the_spans_of_its_legs() -> None:
    """Four seconds of two devices at 1e14, then twelve of four at 2e14."""
    replay = measured([1e14, 1e14])
    assert ceiling_text(replay, score(replay, {})) == "unknown (not measured in this run)"
    replay.add(5.0, Released(None))
    replay.add(9.0, LegEnded("trials", 9.0))
    told_of_it = ceiling_text(replay, score(replay, {}))
    assert told_of_it == "0.0 % of 200.0 TOPS, the fastest work seen before the span"
    for t, event in told(Scene(groups=4)):
        if isinstance(event, LegBegan):
            replay.add(t, replace(event, index=1))
        elif isinstance(event, RankReady):
            replay.add(t, event)
    rate = Rate(2e14, 2e14, 0.0)
    for rank in (1, 2, 3, 4):
        found = Ceiling(rank, f"node{rank}", "NVIDIA H200", "bf16", 8192, rate, rate)
        replay.add(4.0, CeilingMeasured(found))
    replay.add(5.0, Released(None))
    replay.add(17.0, LegEnded("trials", 17.0))
    assert replay.faults == []
    assert mean_ceiling(replay) == pytest.approx((4 * 2e14 + 12 * 8e14) / 16)


SMALL = Graph(
    (3, 8, 8),
    (
        Node("conv", Conv2d(16), ("input",)),
        Node("bn", BatchNorm(), ("conv",)),
        Node("relu", ReLU(), ("bn",)),
        Node("pool", GlobalPool(), ("relu",)),
        Node("dense", Dense(10), ("pool",)),
    ),
)


def test_bytes_and_times_of_a_network_that_is_small_enough_to_do_by_hand() -> None:
    conv, bn, relu, pool, dense = roofline(SMALL, LIMITS, batch_size=32)
    weights = 16 * 3 * 3 * 3
    # The first layer needs no gradient of the image: forward reads x and writes y; backward reads dy and x.
    assert conv.bytes == (192 + 1024 + 1024 + 192) * 2 + 3 * weights * 4 / 32
    assert conv.tensor_operations == 2 * 2 * weights * 64
    # x and y, then dy and x read and dx written.
    assert bn.bytes == (1024 + 1024 + 1024 + 1024 + 1024) * 2 + 3 * 32 * 4 / 32
    assert bn.tensor_operations == 0
    assert relu.bytes == 5 * 1024 * 2
    assert pool.bytes == (1024 + 16 + 16 + 1024 + 1024) * 2
    assert dense.tensor_operations == 3 * 2 * 160
    for layer in (conv, bn, relu, pool, dense):
        assert layer.compute_seconds == layer.tensor_operations / 1e14
        assert layer.memory_seconds == layer.bytes / 1e12
        assert layer.seconds == max(layer.compute_seconds, layer.memory_seconds)
    assert bn.bound == "memory"


def test_the_intensity_of_a_network_is_that_of_its_layers() -> None:
    """The intensity from the sums that a journal gives equals that of the graph, layer by layer."""
    for graph in (SMALL, resnet50((3, 224, 224), 1000), gpt_4x128((128,), 256)):
        layers = roofline(graph, LIMITS, 32)
        expected = sum(layer.tensor_operations for layer in layers) / sum(layer.bytes for layer in layers)
        assert intensity(counted(graph), LIMITS.format, 32) == pytest.approx(expected)
    assert intensity(counted(SMALL), "auto", 32) is None
    assert intensity(replace(counted(SMALL), moved=None), "bf16", 32) is None


def test_the_layers_have_all_tensor_operations_of_the_network() -> None:
    graph = resnet50((3, 224, 224), 1000)
    layers = roofline(graph, LIMITS, 256)
    assert sum(layer.tensor_operations for layer in layers) == graph.cost.train.price(TENSOR_OPS)
    slow, fast, endless = (
        example_seconds(graph, Limits("a device", "bf16", 1e15, bandwidth), 256)
        for bandwidth in (1e12, 4e12, 1e30)
    )
    assert slow > fast > endless == pytest.approx(24_299_077_632 / 1e15)


def test_what_is_shown_is_as_it_was_read(as_it_was_read: Callable[[str, str], None]) -> None:
    """The rates of a machine, and what they allow a network of images and one of text."""
    texts = [
        machine_text(MACHINE),
        roofline_text(SMALL, LIMITS, 32),
        roofline_text(TEXT_SEEDS["llama-1x64"](), LIMITS, 32),
    ]
    as_it_was_read("\n----\n".join(texts) + "\n", "limits.txt")


def test_a_best_network_that_was_not_trained_has_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.readings.devices.limits_of", lambda replay: LIMITS)
    nothing, best = (
        Worked(np.zeros(1, int), np.zeros(1)),
        SimpleNamespace(attempts=[SimpleNamespace(index=0)]),
    )
    run: Any = SimpleNamespace(best=best, worked=lambda: nothing)
    assert roofline_share_text(run) == ""


ENTRY = """\
[[reference]]
preset = "simulated"
kind = "2 × NVIDIA H200"
minutes = 0.05
least = 0.38
greatest = 0.441
runs = 5
processor = "NVIDIA H200"
commit = "0123abc"
date = "2026-11-26"
conditions = "idle"
"""
OTHER, DIGITS = ENTRY.replace("0.05", "2.0"), ENTRY.replace('"simulated"', '"digits"')
TIMED = told(Scene(minutes=0.05))
RUN = replayed(TIMED)
EARLY = replayed(each(LegEnded, lambda event: replace(event, reason="trials"))(TIMED))
AMX = Processor("x86_64", 2, 3e9, ("avx2", "avx512f", "avx512_bf16", "amx_bf16"))
AVX2 = replace(AMX, flags=("avx2",))


def of_preset(name: str) -> Replay:
    return replayed(told(Scene(minutes=0.05, changes=(("preset", name),))))


def kind(*processors: Processor | None) -> str:
    """The kind of a machine whose ranks have these processors, on a host each."""
    ready = iter(processors)
    return kind_of_machine(replayed(each(RankReady, lambda e: within(e, processor=next(ready)))(TIMED)))


def test_what_is_usual_is_said_where_it_is_known(here: Path, comes_to_what_was_read: ComesTo) -> None:
    """A kind of machine is what bounds its speed."""

    def usual(text: str, run: Replay = RUN) -> str:
        Path("references.toml").write_text(text)
        return usual_text(run)

    comes_to_what_was_read("references.txt", {**globals(), "usual": usual})


def test_the_references_of_the_program_can_be_read(here: Path) -> None:
    assert all(each.commit and each.date and each.conditions for each in references())
    assert usual_text(RUN) == ""
