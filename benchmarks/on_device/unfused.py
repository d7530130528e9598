"""What fused steps leave to torch: how long it takes, and how long it would take otherwise. These figures say
whether a kernel of its own would pay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

import torch
from torch import Tensor, nn

from aiperf.data.normalise import imagenet, in_one_pass
from aiperf.device import Device, bind
from aiperf.device.device import SIXTEEN_BIT
from aiperf.measuring.training_step import place_network
from benchmarks.on_device.choices import timed
from benchmarks.on_device.meter import Meter
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, Row, figures, row
from nas.seeds import resnet50

SIDE, BATCH, CLASSES = 224, 256, 1000
SMALL_SIDE, SMALL_BATCH = 32, 2
ROUNDS, SECONDS, SMALL_SECONDS = 3, 0.5, 0.01
CHANNELS = (3, 4, 8)
"""Channels of the images; more than three are zeros, with which the result is the same."""
PAYS = 0.9
"""Share of the time below which the other way is called faster."""
ROUNDING = 1e-6
"""Largest difference of normalised images, which are below 3, where a processor rounds once and not twice."""

Work = Callable[[], object]
Pair = tuple[str, Work, str]
"""Its name, the work, and the name of what it is compared with; empty if it is what the program does."""


def measure(setting: Setting) -> Figures:
    """Milliseconds of one step each. Images that are normalised otherwise than on a host are a fault."""
    device = bind(setting.kind, 0)
    format = next(format for format in device.formats if format in SIXTEEN_BIT)
    device.declare(format)
    sixteen, size = SIXTEEN_BIT[format], setting.sized(BATCH, SMALL_BATCH)
    side = setting.sized(SIDE, SMALL_SIDE)
    images = torch.randint(0, 256, (size, side, side, 3), dtype=torch.uint8).to(device.torch)
    every = [
        *_first_convolutions(device, size, side, sixteen),
        *_casts(device, side, sixteen),
        *_normalisations(images, sixteen),
    ]
    meter = Meter(device)
    seconds = _in_turn(device, every, setting.sized(SECONDS, SMALL_SECONDS), meter)
    rows, slow = list[Row](), list[str]()
    for name, _, other in every:
        found, expected = 1e3 * seconds[name], 1e3 * seconds[other] if other else None
        rows.append(row(name, found, "ms", expected, other, use=meter.use(name)))
        if expected and found < PAYS * expected and not setting.is_small:
            slow.append(f"{other}: {expected:.2f} ms a step; {name}: {found:.2f} ms")
    return figures(
        rows,
        faults=wrongly_normalised(images),
        slow=slow,
        notes=[f"Steps of {size} images in {format}. Gradients of weights are cast back for as long again."],
        smaller=f"{side}² in place of {SIDE}²" if setting.is_small else "",
    )


def _first_convolutions(device: Device, size: int, side: int, format: torch.dtype) -> Iterator[Pair]:
    """ResNet-50's, forward and the gradient of its weights."""
    name = "first convolution, {} channels"
    for channels in CHANNELS:
        module = nn.Conv2d(
            channels, 64, 7, stride=2, padding=3, bias=False, device=device.torch, dtype=format
        )
        module = module.to(memory_format=device.layout)  # type: ignore[call-overload]
        images = device.arranged(torch.randn(size, channels, side, side, device=device.torch).to(format))
        gradient = torch.ones_like(module(images))

        def step(module: nn.Conv2d = module, images: Tensor = images, gradient: Tensor = gradient) -> None:
            torch.autograd.grad(module(images), module.weight, gradient)

        yield name.format(channels), step, name.format(CHANNELS[0]) if channels != CHANNELS[0] else ""


def _casts(device: Device, side: int, format: torch.dtype) -> Iterator[Pair]:
    """Weights of ResNet-50 to 16 bits, as autocast casts them, and all by one call."""
    network = place_network(resnet50((3, side, side), CLASSES), device)
    weights = [weight.detach() for weight in network.parameters() if weight.dim() > 1]
    copies = [weight.to(format) for weight in weights]
    yield "casts of weights", lambda: [weight.to(format) for weight in weights], ""
    yield "casts of weights, one call", lambda: torch._foreach_copy_(copies, weights), "casts of weights"


def _normalisations(images: Tensor, format: torch.dtype) -> Iterator[Pair]:
    """Bytes to what the first convolution reads, and a copy of the same bytes to 16 bits in one pass."""
    normalised = imagenet(3).to(images.device)
    yield "normalisation and cast", lambda: normalised(images).to(format), ""
    yield "bytes copied to 16 bits", lambda: images.to(format), "normalisation and cast"


def _in_turn(device: Device, every: list[Pair], seconds: float, meter: Meter) -> dict[str, float]:
    """Seconds of each work, by the median of rounds in turn."""
    for _, work, _ in every:
        work()
    numbers = {name: max(1, round(seconds / timed(device, work, 1))) for name, work, _ in every}
    found: dict[str, list[float]] = {name: [] for name, *_ in every}
    for _ in range(ROUNDS):
        for name, work, _ in every:
            with meter.during(name):
                found[name].append(timed(device, work, numbers[name]) / numbers[name])
    return {name: median(each) for name, each in found.items()}


def wrongly_normalised(images: Tensor) -> list[str]:
    """Whether the kernel for a device gives what a host computes."""
    host, some = imagenet(3), images[:2].flatten(2).cpu()
    scale, shift = (each.repeat(images.shape[2]) for each in (host.scale, host.shift))
    found = in_one_pass(some.to(images.device), scale.to(images.device), shift.to(images.device)).cpu()
    away = float((found.view(images[:2].shape) - host(images[:2].cpu())).abs().max())
    return [] if away <= ROUNDING else [f"bytes are normalised to numbers that differ by {away:.2g}"]
