"""The count of operations against two witnesses that know nothing of it: torch's counter and its profiler."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from aiperf.device import Device, bind
from aiperf.measuring.training_step import batch, place_network
from benchmarks.on_device.parts import Setting
from benchmarks.on_device.rows import Figures, Row, figures, row
from nas.graph import Graph
from nas.ops import TENSOR_OPS
from nas.seeds import residual, resnet50

COUNTER, PROFILER = "FlopCounterMode", "torch.profiler"
KERNELS = 8
"""Number of the longest kernels, which are recorded in the JSON."""
CONVERSION = re.compile(
    r"(?i)nchw_?to_?(folded_?)?nhwc|nhwc_?to_?(folded_?)?nchw|batched_transpose|transdata"
)
"""Names of kernels that only change the layout of images: of cuDNN, of MIOpen
(src/kernels/gpu_batched_transpose_kernel of ROCm/MIOpen), and of CANN.

Conversions that torch makes itself are not among them. They run in the kernel of all its copies with strides,
`elementwise_kernel<…direct_copy_kernel_cuda…>`, which also copies slices and expanded tensors, or, together
with a cast, in `…bfloat16_copy_kernel_cuda…`, which also makes those without a change of layout
(ATen/native/cuda/Copy.cu). By their names they cannot be distinguished. The longest kernels are recorded."""
MOST_CONVERTING = 0.01
"""Share of the kernels' time in which layouts may be converted, as for the three channels of the images."""


def measure(setting: Setting) -> Iterator[Figures]:
    """Tensor operations of one training image; a number other than the counter's is a fault."""
    device = bind(setting.kind, 0)
    device.declare(device.formats[0])
    side, images = (64, 2) if setting.is_small else (224, 64)
    judged = (
        f"ResNet-50 at {side}²"  # the seed's kernels are so short that a few conversions are much of them
    )
    networks = {"digits' seed": residual(), judged: resnet50((3, side, side))}
    rows, faults, longest = list[Row](), list[str](), dict[str, dict[str, float]]()
    smaller = f"ResNet-50 at {side}²" if setting.is_small else ""
    notes = [f"{PROFILER} counts convolutions and products of matrices of the forward pass, by their shapes"]
    found = figures(rows, faults=faults, notes=notes, smaller=smaller, kernels=longest)
    for name, graph in networks.items():
        ours = graph.cost.forward.price(TENSOR_OPS), graph.cost.backward.price(TENSOR_OPS)
        theirs = _counted(device, graph, images)
        for direction, own, counted in zip(("forward", "backward"), ours, theirs):
            rows.append(row(f"{name}: {direction}", own, "", counted, COUNTER))
            if own != counted:
                faults.append(f"{name}, {direction}: {own:,} operations here, {counted:,} by {COUNTER}")
        profiled, kernels = _profiled(device, graph, images), _kernels(device, graph, images)
        rows.append(row(f"{name}: forward", ours[0], "", profiled, PROFILER))
        converting, most = conversion_share(kernels), MOST_CONVERTING if name == judged else None
        rows.append(row(f"{name}: conversions of layout", converting, "%", most, "of kernels, at most"))
        faults += [f"{name}: {fault}" for fault in kernel_faults(kernels, name == judged)]
        longest[name] = dict(list(kernels.items())[:KERNELS])
        yield found


def conversion_share(kernels: Mapping[str, float]) -> float:
    """Share of the time of all kernels that those take which only convert layouts."""
    converting = sum(seconds for name, seconds in kernels.items() if CONVERSION.search(name))
    return converting / max(sum(kernels.values()), 1e-9)


def kernel_faults(kernels: Mapping[str, float], is_judged: bool) -> list[str]:
    """That none was recorded, or that many convert layouts where that `is_judged`."""
    if not any(kernels.values()):
        return ["the profiler recorded no kernel"]
    share = conversion_share(kernels)
    is_much = is_judged and share > MOST_CONVERTING
    return [f"{100 * share:.1f} % of the kernels' time converts layouts"] if is_much else []


def _gradients(grad: Any, reads: Any, weight: Any, *rest: Any, out_shape: Any = None) -> int:
    """Operations for the gradients of a convolution: each one that is needed has as many products as the
    forward pass. Torch 2.13's own formula multiplies those of the weights by the number of groups."""
    wanted = rest[-1]
    return int(2 * sum(wanted[:2]) * prod(grad) * prod(weight[1:]))


def _counted(device: Device, graph: Graph, images: int) -> tuple[int, int]:
    """Operations for one image, forward and backward, as they are submitted to the device."""
    network, (pixels, labels) = place_network(graph, device), batch(graph, device, images)
    formulas = {torch.ops.aten.convolution_backward: _gradients}
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        with device.autocast(device.formats[0]):
            loss = cross_entropy(network(pixels), labels)
        forward = counter.get_total_flops()
        loss.backward()
    return forward // images, (counter.get_total_flops() - forward) // images


def _profiled(device: Device, graph: Graph, images: int) -> int:
    """Operations of one image's forward pass, without autocast, under which each is recorded twice."""
    network, (pixels, _) = place_network(graph, device), batch(graph, device, images)
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as record, torch.no_grad():
        network(pixels)
        device.synchronise()
    return int(sum(event.flops or 0 for event in record.key_averages())) // images


def _kernels(device: Device, graph: Graph, images: int) -> dict[str, float]:
    """The kernels of a second training step in seconds, the longest first; in the first one libraries try
    kernels out."""
    network, (pixels, labels) = place_network(graph, device), batch(graph, device, images)
    own = getattr(ProfilerActivity, device.kind.upper(), ProfilerActivity.CPU)

    def step() -> None:
        with device.autocast(device.formats[0]):
            loss = cross_entropy(network(pixels), labels)
        loss.backward()
        device.synchronise()

    step()
    with profile(activities=[own]) as record:
        step()
    attribute = "self_cpu_time_total" if device.kind == "cpu" else "self_device_time_total"
    times = {event.key: float(getattr(event, attribute, 0.0)) for event in record.key_averages()}
    return {name: times[name] / 1e6 for name in sorted(times, key=lambda name: times[name], reverse=True)}
