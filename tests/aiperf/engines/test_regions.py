"""A network as its regions computes what it computes, and equal blocks are equal regions."""

from __future__ import annotations

import pytest
import torch

from aiperf.engines.compiled import Region, Regions
from nas.modules import Network
from nas.seeds import resnet50
from tests.aiperf.engines.recording import batch_of, passes_of
from tests.nas.grown import grown


def regions_of(network: Network) -> list[Region]:
    return [region for region in Regions(network) if isinstance(region, Region)]


@pytest.mark.parametrize("seed", range(6))
def test_a_grown_network_and_its_regions_answer_alike(seed: int) -> None:
    network = passes_of(grown(seed, 12)).network
    examples, _ = batch_of(network.graph, 3)
    regions = Regions(network)
    assert torch.equal(regions(examples.clone()), network(examples.clone()))
    assert {id(each) for each in regions.parameters()} == {id(each) for each in network.parameters()}
    assert sum(len(region.layers) for region in regions_of(network)) == len(network.graph.nodes)


def test_the_blocks_of_a_residual_network_are_regions_and_the_equal_ones_are_equal() -> None:
    network = Network(resnet50((3, 64, 64), 10))
    shapes = [
        (region.reads, tuple(tuple(each.shape) for each in region.parameters()))
        for region in regions_of(network)
    ]
    # Stem, 3 + 4 + 6 + 3 blocks, and the dense layer. In each stage the first block differs,
    # and the last block of all ends with the pool.
    assert len(shapes) == 1 + 16 + 1
    assert len(set(shapes)) == 1 + 2 * 4 + 1 + 1
