"""A program for test_convolution_memory: convolutions, forward and backward, in guarded memory.

Each case is printed before it is computed, so that the last line names what died. Gradients are compared
with those of fp64, which ATen computes by itself, without oneDNN. By hand, of more than tests may take:

    cc -O2 -shared -fPIC -o guard.so tests/nas/guard.c
    LD_PRELOAD=./guard.so PYTHONPATH=. python tests/nas/guarded.py convolutions 50
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import conv2d

from nas.layers import Conv2d
from nas.modules import module_of
from nas.morphisms.sites import live

WIDTHS = (*range(1, 18), 24, 31, 33)
SIDES = (1, 7, 8, 32)
LARGE = 128  # on AVX-512 the fault shows on large images only
TOLERANCE = {"fp32": 1e-4, "bf16": 0.05}


@dataclass(frozen=True)
class Case:
    channels: int
    layer: Conv2d
    side: int
    batch: int
    format: str
    threads: int


def convolutions(share: int) -> Iterator[Case]:
    """One in `share` of all combinations that the search can produce, the same ones each time."""
    kernels, strides, formats = (1, 3, 5, 7), (1, 2, 4), ("fp32", "bf16")
    every = itertools.product(WIDTHS, WIDTHS, kernels, strides, SIDES, (1, 2, 5), formats, (1, 2))
    drawn = random.Random(share)
    for read, written, kernel, stride, side, batch, format, threads in every:
        # Two threads wait for each other by spinning: on a busy machine each such case takes long.
        if drawn.randrange(share * (8 if threads == 2 else 1)) or not live(
            Conv2d(1, kernel, stride), (side, side)
        ):
            continue
        groups = drawn.choice([each for each in range(1, read + 1) if not (read % each or written % each)])
        groups, written = drawn.choice([(1, written), (groups, written), (read, read)])
        yield Case(read, Conv2d(written, kernel, stride, groups), side, batch, format, threads)


def strided_pixels() -> Iterator[Case]:
    """The layers of the known fault (TOO_FEW_CHANNELS), at sizes that show it on AVX2 and on AVX-512."""
    for channels, side, format, threads in itertools.product(
        (1, 2, 4, 7, 8, 15, 16, 17), (32, LARGE), ("fp32", "bf16"), (1, 2)
    ):
        yield Case(channels, Conv2d(8, 1, 2), side, 4, format, threads)


def few() -> Iterator[Case]:
    """What a second computes of both known faults, of which the other is of strides wider than the image, and
    some kernels with gaps."""
    for kernel, stride, side, format in itertools.product((3, 7), (2, 3), (1, 2), ("fp32", "bf16")):
        yield Case(3, Conv2d(8, kernel, stride), side, 2, format, 1)
    for side, stride, format in itertools.product((5, 32), (1, 2), ("fp32", "bf16")):
        yield Case(5, Conv2d(8, 3, stride, dilation=2), side, 2, format, 1)
    for channels in (4, 12):
        yield Case(channels, Conv2d(8, 1, 2), LARGE, 4, "fp32", 1)


CASES = {"strided pixels": strided_pixels, "few": few}


def compute(case: Case, layer: Any) -> None:
    torch.set_num_threads(case.threads)
    layer = layer.to(memory_format=torch.channels_last)
    images = torch.randn(case.batch, case.channels, case.side, case.side)
    images = images.to(memory_format=torch.channels_last).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=case.format == "bf16"):
        made = layer(images)
    towards = torch.randn_like(made)
    made.backward(towards)
    weight = layer.weight
    exact_images, exact_weight = (
        tensor.detach().double().contiguous().requires_grad_() for tensor in (images, weight)
    )
    bias = None if layer.bias is None else layer.bias.detach().double()
    padding, groups = case.layer.paddings, case.layer.groups
    exact = conv2d(exact_images, exact_weight, bias, case.layer.stride, padding, case.layer.dilation, groups)
    exact.backward(towards.double())
    for name, found, right in (
        ("output", made, exact),
        ("gradient of the images", images.grad, exact_images.grad),
        ("gradient of the weights", weight.grad, exact_weight.grad),
    ):
        assert found is not None
        assert right is not None
        wrong = (found.detach() - right.detach()).abs().max() / (right.detach().abs().max() + 1e-3)
        if not wrong <= TOLERANCE[case.format]:  # a NaN is not
            sys.exit(f"the {name} is wrong by {wrong:.2g} of its largest value")


def main(what: str, number: int) -> None:
    """`what`: one of CASES, or "convolutions"."""
    torch.manual_seed(0)
    for case in convolutions(number) if what == "convolutions" else CASES[what]():
        print(case, flush=True)
        layer = case.layer
        module = module_of(layer, (case.channels, case.side, case.side))
        compute(case, module)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
