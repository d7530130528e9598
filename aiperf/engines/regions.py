"""A network cut into regions: parts with one tensor in and one out, so that equal blocks are equal code."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from nas.modules import Network, Step

HEAVY = (nn.Conv2d, nn.Linear)
OPENING = (*HEAVY, nn.LayerNorm, nn.RMSNorm)
"""What a region may begin with. A block of text begins with a norm: behind it the residual stream and the
normalised one are both read, and no place to cut would be left."""


class Region(nn.Module):
    """Some layers in a row, with places of their own: 0 is what goes in."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        modules = [module for module, *_ in steps if isinstance(module, nn.Module)]
        self.layers = nn.ModuleList(modules)
        source = steps[0][1][0]
        number = {source: 0} | {place: index for index, (_, _, place, _) in enumerate(steps, start=1)}
        self.reads = tuple(tuple(number[place] for place in reads) for _, reads, _, _ in steps)

    def forward(self, examples: Tensor) -> Tensor:
        values = [examples]
        for module, reads in zip(self.layers, self.reads):
            values.append(module(*[values[index] for index in reads]))
        return values[-1]


class Regions(nn.Sequential):
    """The network as its regions, one after the other; the tensors are the network's own."""

    def __init__(self, network: Network) -> None:
        super().__init__(*[Region(steps) for steps in cut(network)])


def cut(network: Network) -> Iterator[list[Step]]:
    """The steps of each region. A region with products ends where one tensor alone is still read, and a layer
    comes next that may begin one: a residual block is one region, of text two, and so is a convolution with
    its batch norm and activation."""
    plan = network.plan
    alive, region = {0}, list[Step]()
    for step in plan:
        module, _, place, dead = step
        if len(alive) == 1 and isinstance(module, OPENING) and any(_is_heavy(each) for each, *_ in region):
            yield region
            region = []
        region.append(step)
        alive = (alive | {place}) - set(dead)
    yield region


def _is_heavy(module: object) -> bool:
    return isinstance(module, HEAVY)
