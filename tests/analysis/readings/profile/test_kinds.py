"""The kind of an operation, by torch's names of the forward and of the backward pass."""

from __future__ import annotations

import pytest

from analysis.readings.profile.kinds import kinds
from analysis.readings.profile.spans import Span

KINDS = {
    "attention": [
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        "aten::scaled_dot_product_attention",
        "ScaledDotProductFlashAttentionForCpuBackward0",
    ],
    "convolution": ["aten::conv2d", "aten::mkldnn_convolution", "ConvolutionBackward0"],
    "normalisation": ["aten::native_batch_norm", "NativeBatchNormBackward0", "aten::native_layer_norm"],
    "pooling and means": [
        "aten::max_pool2d_with_indices",
        "AvgPool2DBackward0",
        "aten::mean",
        "MeanBackward1",
    ],
    "loss": ["aten::_log_softmax_backward_data", "NllLossBackward0", "aten::cross_entropy_loss"],
    "embedding": ["aten::embedding_dense_backward", "EmbeddingBackward0"],
    "matrix product": [
        "aten::addmm",
        "aten::mm",
        "aten::bmm",
        "AddmmBackward0",
        "MmBackward0",
        "aten::linear",
    ],
    "activation": [
        "aten::relu_",
        "aten::threshold_backward",
        "SiluBackward0",
        "aten::gelu",
        "aten::clamp_min_",
    ],
    "copy and cast": ["aten::copy_", "aten::to", "aten::_to_copy", "ToCopyBackward0", "aten::cat"],
    "allocation and fill": ["aten::empty_strided", "aten::zero_", "aten::resize_", "aten::fill_"],
    "view": ["aten::t", "TBackward0", "aten::transpose", "aten::as_strided", "detach", "aten::select"],
    "sorting and indexing": ["aten::argsort", "aten::topk", "aten::index_select", "aten::gather"],
    "sum": ["aten::sum"],
    "element-wise": ["aten::add_", "aten::mul", "AddBackward0", "PowBackward0", "aten::rsqrt"],
    "other": ["aten::something_new"],
    "autograd engine": [
        "autograd::engine::evaluate_function: MmBackward0",
        "torch::autograd::AccumulateGrad",
    ],
    "all-reduce": ["c10d::allreduce_"],
    "Python": ["phase: forward", "node: aten", "step", "DistributedDataParallel.forward"],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in KINDS.items() for name in names])
def test_kind(kind: str, name: str) -> None:
    assert list(kinds(Span(5, "backward", "", name, opens=True, beside=0))) == [(kind, 5)]


@pytest.mark.parametrize("phase", ["load", "optimizer"])
def test_a_phase_that_is_a_kind(phase: str) -> None:
    assert list(kinds(Span(5, phase, "", "aten::mul", opens=True, beside=0))) == [(phase, 5)]


def test_a_step_that_waits_for_a_collective() -> None:
    waiting = Span(5, "backward", "", "phase: backward", opens=True, beside=3)
    assert list(kinds(waiting)) == [("all-reduce", 3), ("Python", 2)]
    working = Span(5, "backward", "", "aten::mm", opens=True, beside=3)
    assert list(kinds(working)) == [("matrix product", 5)]
