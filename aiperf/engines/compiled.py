"""The compiled engine: torch.compile of the whole network.

Inductor's own cache of files has the code of equal kernels for later trials and runs. Smaller parts, such as
the blocks, would be compiled less often, but each costs up to a millisecond per step on a CPU: steps of a
grown network for the digits took 1.9 times as long as those of the whole, and of text 1.1 times.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from aiperf.device import Device
from aiperf.device.dynamo import CACHE
from aiperf.engines.engine import Engine, Passes
from aiperf.host import variables
from aiperf.host.other_users import OTHERS_WRITE, NotOurs, make_private, temporary_folder

DIFFERENT_NETWORKS = 1024
"""Number of compiled networks that torch keeps. Its own limit of 8 is meant for a function that a person
wrote, whereas a search makes a new network in every trial."""


class Compiled(Engine):
    """Runs the code that torch.compile generates for the network, forward and backward. It takes seconds to
    minutes to be ready, so it pays for long trials only. Steps of one shape are compiled; a last smaller
    batch of an epoch is eager."""

    name: ClassVar[str] = "compiled"
    is_made_anew: ClassVar[bool] = True

    def __init__(self, passes: Passes) -> None:
        super().__init__(passes)
        _allow_many()
        os.environ[CACHE] = str(_cache())
        # Whole graphs only: if something cannot be compiled, torch must raise, and not run parts eagerly.
        # `dynamic=False`: code for one fixed shape, as all batches but the last of an epoch have it.
        compiled = torch.compile(passes.network, fullgraph=True, dynamic=False)
        self.bare = self.module = cast(nn.Module, compiled)
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
    cannot be created. Inductor loads compiled code from it."""
    stated = variables.raw(os.environ, CACHE)
    return make_private(Path(stated) if stated else temporary_folder() / "torchinductor", OTHERS_WRITE)


def _allow_many() -> None:
    """Raises torch's limits on compiled functions, and makes compiled dropout use torch's own random numbers,
    so that a compiled step drops the same values as an eager one."""
    torch._dynamo.config.recompile_limit = DIFFERENT_NETWORKS
    torch._dynamo.config.accumulated_recompile_limit = DIFFERENT_NETWORKS
    torch._inductor.config.fallback_random = True


def _not_compiled() -> AbstractContextManager[None]:
    """A context in which the compiled module runs eagerly, without being compiled for another shape."""
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance


def compilers(environment: Mapping[str, str]) -> list[str]:
    """Commands of C++ compilers, the user's first. They need not be installed."""
    return list(filter(None, (variables.word(environment, "CXX"), "g++", "clang++")))
