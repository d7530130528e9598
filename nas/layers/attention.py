"""Causal attention: each position reads itself and what stands before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import inf, sqrt

from nas.frozen import frozen
from nas.layers.layer import (
    LATER,
    WIDE,
    Constant,
    Footprint,
    Layer,
    LayerPlace,
    Read,
    Start,
    TorchLine,
    torch_options,
)
from nas.layers.norms import onnx_normal, scaling
from nas.layers.shapes import Shape, ShapeError, is_size, refuse_no_sizes, refuse_size
from nas.ops import Cost, Ops

HEAD_NORM_EPSILON = 1e-6
"""Added to the mean of squares of a head, as in an `RMSNorm` that states no epsilon."""


@frozen(repr=False)
class Attention(Layer):
    """softmax(q·kᵀ/√w)·v over the positions up to one's own (Vaswani et al., NIPS 2017).

    Reads q (positions, heads·w), k and v (positions, groups·w); puts out (positions, heads·w). Query head i
    reads group i·groups // heads (Ainslie et al., "GQA", EMNLP 2023). With a `rotary` base, q and k are
    turned by their position first (Su et al., "RoFormer", arXiv:2104.09864): feature j of the first half of
    a head with feature j of the second, by position · base^(−2j/w) from position 0 on; with 0 they are not.
    With a `window`, a position reads itself and the window − 1 before it (Beltagy et al., "Longformer",
    arXiv:2004.05150); with 0, all before it. With `head_norm`, an RMSNorm of each head of q and of k comes
    before (Henry et al., arXiv:2010.04245, with another norm). Its scales are the weights query_norm and
    key_norm, each (w,).
    """

    heads: int
    groups: int = 1
    rotary: float = 10000.0
    window: int = field(default=0, kw_only=True, metadata=LATER)
    head_norm: bool = field(default=False, kw_only=True, metadata=LATER)

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "heads", "groups")
        if not is_size(self.window, least=0):
            refuse_size(self, "window", least=0)
        if self.heads % self.groups:
            raise ShapeError(f"Attention: {self.heads} heads in {self.groups} groups")
        if type(self.rotary) not in (int, float) or not (self.rotary == 0 or 1 <= self.rotary < inf):
            raise ShapeError(f"Attention: rotary {self.rotary!r:.40} is neither 0 nor a base from 1 up")
        object.__setattr__(self, "rotary", float(self.rotary))  # one text, one key

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs) != 3 or any(len(shape) != 2 for shape in inputs):
            raise ShapeError(f"Attention: needs q, k, v of (positions, features), reads {list(inputs)}")
        queries, keys, values = inputs
        if queries[1] % self.heads:
            raise ShapeError(f"Attention: {queries[1]} features of queries in {self.heads} heads")
        width = queries[1] // self.heads
        wanted = (queries[0], self.groups * width)
        if (keys, values) != (wanted, wanted):
            raise ShapeError(
                f"Attention: {self.groups} groups need k and v of {wanted}, not {keys} and {values}"
            )
        if self.rotary and width % 2:
            raise ShapeError(f"Attention: rotary positions turn pairs, and a head has {width} features")
        return queries

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        width = (inputs[0][1] // self.heads,)
        return {"query_norm": width, "key_norm": width} if self.head_norm else {}

    def pairs(self, positions: int) -> int:
        """How many pairs of a query and a key there are in all heads. A row has as many as its position,
        counted from 1, and no more than the window."""
        seen = min(self.window or positions, positions)
        return self.heads * (seen * (seen + 1) // 2 + (positions - seen) * seen)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        """The operations of the pairs alone. Tables, masks and what is computed again are not counted."""
        positions, width = inputs[0][0], inputs[0][1] // self.heads
        rows, pairs = self.heads * positions, self.pairs(positions)
        # q·k: mac P·w; scale: mul P; softmax: greatest cmp P − rows, differences add P, exp P, sums
        # add P − rows, div P; weighted sums of v: mac P·w
        forward = Ops(mac=2 * pairs * width, mul=pairs, cmp=pairs - rows, add=2 * pairs - rows)
        forward += Ops(exp=pairs, div=pairs)
        # dv = pᵀ·dy and dp = dy·vᵀ: mac 2P·w; ds = p·(dp − Σ p·dp): mul P, add P − rows, add P, mul P; scale:
        # mul P; dq = ds·k and dk = dsᵀ·q: mac 2P·w; heads of a group add up their dk and dv
        shared = 2 * (self.heads - self.groups) * positions * width
        input_grad = Ops(mac=4 * pairs * width, mul=3 * pairs, add=2 * pairs - rows + shared)
        costs = {"attention": Cost(forward, input_grad, Ops(), forward)}
        if self.rotary:
            # (a, b) becomes a·cos − b·sin and a·sin + b·cos; its gradient is turned back in the same way.
            turned = (self.heads + self.groups) * positions * width
            turn = Ops(mul=2 * turned, add=turned)
            costs["rotary"] = Cost(turn, turn, Ops(), turn)
        if self.head_norm:
            costs["head_norm"] = scaling((self.heads + self.groups) * positions, width)
        return costs

    def masked(self, *inputs: Shape) -> Cost:
        """Products with positions that a query does not read, T² − P a head, which are not counted.

        For comparison with published MFU, which counts T² pairs (Chowdhery et al., "PaLM", arXiv:2204.02311,
        appendix B).
        """
        positions, width = inputs[0][0], inputs[0][1] // self.heads
        products = Ops(mac=2 * (self.heads * positions**2 - self.pairs(positions)) * width)
        return Cost(products, products * 2, Ops(), products)

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return Constant(1)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        """A fused kernel keeps q, k, v, its output and a number of each row, and no square of positions.

        Its output lies as q does: what was normalised or turned has its heads apart, and they are put
        together in a copy. With a window, the kernel makes numbers of the mask, and keeps these.
        """
        queries, keys = (narrow * read.num for read in reads[:2])
        positions, turned, shared = reads[0].shape[0], self.rotary > 0, self.groups < self.heads
        apart = turned or self.head_norm
        inside = WIDE * self.heads * positions
        inside += 2 * queries * apart + (2 * queries if shared else keys * apart)
        keeps = [] if apart else [0]
        keeps += [] if shared else [2] if apart else [1, 2]
        if self.head_norm:
            # What is normalised and not yet scaled, in fp32; what was read too, if it is narrower; and a
            # number of each row.
            copied = reads[0].width < WIDE
            inside += WIDE * (2 if copied else 1) * (reads[0].num + reads[1].num)
            inside += WIDE * (self.heads + self.groups) * positions
            keeps += [] if copied else [0, 1]
        # Halves are turned in fp32: tensors of a half and of the whole, then the whole in the format.
        turning = turned * (5 if narrow < WIDE else 2)
        most = max(turning * queries, queries + turning * keys)
        return Footprint(
            narrow,
            tuple(keeps),
            keeps_output=not apart,
            inside=inside,
            forward=max(0, most - inside - queries),
            backward=2 * (queries - keys) if shared else 0,
            once=narrow * positions**2 if self.window else 0,
        )

    def torch_line(self, *inputs: Shape) -> TorchLine:
        given = f"heads={self.heads}, groups={self.groups}, rotary={self.rotary!r}"
        given += torch_options((self.window, 0, f"window={self.window}"))
        if not self.head_norm:
            return TorchLine(f"attention({{0}}, {{1}}, {{2}}, {given})", helpers=(IN_PYTHON,))
        width = inputs[0][1] // self.heads
        scales = ", ".join(f'"{name}": torch.empty({width})' for name in self.weights(*inputs))
        q, k = '_head_norm({0}, {own}["query_norm"])', '_head_norm({1}, {own}["key_norm"])'
        return TorchLine(
            f"attention({q}, {k}, {{2}}, {given})",
            f"nn.ParameterDict({{{scales}}})",
            (IN_PYTHON, HEAD_NORM_IN_PYTHON),
        )

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        import numpy as np

        positions, width = at.reads[0][0], at.reads[0][1] // self.heads
        times = self.heads // self.groups

        def heads(values: str, name: str, num: int) -> str:
            """(batch, positions, num · width) to (batch, groups, num / groups, positions, width)"""
            shape = at.constant(f"heads of {name}", [0, positions, self.groups, num // self.groups, width])
            return at.step("Transpose", at.step("Reshape", values, shape), perm=(0, 2, 3, 1, 4))

        q = heads(inputs[0], "q", self.heads)
        k, v = (heads(values, name, self.groups) for values, name in zip(inputs[1:], "kv"))
        if self.head_norm:
            q, k = _onnx_scaled(at, q, "query_norm"), _onnx_scaled(at, k, "key_norm")
        if self.rotary:
            angles = np.outer(np.arange(positions), self.rotary ** (-np.arange(0, width, 2) / width))
            cos, sin = at.constant("cos", np.cos(angles)), at.constant("sin", np.sin(angles))
            q, k = _onnx_turned(at, q, cos, sin), _onnx_turned(at, k, cos, sin)
        # A group's one key and value meet all its queries by broadcasting.
        scores = at.step("MatMul", q, at.step("Transpose", k, perm=(0, 1, 2, 4, 3)))
        scores = at.step("Mul", scores, at.constant("scale", 1 / sqrt(width)))
        far = np.subtract.outer(np.arange(positions), np.arange(positions))
        unseen = (far < 0) | (far >= (self.window or positions))
        mask = np.where(unseen, -np.inf, 0.0)
        shares = at.step("Softmax", at.step("Add", scores, at.constant("mask", mask)), axis=-1)
        mixed = at.step("Transpose", at.step("MatMul", shares, v), perm=(0, 3, 1, 2, 4))
        at.last("Reshape", mixed, at.constant("shape", [0, positions, self.groups * times * width]))


def _onnx_scaled(at: LayerPlace, values: str, weight: str) -> str:
    """Writes an RMSNorm of each head."""
    normal = onnx_normal(at, values, f"{weight} epsilon", HEAD_NORM_EPSILON)
    return at.step("Mul", normal, at.weight(weight))


def _onnx_turned(at: LayerPlace, values: str, cos: str, sin: str) -> str:
    """Turns pairs of the first and the second half of a head by their position."""
    first, second = at.steps("Split", 2, values, axis=-1)
    left = at.step("Sub", at.step("Mul", first, cos), at.step("Mul", second, sin))
    right = at.step("Add", at.step("Mul", first, sin), at.step("Mul", second, cos))
    return at.step("Concat", left, right, axis=-1)


IN_PYTHON = '''\
def attention(
    q: Tensor, k: Tensor, v: Tensor, heads: int, groups: int, rotary: float, window: int = 0
) -> Tensor:
    """Causal. Query head i reads group i * groups // heads. Where `rotary` is not 0, it is the base by which
    queries and keys are rotated by their position. Where `window` is not 0, it is the number of positions
    read."""
    width = q.shape[2] // heads
    q, k, v = (part.unflatten(2, (-1, width)).transpose(1, 2) for part in (q, k, v))
    if rotary:
        place = torch.arange(q.shape[2], dtype=torch.float64)
        rate = rotary ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = torch.outer(place, rate)
        cos, sin = angle.cos().to(q), angle.sin().to(q)

        def turned(part: Tensor) -> Tensor:
            a, b = part.chunk(2, dim=-1)
            return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)

        q, k = turned(q), turned(k)
    k, v = (part.repeat_interleave(heads // groups, dim=1) for part in (k, v))
    if window:
        place = torch.arange(q.shape[2], device=q.device)
        back = place[:, None] - place
        mixed = F.scaled_dot_product_attention(q, k, v, (back >= 0) & (back < window))
    else:
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(1, 2).flatten(2)


'''

HEAD_NORM_IN_PYTHON = f'''\
def _head_norm(values: Tensor, weight: Tensor) -> Tensor:
    """Divides each head by the root of the mean of its squares; a head has as many features as the weight."""
    heads = values.unflatten(2, (-1, len(weight)))
    return F.rms_norm(heads, weight.shape, weight, {HEAD_NORM_EPSILON}).flatten(2)


'''
