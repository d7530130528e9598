"""Samples in the host's memory, and the answers of a network to them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import pytest
import torch

from aiperf.config import load_preset
from aiperf.data import load
from aiperf.data.splits import Split
from aiperf.device import Cpu, bind
from aiperf.inference.systems import AnsweringNetwork, QueuedSystem, SampleLibrary
from aiperf.parallel.parallel import Solo
from aiperf.training.built_trial import Rank
from aiperf.training.evaluation import evaluate
from nas.modules import Network
from nas.seeds import resolve_seed
from nas.weights import initial

PRESETS = ("digits", "text")


@cache
def part(preset: str) -> tuple[Rank, Network, Split]:
    """What a validation has: a network that learnt nothing, and few examples, in fp32."""
    config = load_preset(preset)
    data = load(config.data, torch.device("cpu"), 1)
    graph = resolve_seed(config.seed_architecture)
    network = Network(graph)
    network.load(initial(graph, 3))
    device = bind("cpu", 0)
    return Rank(device, data, replace(config.training, format="fp32"), Solo()), network, data.validation


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("wanted", [[0], [5, 2, 2, 7], range(20)])
def test_a_sample_is_the_example_at_its_place(preset: str, wanted: Sequence[int]) -> None:
    _, _, split = part(preset)
    examples, targets = (torch.cat(parts) for parts in zip(*split.sweep(3)))
    library = SampleLibrary(split)
    library.load(wanted)
    for places in (list(wanted), list(wanted)[::-1], list(wanted)[:1]):
        seen, asked = library.samples(places)
        assert torch.equal(seen, examples[places])
        assert torch.equal(asked, targets[places])
    assert torch.equal(library.targets(), targets)


@pytest.mark.contract
@pytest.mark.parametrize("preset", PRESETS)
def test_answers_add_up_to_what_a_validation_finds(preset: str) -> None:
    rank, network, split = part(preset)
    found, _ = evaluate(rank, network, split)
    library, answering = SampleLibrary(split), AnsweringNetwork(network, torch.device("cpu"))
    library.load(range(library.total))
    answers = {}
    with torch.inference_mode():
        for start in range(0, library.total, 50):
            places = list(range(start, min(start + 50, library.total)))
            rows = answering(library.samples(places)).tolist()
            answers.update({place: tuple(row) for place, row in zip(places, rows)})
    tally = answering.tally(answers, library.targets())
    assert tally.of == split.num_examples == len(answers)
    assert tally.agrees(found)


def test_a_server_tries_no_kernels_out_for_each_number_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = list[str]()
    monkeypatch.setattr(Cpu, "untuned", lambda self: nullcontext(entered.append("untuned")))
    QueuedSystem(None, None, None, bind("cpu", 0), "fp32", 1, True).close()  # type: ignore[arg-type]
    assert entered == ["untuned"]
