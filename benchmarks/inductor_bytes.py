"""Counts the bytes that PyTorch's compiler would move in a training step of ResNet-50, without a device.

    python -m benchmarks.inductor_bytes

prints a column of the table of bytes in docs/performance.md, in megabytes per image. Inductor writes its
kernels in Triton for an H200 that need not be here; torch may be built for CPUs alone. Nothing is compiled
further or run. An argument of a kernel counts once if the kernel's code reads it, and once if it writes it.

Forward and backward pass are traced for the CPU, because such a torch cannot differentiate on a device that
it was not built for; then both graphs are moved to the device and given to Inductor.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import triton
from torch import Tensor
from torch._dynamo import device_interface
from torch._functorch import config as aot
from torch._inductor import config
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch.utils._pytree import tree_map
from torch.utils._triton import has_triton
from triton.backends.compiler import GPUTarget

from aiperf.device.dynamo import CACHE
from nas.graph import Graph
from nas.layers import Conv2d
from nas.modules import Network
from nas.seeds import resnet50

BATCH = 256
"""Images of a step, as in the other columns."""
DEVICE = torch.device("cuda", 0)
PROCESSORS = {"multi_processor_count": 132, "regs_per_multiprocessor": 65536, "warp_size": 32}
THREADS = {"max_threads_per_multi_processor": 2048, "max_threads_per_block": 1024}
H200 = SimpleNamespace(name="NVIDIA H200", gcnArchName="", major=9, minor=0, **PROCESSORS, **THREADS)
"""What Inductor asks of a device: NVIDIA H100 Tensor Core GPU architecture white paper, 2022; an H200 has the
same processors."""
ANSWERS = {
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "device": nullcontext(),
    "get_device_properties": H200,
    "get_device_capability": (9, 0),
    "is_bf16_supported": True,
    "get_rng_state": torch.zeros(1),
    "set_rng_state": None,
}
"""What torch.cuda says of it."""


class _Compiled(Exception):
    """Ends the step before it would run."""


@dataclass(frozen=True)
class Moved:
    """Bytes of a step for each image."""

    convolutions: float
    """Their images in and out, once forward and twice backward."""
    forward: float
    """What Inductor's kernels of the forward pass read and write, but for those of `pools`."""
    backward: float
    pools: float
    """The same of kernels that compute a part of a maximum pool, which the other columns do not count."""

    @property
    def kernels(self) -> float:
        return self.forward + self.backward

    def rows(self) -> Iterator[tuple[str, float]]:
        """By the names of the page."""
        yield "convolutions: images in and out, forward and twice backward", self.convolutions
        yield "batch norm with addition and ReLU, mean of each channel, partial sums", self.kernels
        yield "all", self.convolutions + self.kernels


def moved(graph: Graph, batch_size: int) -> Moved:
    passes = kernels(graph, batch_size)
    pools = [sum(size for name, size in each.items() if "max_pool" in name) for each in passes]
    forward, backward = (each.total() - pool for each, pool in zip(passes, pools))
    numbers = sum(
        torch.Size(graph.shapes[name]).numel()
        for node in graph.nodes
        if isinstance(node.layer, Conv2d)
        for name in (node.inputs[0], node.name)
    )
    return Moved(3 * 2.0 * numbers, forward / batch_size, backward / batch_size, sum(pools) / batch_size)


def kernels(graph: Graph, batch_size: int) -> list[Counter[str]]:
    """Bytes that the kernels of the forward pass in bf16 read and write, by the name of the kernel, and those
    of the backward pass."""
    found: list[Counter[str]] = []
    arguments: list[tuple[str, str, int]] = []
    call = TritonKernel.call_kernel

    def called(kernel: Any, name: str, *others: Any, **named: Any) -> None:
        definitions, buffers, _, _ = kernel.args.python_argdefs()
        for definition, buffer in zip(definitions, buffers):
            size = int(V.graph.get_numel(buffer)) * V.graph.get_dtype(buffer).itemsize
            arguments.append((name, definition.name, size))
        call(kernel, name, *others, **named)

    def generated(lowering: Any) -> SimpleNamespace:
        code = lowering.codegen()[0].value
        bodies = dict(re.findall(r"^def (triton_\w+)\((.*?)^'''", code, re.MULTILINE | re.DOTALL))
        found.append(Counter())
        for name, argument, size in arguments:
            accesses = set(re.findall(rf"tl\.(load|store|atomic_add)\({argument} \+", bodies[name]))
            found[-1][name] += size * (len(accesses) + ("atomic_add" in accesses))
        arguments.clear()
        return SimpleNamespace(call=mock.Mock(side_effect=_Compiled))

    def compiled(module: torch.fx.GraphModule, inputs: Any, **named: Any) -> Any:
        for node in module.graph.nodes:
            if "val" in node.meta:
                node.meta["val"] = tree_map(_on_device, node.meta["val"])
            if "device" in node.kwargs:
                node.update_kwarg("device", DEVICE)
        with _pretended(called, generated):
            return compile_fx_inner(module, tree_map(_on_device, inputs), **named)

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        return compile_fx(module, inputs, inner_compile=compiled)

    network = Network(graph)
    network.place(torch.device("cpu"), torch.channels_last)
    images = torch.empty(batch_size, *graph.input, dtype=torch.bfloat16)
    step = torch.compile(network, backend=backend, fullgraph=True, dynamic=False)
    with (
        TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {CACHE: folder}),
        config.patch(fx_graph_cache=False, compile_threads=1),
        aot.patch(enable_autograd_cache=False, force_non_lazy_backward_lowering=True),
        torch.autocast("cpu", torch.bfloat16),
    ):
        try:
            step(images.contiguous(memory_format=torch.channels_last))
        except _Compiled:
            return found
    raise AssertionError("the step ran")


def _on_device(value: object) -> object:
    """The tensor without numbers, on the device."""
    if not isinstance(value, Tensor):
        return value
    with value.fake_mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)


@contextmanager
def _pretended(called: Callable[..., None], generated: Callable[..., SimpleNamespace]) -> Iterator[None]:
    """Makes torch and Triton find the device, whose convolutions leave the channels last as cuDNN's do if
    they are given so; and Inductor end with its code."""
    with ExitStack() as stack:
        for name, answer in ANSWERS.items():
            for place in (torch.cuda, device_interface.CudaInterface):
                if hasattr(place, name):
                    stack.enter_context(mock.patch.object(place, name, return_value=answer))
        last = mock.Mock(return_value=torch.channels_last)
        stack.enter_context(mock.patch.object(torch._C, "_conv_determine_backend_memory_format", last))
        stack.enter_context(mock.patch.dict(device_interface.caching_worker_device_properties, cuda=[H200]))
        stack.enter_context(mock.patch.object(TritonKernel, "call_kernel", called))
        stack.enter_context(mock.patch.object(GraphLowering, "compile_to_module", generated))
        driver = SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32))
        stack.enter_context(mock.patch.object(triton.runtime.driver, "_active", driver))
        has_triton.cache_clear()
        stack.callback(has_triton.cache_clear)
        yield


def main() -> None:
    found = moved(resnet50((3, 224, 224), 1000), BATCH)
    print("| MB per image | compiled by Inductor |\n|-|-|")
    for name, size in found.rows():
        print(f"| {name} | {size / 1e6:.0f} |")
    print(f"of the kernels: forward {found.forward / 1e6:.0f} MB, backward {found.backward / 1e6:.0f} MB")
    print(f"left out: kernels with a part of the maximum pool, {found.pools / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
