"""Compiles every kernel in Triton that a step of some networks launches, for devices that need not be here.

    python -m benchmarks.triton_kernels

prints for each target the largest number of registers, spilled bytes or registers, bytes of shared memory,
and how many of the accesses to images or sequences that can be vectors of 16 bytes are. It ends with 1 if a
kernel spills, takes more registers or shared memory than it may, or accesses these in smaller pieces; its
line then ends with what is wrong. Nothing is run: the networks make their steps with launches that are only
recorded. Triton brings all compilers; no device or driver is needed.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from aiperf.device import Cpu
from aiperf.engines.fused import triton_launch
from aiperf.engines.fused.fusing import fuse
from aiperf.engines.fused.triton_backend import InTriton
from aiperf.engines.fused.triton_launch import ALIGNED, OPTIONS
from aiperf.measuring.training_step import batch
from nas.graph import Graph
from nas.layers import Embedding, RMSNorm
from nas.modules import Network
from nas.morphisms import SqueezeExcite
from nas.seeds import residual, resnet50
from nas.text_seeds import Sketch, llama
from nas.weights import initial

KERNELS = triton_launch.kernels()
CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
"""Where each Triton since 3.2 has it."""

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx90a": GPUTarget("hip", "gfx90a", 64),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
ONE_OF_EACH = ("sm_90", "gfx942")
"""One target of each vendor, for what is not worth the time of compiling it for all."""
OF_POINTERS = {"gfx942": [["tt.pointer_range", 32]]}
"""What Triton knows of each pointer beside its alignment. For AMD, since 3.6, it compiles accesses of another
kind where a tensor is smaller than 2 GiB; so it does here for one target, for the other as of larger ones."""
MOST_REGISTERS = 128
"""Registers of a thread. With 64 K registers, and 128 threads a program, four programs run on a
multiprocessor at once; on AMD's devices four waves on a SIMD."""
MOST_BY_ELEMENT = 200
"""The same where 4 does not divide the channels: each element of a row then has its own address. Two programs
run at once. No morphism proposes such a width."""
WHOLE = (
    *("images", "residual", "out", "first", "second", "third", "kept", "gradient"),
    *("values", "turns", "z", "x", "to_z", "to_x"),
)
"""Arguments that are whole images or sequences, unless they are of `mean` and its gradient."""
VECTOR_BYTES, WARPS = 16, 4
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.uint8: "*u8"}


