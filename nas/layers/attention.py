"""Causal attention: each position reads itself and what stands before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from nas.layers.layer import Layer
from nas.layers.shapes import Shape, ShapeError, refuse_no_sizes
from nas.ops import Cost, Ops


@dataclass(frozen=True)
class Attention(Layer):
    """softmax(q·kᵀ/√w)·v over the positions up to one's own (Vaswani et al., NIPS 2017), without weights.

    Reads q (positions, heads·w), k and v (positions, groups·w); puts out (positions, heads·w). Query head i
    reads group i·groups // heads (Ainslie et al., "GQA", EMNLP 2023). With a `rotary` base, q and k are
    turned by their position first (Su et al., "RoFormer", arXiv:2104.09864): feature j of the first half of
    a head with feature j of the second, by position · base^(−2j/w) from position 0 on; with 0 they are not.
    """

    heads: int
    groups: int = 1
    rotary: float = 10000.0

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "heads", "groups")
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

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        """Of the causal triangle alone. Tables, masks and what a library computes again are not counted."""
        positions, width = inputs[0][0], inputs[0][1] // self.heads
        rows = self.heads * positions
        pairs = rows * (positions + 1) // 2  # P; a row of softmax has as many as its position, counted from 1
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
            # Of a pair (a, b): a·cos − b·sin and a·sin + b·cos; its gradient is turned back in the same way.
            turned = (self.heads + self.groups) * positions * width
            turn = Ops(mul=2 * turned, add=turned)
            costs["rotary"] = Cost(turn, turn, Ops(), turn)
        return costs

    def masked(self, *inputs: Shape) -> Cost:
        """Products with the positions that follow, T(T − 1)/2 a head, which are not made and not counted.

        For comparison with published MFU, which counts T² pairs (Chowdhery et al., "PaLM", arXiv:2204.02311,
        appendix B).
        """
        products = Ops(mac=inputs[0][0] * (inputs[0][0] - 1) * inputs[0][1])
        return Cost(products, products * 2, Ops(), products)
