"""The compiled engine: torch.compile, region by region, so that equal blocks are compiled only once.

Compiled code is reused by later trials of the process, and by later runs from inductor's own cache of files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from aiperf.device import Device
from aiperf.device.dynamo import CACHE
from aiperf.engines.engine import Engine, Passes
from aiperf.host import variables
from aiperf.host.other_users import OTHERS_WRITE, NotOurs, make_private, temporary_folder
from nas.modules import Network, Step

HEAVY = (nn.Conv2d, nn.Linear)
"""Layers with products, for which a region is worth its compilation."""
OPENING = (*HEAVY, nn.LayerNorm, nn.RMSNorm)
"""Layers with which a region may begin. A block of a text network begins with a norm: after the norm, both
the residual stream and the normalised one are still read, so the network cannot be cut there."""
DIFFERENT_REGIONS = 1024
"""Number of compiled regions that torch keeps, by code and shapes. Its own limit of 8 is meant for a function
that a person wrote, whereas a search makes new blocks in every trial."""


class Compiled(Engine):
    """Runs the code that torch.compile generates for each region, forward and backward. It takes seconds to
    minutes to be ready, so it pays for long trials only."""

    name: ClassVar[str] = "compiled"
    is_made_anew: ClassVar[bool] = True

    def __init__(self, passes: Passes) -> None:
        super().__init__(passes)
        _allow_many()
        os.environ[CACHE] = str(_cache())
        self.bare = Regions(passes.network)
        for region in self.bare:
            assert isinstance(region, Region)
            # Whole graphs only: if a region cannot be compiled, torch must raise, and not run parts eagerly.
            region.compile(fullgraph=True, dynamic=False)
        self.module = self.bare
        self._shape = torch.Size()

    @classmethod
    def why_not(cls, device: Device) -> str:
        """Inductor generates C++ for a CPU and Triton for all other devices, so it needs their compilers."""
        if device.kind == "cpu" and not any(map(shutil.which, compilers(os.environ))):
            return f"no C++ compiler is installed here ({', '.join(compilers(os.environ))})"
        if device.kind != "cpu" and find_spec("triton") is None:
            return "the package triton is not installed here"
        try:
            _cache()
        except NotOurs as error:
            return f"{error}; set {CACHE} to a folder of your own"
        except OSError as error:
            return f"{error.filename}: {error.strerror}; set {CACHE} to a folder that can be written"
        return ""

    def prepare(self, examples: Tensor, labels: Tensor) -> None:
        self._shape = examples.shape
        self.step(examples, labels)

    def step(self, examples: Tensor, labels: Tensor) -> Tensor:
        if examples.shape != self._shape:  # a single smaller batch is not worth a compilation
            with _not_compiled():
                return super().step(examples, labels)
        return super().step(examples, labels)


def _cache() -> Path:
    """The folder of inductor's cache, to which no other user can write. Raises NotOurs, or OSError if it
    cannot be created."""
    stated = variables.raw(os.environ, CACHE)
    return make_private(Path(stated) if stated else temporary_folder() / "torchinductor", OTHERS_WRITE)


def _allow_many() -> None:
    """Raises torch's limits on compiled functions, and makes compiled dropout use torch's own random numbers,
    so that a compiled step drops the same values as an eager one."""
    torch._dynamo.config.recompile_limit = DIFFERENT_REGIONS
    torch._dynamo.config.accumulated_recompile_limit = DIFFERENT_REGIONS
    torch._inductor.config.fallback_random = True


def _not_compiled() -> AbstractContextManager[None]:
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance


class Region(nn.Module):
    """Consecutive layers of a network with their own numbering of places; place 0 is the input."""

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
    """The network as a sequence of its regions, which share the network's tensors."""

    def __init__(self, network: Network) -> None:
        super().__init__(*[Region(steps) for steps in cut(network)])


def cut(network: Network) -> Iterator[list[Step]]:
    """The steps of each region. A region that contains products ends where only one tensor is still needed
    and the next layer may begin a region. So a residual block is one region (two in a text network), and so
    is a convolution with its batch norm and activation."""
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


def compilers(environment: Mapping[str, str]) -> list[str]:
    """Commands of C++ compilers, the user's first."""
    return list(filter(None, (variables.word(environment, "CXX"), "g++", "clang++")))