@dataclass(frozen=True)
class Launch:
    """A kernel with all that decides its code."""

    kernel: str
    signature: tuple[tuple[str, str], ...]
    """Type of each argument, by name."""
    aligned: tuple[str, ...]
    """Pointers that are divisible by 16. Triton looks at each launch, and compiles for those that are not."""
    constants: tuple[tuple[str, Any], ...]
    warps: int

    @property
    def most_registers(self) -> int:
        """Registers of a thread that it may take."""
        return MOST_BY_ELEMENT if dict(self.constants).get("UNIT", ALIGNED) < 4 else MOST_REGISTERS

    @property
    def most_shared(self) -> int:
        """Bytes of shared memory that it may take: a number in fp32 for each element of a tile, or of the
        sums that are read at once. That is 8 KiB, and 32 KiB where a tile is a row of the widest."""
        constants = dict(self.constants)
        return 4 * constants.get("ROWS", constants.get("PARTS")) * constants["CHANNELS"]

    def vectors(self, lanes: int) -> int:
        """Accesses of 16 bytes by which a thread reads and writes its part of a tile, with `lanes` threads a
        warp: none of what is not aligned by as much, or is not whole images or sequences."""
        constants = dict(self.constants)
        if "UNIT" not in constants:
            return 0
        small = {"mean": "out", "mean_gradient": "gradient"}.get(self.kernel)
        whole = {name for name in WHOLE if name in self.aligned and name != small}
        types = [kind for name, kind in self.signature if name in whole]
        tile = constants["ROWS"] * constants["CHANNELS"]
        accesses = 2 if self.kernel == "turn" else 1  # of the halves of each head
        sizes = [size for size in map(_bytes, types) if constants["UNIT"] * size % VECTOR_BYTES == 0]
        return sum(accesses * tile * size // (self.warps * lanes * VECTOR_BYTES) for size in sizes)


@dataclass(frozen=True)
class Footprint:
    """What a compiled kernel needs of a multiprocessor."""

    registers: int
    spilled: int
    shared: int
    wide: int
    """Loads and stores of 16 bytes in its code."""

    def faults(self, launch: Launch, lanes: int) -> Iterator[str]:
        """What it does that the kernel of this launch may not, with `lanes` threads a warp."""
        if self.spilled:
            yield "spills"
        if self.registers > launch.most_registers:
            yield f"more than {launch.most_registers} registers"
        if self.shared > launch.most_shared:
            yield f"more than {launch.most_shared} bytes of shared memory"
        if self.wide < launch.vectors(lanes):
            yield "narrow accesses"


class OnCpu(InTriton):
    """Lets tensors of a CPU reach the kernels."""

    kind = "cpu"


@dataclass
class Recorder:
    """Stands for the kernels by name: records the launches and does nothing."""

    launches: set[Launch] = field(default_factory=set)

    def __getitem__(self, name: str) -> Mapping[object, Callable[..., None]]:
        kernel = KERNELS[name]

        def launch(*given: Any, num_warps: int = WARPS, **constants: Any) -> None:
            types, aligned = {}, []
            constants = {key: value for key, value in constants.items() if key not in OPTIONS}
            for argument, value in zip(kernel.arg_names, given):
                types[argument] = _type(value)
                if value is None:
                    constants[argument] = None
                if isinstance(value, Tensor) and _is_aligned(value):
                    aligned.append(argument)
            types |= dict.fromkeys(constants, "constexpr")
            decisive = tuple(types.items()), tuple(aligned), tuple(sorted(constants.items()))
            self.launches.add(Launch(name, *decisive, num_warps))

        return _Anywhere(launch)


class _Anywhere(dict[object, Any]):
    """The launch on a grid of any size."""

    def __init__(self, launch: Callable[..., None]) -> None:
        super().__init__()
        self.launch = launch

    def __missing__(self, grid: object) -> Callable[..., None]:
        return self.launch


def _bytes(kind: str) -> int:
    """Bytes of an element of a pointer's type."""
    return torch.finfo({pointer: format for format, pointer in TYPES.items()}[kind]).bits // 8


def _is_aligned(tensor: Tensor) -> bool:
    """Whether it would be on a device, where torch aligns all memory at 512 bytes."""
    return tensor.storage_offset() * tensor.element_size() % VECTOR_BYTES == 0


def _type(value: object) -> str:
    if isinstance(value, Tensor):
        return TYPES[value.dtype]
    return {float: "fp32", int: "i32", type(None): "constexpr"}[type(value)]


def launches(graph: Graph, format: torch.dtype) -> set[Launch]:
    """What a training step and an evaluation of the network launch."""
    recorder, network = Recorder(), Network(graph)
    network.load(initial(graph, 1))
    network.place(torch.device("cpu"), torch.channels_last)
    fuse(network, OnCpu())
    examples, _ = batch(graph, Cpu.bind(0), 2)
    with mock.patch.object(triton_launch, "kernels", return_value=recorder):
        with torch.autocast("cpu", format, enabled=format != torch.float32):
            loss = network(examples).float().mean()
        loss.backward()
        network.eval()
        with torch.no_grad(), torch.autocast("cpu", format, enabled=format != torch.float32):
            network(examples)
    return recorder.launches


def networks() -> Iterator[tuple[str, Graph, torch.dtype, Collection[str]]]:
    """ResNet-50, a seed of `digits` with gates, a block of Llama, and the widest row, each with the targets
    that it is compiled for; and a seed with channels that 4 does not divide, so that the second half of the
    statistics of a batch norm is not aligned. Kernels do not depend on the sides of images or the length of
    sequences, so these are small."""
    block = llama((8,), 256, blocks=1, heads=12, groups=12, width=768, hidden=2048)
    for format in (torch.bfloat16, torch.float32, torch.float16):
        targets = ONE_OF_EACH if format == torch.float16 else TARGETS
        yield "ResNet-50", resnet50((3, 32, 32), 1000), format, targets
        yield "Llama 768 wide", block, format, targets
        yield "a wide RMS norm", wide_row(), format, targets
    yield "digits with gates", gated((4, 8, 16)), torch.bfloat16, TARGETS
    yield "6 and 9 channels", gated((6, 9)), torch.bfloat16, ONE_OF_EACH


def gated(widths: tuple[int, ...]) -> Graph:
    graph = residual((1, 32, 32), 10, widths)
    for seed in range(2):
        graph = SqueezeExcite.propose(graph, random.Random(seed)).apply(graph)
    return graph


def wide_row() -> Graph:
    sketch = Sketch()
    sketch.put("embedding", Embedding(256, triton_launch.WIDEST_ROW))
    return sketch.predict((4,), 256, RMSNorm())


def compiled(launch: Launch, target: GPUTarget) -> Footprint:
    kernel = KERNELS[launch.kernel]
    known: dict[tuple[int], list[list[object]]] = {}  # ints are not specialised
    for place, (name, type) in enumerate(launch.signature):
        if type.startswith("*"):
            by_address = [["tt.divisibility", VECTOR_BYTES]] if name in launch.aligned else []
            known[place,] = [*by_address, *OF_POINTERS.get(target.arch, [])]
    source = ASTSource(kernel, dict(launch.signature), dict(launch.constants), known)
    made = triton.compile(source, target=target, options={**OPTIONS, "num_warps": launch.warps})
    if target.backend == "hip":
        return of_amd(made, target.arch)
    return of_nvidia(made, target.arch)


def of_nvidia(made: Any, arch: int) -> Footprint:
    """What is in the binary that a device would load; memory of a thread's stack is what it has spilled.

    Accesses are counted in PTX. To disassemble the binary would take as long as all else; in those of Triton
    3.9 they are as wide (LDG.E.128, STG.E.128), and as many where the assembler has unrolled no loop."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        command = [CUOBJDUMP, "--dump-resource-usage", file.name]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", said)}
    accesses = re.findall(r"(?:ld|st)\.global\S*", made.asm["ptx"])
    wide = sum(".v4.b32" in each or ".v2.b64" in each for each in accesses)
    spilled = found["STACK"] + found["LOCAL"]
    return Footprint(found["REG"], spilled, made.metadata.shared, wide)


def of_amd(made: Any, arch: str) -> Footprint:
    """Figures of the assembly. Of its accesses, only those of the expected kind count."""
    assembly = made.asm["amdgcn"]

    def figure(name: str) -> int:
        return max(int(each) for each in re.findall(rf"\.{name}:\s+(\d+)", assembly))

    kind = "buffer" if arch in OF_POINTERS else "global"
    accesses = re.findall(rf"{kind}_(?:load|store)_\w+", assembly)
    wide = sum("dwordx4" in each for each in accesses)
    spilled = figure("vgpr_spill_count") + figure("sgpr_spill_count")
    return Footprint(figure("vgpr_count"), spilled, made.metadata.shared, wide)


def main() -> int:
    """The exit code: 1 if a kernel has a fault."""
    is_faulty = False
    print("network            format    kernel             target  variants registers spilled shared vectors")
    for name, graph, format, targets in networks():
        found = sorted(launches(graph, format), key=str)
        for kernel in dict.fromkeys(launch.kernel for launch in found):
            own = [launch for launch in found if launch.kernel == kernel]
            for target in targets:
                kind = TARGETS[target]
                made = [compiled(launch, kind) for launch in own]
                registers, spilled = max(each.registers for each in made), sum(each.spilled for each in made)
                wanted = [launch.vectors(kind.warp_size) for launch in own]
                wide = sum(min(each.wide, least) for each, least in zip(made, wanted))
                faults = {fault for each, by in zip(made, own) for fault in each.faults(by, kind.warp_size)}
                print(
                    f"{name:18} {str(format)[6:]:9} {kernel:18} {target:7} {len(own):8} {registers:9} "
                    f"{spilled:7} {max(each.shared for each in made):6} {wide:3}/{sum(wanted)}",
                    *sorted(faults),
                    flush=True,
                )
                is_faulty = is_faulty or bool(faults)
    return int(is_faulty)


if __name__ == "__main__":
    sys.exit(main())
