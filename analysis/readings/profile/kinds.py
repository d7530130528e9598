"""The kind of an operation, by the name that torch gives it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from aiperf.wire.recorded import LOAD, OPTIMIZER
from analysis.readings.profile.spans import ALL_REDUCE, ENGINE, SENDING, Span

OTHER, PYTHON, AUTOGRAD = "other", "Python", "autograd engine"

_OURS = re.compile(r"^(aten|prim|mkldnn|torch|c10d|autograd)::|Backward\d*$|^detach$")
"""Whatever else lasts is a range: Python, between two operations."""
_KINDS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("attention", r"scaleddotproduct|flashattention|efficientattention"),
        ("convolution", r"conv(?!ert)"),
        ("normalisation", r"(batch|layer|rms|group|instance)norm"),
        ("pooling and means", r"pool|^mean"),
        ("loss", r"softmax|nllloss|crossentropy"),
        ("embedding", r"embedding"),
        ("matrix product", r"^(add|baddb?)?b?m[mv]($|backward)|matmul|^linear|gemm|^dot"),
        ("activation", r"relu|gelu|silu|sigmoid|tanh|threshold|clamp"),
        ("copy and cast", r"copy|^to$|clone|contiguous|^cat|stack|repeat"),
        ("allocation and fill", r"^empty|resize|zero|fill|^ones|^new|full"),
        (
            "view",
            (
                r"view|reshape|^t($|backward)|transpose|permute|expand|slice|(?<!index)select|split|chunk|flatten"
                "|strided|detach|squeeze|narrow|alias|unbind|resolve"
            ),
        ),
        ("sorting and indexing", r"sort|topk|index|gather|scatter"),
        ("sum", r"^sum|norm$"),
        ("element-wise", r"^(r?sub|add|mul|div|neg|pow|square|r?sqrt|exp|log|sign|lerp|where|maximum)"),
    )
)
"""Kinds of operations and patterns of their names, in lower case, without underscores, library and number."""


def kinds(span: Span) -> Iterator[tuple[str, int]]:
    """Nanoseconds by kind. Loading and the optimizer are kinds of their own, whatever they are made of."""
    waited = span.beside if span.waits else 0
    if waited:
        yield ALL_REDUCE, waited
    yield _kind(span), span.nanoseconds - waited


def _kind(span: Span) -> str:
    if span.phase in (LOAD, OPTIMIZER):
        return span.phase
    name = span.operation
    if name.startswith(SENDING):
        return ALL_REDUCE
    if name.startswith(ENGINE) or name == "torch::autograd::AccumulateGrad":
        return AUTOGRAD
    if not _OURS.search(name):
        return PYTHON
    plain = name.rpartition("::")[2].replace("_", "").lower()
    own = re.sub(r"^(native|mkldnn|cudnn|miopen|thnn)|\d+$", "", plain)
    return next((kind for kind, pattern in _KINDS if pattern.search(own)), OTHER)
