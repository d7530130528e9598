"""Layers of sequences number by number, forward and backward, each operation counted when it is made.

Nothing here knows a closed form: it is written from the mathematics, with loops, and the tests compare its
numbers with torch's and its counts with ours. One file, since each layer is made of the ones above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nas.layers import (
    GELU,
    Add,
    Attention,
    Embedding,
    Experts,
    Layer,
    LayerNorm,
    Linear,
    Positions,
    Product,
    ReLU,
    RMSNorm,
    SiLU,
    SquaredReLU,
)
from nas.ops import Cost, Ops

Rows = list[list[float]]
Weights = dict[str, Any]


@dataclass
class Tally:
    """Makes operations, and counts them."""

    counts: dict[str, int] = field(default_factory=dict)

    def made(self, kind: str, value: float) -> float:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return value

    def add(self, a: float, b: float) -> float:
        return self.made("add", a + b)

    def sub(self, a: float, b: float) -> float:
        return self.made("add", a - b)

    def mul(self, a: float, b: float) -> float:
        return self.made("mul", a * b)

    def div(self, a: float, b: float) -> float:
        return self.made("div", a / b)

    def sqrt(self, a: float) -> float:
        return self.made("sqrt", math.sqrt(a))

    def exp(self, a: float) -> float:
        return self.made("exp", math.exp(a))

    def log(self, a: float) -> float:
        return self.made("exp", math.log(a))

    def erf(self, a: float) -> float:
        return self.made("exp", math.erf(a))

    def max(self, a: float, b: float) -> float:
        return self.made("cmp", max(a, b))

    def dot(self, a: Iterable[float], b: Iterable[float]) -> float:
        total = 0.0
        for x, y in zip(a, b, strict=True):
            total = self.made("mac", total + x * y)
        return total

    def sum(self, values: Sequence[float]) -> float:
        total = values[0]
        for value in values[1:]:
            total = self.add(total, value)
        return total

    def greatest(self, values: Sequence[float]) -> float:
        found = values[0]
        for value in values[1:]:
            found = self.max(found, value)
        return found

    @property
    def ops(self) -> Ops:
        return Ops(**self.counts)


@dataclass
class Tallies:
    forward: Tally = field(default_factory=Tally)
    input_grad: Tally = field(default_factory=Tally)
    weight_grad: Tally = field(default_factory=Tally)

    @property
    def cost(self) -> Cost:
        """Validation makes the forward pass."""
        forward = self.forward.ops
        return Cost(forward, self.input_grad.ops, self.weight_grad.ops, forward)


Backward = Callable[[Rows], tuple[list[Rows], Weights]]
"""From the gradient of what a layer puts out to those of what it reads and of its weights. The latter are
added to `sums`, the gradients of the examples before."""


def naive(layer: Layer, tallies: Tallies, own: Weights, sums: Weights, *x: Any) -> tuple[Rows, Backward]:
    f, b, w = tallies.forward, tallies.input_grad, tallies.weight_grad
    match layer:
        case Embedding():
            symbols = [int(symbol) for symbol in x[0]]

            def of_embedding(dy: Rows) -> tuple[list[Rows], Weights]:
                for symbol, row in zip(symbols, dy, strict=True):
                    sums["weight"][symbol] = list(map(w.add, sums["weight"][symbol], row))
                return [], sums

            return [list(own["weight"][symbol]) for symbol in symbols], of_embedding
        case Positions():

            def of_positions(dy: Rows) -> tuple[list[Rows], Weights]:
                return [dy], {"weight": elements(w.add, sums["weight"], dy)}

            return elements(f.add, x[0], own["weight"]), of_positions
        case Linear(bias=bias):
            y = [[f.dot(row, weights) for weights in own["weight"]] for row in x[0]]
            y = [list(map(f.add, row, own["bias"])) for row in y] if bias else y

            def of_linear(dy: Rows) -> tuple[list[Rows], Weights]:
                dx = [[b.dot(row, column) for column in columns(own["weight"])] for row in dy]
                found = {"weight": [[w.dot(g, v) for v in columns(x[0])] for g in columns(dy)]}
                if bias:
                    found["bias"] = sums["bias"]
                    for row in dy:
                        found["bias"] = list(map(w.add, found["bias"], row))
                return [dx], found

            return y, of_linear
        case RMSNorm(epsilon=epsilon):
            return norm(tallies, own, sums, x[0], epsilon, centred=False)
        case LayerNorm(epsilon=epsilon):
            return norm(tallies, own, sums, x[0], epsilon, centred=True)
        case Attention():
            return attention(layer, tallies, own, sums, *x)
        case Experts():
            return experts(layer, tallies, own, sums, x[0])
        case GELU() | SiLU() | SquaredReLU() | ReLU():
            forward, gradient = ELEMENTWISE[type(layer)]
            return elements(partial(forward, f), x[0]), lambda dy: (
                [elements(partial(gradient, b), x[0], dy)],
                {},
            )
        case Product():
            return elements(f.mul, *x), lambda dy: (
                [elements(b.mul, dy, x[1]), elements(b.mul, dy, x[0])],
                {},
            )
        case Add():
            return added(f, x), lambda dy: ([dy] * len(x), {})
    raise AssertionError(f"no formula for {layer}")


def elements(operation: Callable[..., float], *tensors: Rows) -> Rows:
    return [list(map(operation, *rows)) for rows in zip(*tensors, strict=True)]


def columns(rows: Rows) -> list[list[float]]:
    return [list(column) for column in zip(*rows, strict=True)]


def phi(tally: Tally, value: float) -> float:
    return tally.mul(0.5, tally.add(1.0, tally.erf(tally.mul(value, 1 / math.sqrt(2)))))


def sigmoid(tally: Tally, value: float) -> float:
    return tally.div(1.0, tally.add(1.0, tally.exp(-value)))


def of_gelu(b: Tally, value: float, dy: float) -> float:
    density = b.mul(b.exp(b.mul(b.mul(value, value), -0.5)), 1 / math.sqrt(2 * math.pi))
    return b.mul(dy, b.add(phi(Tally(), value), b.mul(value, density)))


def of_silu(b: Tally, value: float, dy: float) -> float:
    kept = sigmoid(Tally(), value)
    return b.mul(dy, b.mul(kept, b.add(1, b.mul(value, b.sub(1, kept)))))


def squared(f: Tally, value: float) -> float:
    rectified = f.max(value, 0.0)
    return f.mul(rectified, rectified)


# What it puts out, and the gradient of what it reads.
ELEMENTWISE: dict[type[Layer], tuple[Callable[..., float], Callable[..., float]]] = {
    GELU: (lambda f, value: f.mul(value, phi(f, value)), of_gelu),
    SiLU: (lambda f, value: f.mul(value, sigmoid(f, value)), of_silu),
    SquaredReLU: (squared, lambda b, value, dy: b.mul(dy, b.mul(2.0, max(value, 0.0)))),
    ReLU: (lambda f, value: f.max(value, 0.0), lambda b, value, dy: dy if b.max(value, 0.0) > 0 else 0.0),
}


def norm(
    tallies: Tallies, own: Weights, sums: Weights, x: Rows, epsilon: float, centred: bool
) -> tuple[Rows, Backward]:
    f, b, w = tallies.forward, tallies.input_grad, tallies.weight_grad
    y, normal, inverses = [], [], []
    for row in x:
        if centred:
            mean = f.div(f.sum(row), len(row))
            row = [f.sub(value, mean) for value in row]
        square = f.div(f.sum([f.mul(value, value) for value in row]), len(row))
        inverse = f.div(1.0, f.sqrt(f.add(square, epsilon)))
        normal.append([f.mul(value, inverse) for value in row])
        inverses.append(inverse)
        scaled = list(map(f.mul, normal[-1], own["weight"]))
        y.append(list(map(f.add, scaled, own["bias"])) if centred else scaled)

    def backward(dy: Rows) -> tuple[list[Rows], Weights]:
        dx, found = [], dict(sums)
        for row, n, inverse in zip(dy, normal, inverses, strict=True):
            g = list(map(b.mul, row, own["weight"]))
            along = b.div(b.sum(list(map(b.mul, g, n))), len(g))
            if centred:
                mean = b.div(b.sum(g), len(g))
                g = [b.sub(value, mean) for value in g]
            dx.append([b.mul(b.sub(value, b.mul(v, along)), inverse) for value, v in zip(g, n, strict=True)])
            found["weight"] = list(map(w.add, found["weight"], map(w.mul, row, n)))
            if centred:
                found["bias"] = list(map(w.add, found["bias"], row))
        return [dx], found

    return y, backward


def heads(rows: Rows, number: int) -> list[Rows]:
    width = len(rows[0]) // number
    return [[row[head * width : (head + 1) * width] for row in rows] for head in range(number)]


def together(parts: Sequence[Rows]) -> Rows:
    return [[value for part in parts for value in part[place]] for place in range(len(parts[0]))]


def turned(tally: Tally, rows: Rows, base: float, back: bool) -> Rows:
    """Each pair by the angle of its position, or back by it."""
    found = []
    for place, row in enumerate(rows):
        half = len(row) // 2
        new = list(row)
        for j in range(half):
            angle = place * base ** (-2 * j / len(row)) * (-1 if back else 1)
            cosine, sine = math.cos(angle), math.sin(angle)  # of a table
            new[j] = tally.sub(tally.mul(row[j], cosine), tally.mul(row[half + j], sine))
            new[half + j] = tally.add(tally.mul(row[j], sine), tally.mul(row[half + j], cosine))
        found.append(new)
    return found


def attention(
    layer: Attention, tallies: Tallies, own: Weights, sums: Weights, *x: Rows
) -> tuple[Rows, Backward]:
    """A double loop over the pairs of each head: position i reads j of 0 … i, or the last of them."""
    f, b = tallies.forward, tallies.input_grad
    q, k, v = heads(x[0], layer.heads), heads(x[1], layer.groups), heads(x[2], layer.groups)
    norms: dict[str, Backward] = {}
    if layer.head_norm:
        q, norms["query_norm"] = head_norms(tallies, own, sums, q, "query_norm")
        k, norms["key_norm"] = head_norms(tallies, own, sums, k, "key_norm")
    seen = [range(max(0, i + 1 - layer.window) if layer.window else 0, i + 1) for i in range(len(x[0]))]
    if layer.rotary:
        q = [turned(f, rows, layer.rotary, back=False) for rows in q]
        k = [turned(f, rows, layer.rotary, back=False) for rows in k]
    scale = 1 / math.sqrt(len(q[0][0]))
    group = [head * layer.groups // layer.heads for head in range(layer.heads)]
    y: list[Rows] = []
    probabilities: list[Rows] = []
    for head in range(layer.heads):
        y.append([])
        probabilities.append([])
        for i, query in enumerate(q[head]):
            scores = [f.mul(f.dot(query, k[group[head]][j]), scale) for j in seen[i]]
            greatest = f.greatest(scores)
            powers = [f.exp(f.sub(score, greatest)) for score in scores]
            total = f.sum(powers)
            row = [f.div(power, total) for power in powers]
            probabilities[-1].append(row)
            y[-1].append([f.dot(row, column) for column in columns([v[group[head]][j] for j in seen[i]])])

    def backward(dy: Rows) -> tuple[list[Rows], Weights]:
        positions = len(dy)
        dq: list[Rows] = []
        dk: list[list[Rows]] = [[] for _ in range(layer.groups)]
        dv: list[list[Rows]] = [[] for _ in range(layer.groups)]
        for head, g in enumerate(heads(dy, layer.heads)):
            keys, values = k[group[head]], v[group[head]]
            scores: Rows = []
            for i, row in enumerate(probabilities[head]):
                dp = [b.dot(g[i], values[j]) for j in seen[i]]
                along = b.sum(list(map(b.mul, row, dp)))
                ds = [b.mul(p, b.sub(value, along)) for p, value in zip(row, dp, strict=True)]
                scores.append([b.mul(value, scale) for value in ds])
            dq.append(
                [[b.dot(row, c) for c in columns([keys[j] for j in seen[i]])] for i, row in enumerate(scores)]
            )
            below = [[i for i in range(positions) if j in seen[i]] for j in range(positions)]
            for found, weights, read in ((dk, scores, q[head]), (dv, probabilities[head], g)):
                found[group[head]].append(
                    [
                        [
                            b.dot(
                                [weights[i][j - seen[i].start] for i in below[j]],
                                [read[i][c] for i in below[j]],
                            )
                            for c in range(len(read[0]))
                        ]
                        for j in range(positions)
                    ]
                )
        shared_k, shared_v = [[added(b, parts) for parts in found] for found in (dk, dv)]
        if layer.rotary:
            dq = [turned(b, rows, layer.rotary, back=True) for rows in dq]
            shared_k = [turned(b, rows, layer.rotary, back=True) for rows in shared_k]
        found: Weights = {}
        if layer.head_norm:
            dq, found["query_norm"] = undone(norms["query_norm"], dq)
            shared_k, found["key_norm"] = undone(norms["key_norm"], shared_k)
        return [together(dq), together(shared_k), together(shared_v)], found

    return together(y), backward


def head_norms(
    tallies: Tallies, own: Weights, sums: Weights, parts: list[Rows], name: str
) -> tuple[list[Rows], Backward]:
    """An RMSNorm of every row of every head, whose scale all heads share."""
    rows = [row for part in parts for row in part]
    before = {"weight": sums[name]} if name in sums else {}
    y, backward = norm(tallies, {"weight": own[name]}, before, rows, 1e-6, centred=False)
    return split(y, len(parts)), backward


def undone(backward: Backward, parts: list[Rows]) -> tuple[list[Rows], list[float]]:
    """The gradients of what the heads were, and of their scale."""
    (rows,), found = backward([row for part in parts for row in part])
    return split(rows, len(parts)), found["weight"]


def split(rows: Rows, number: int) -> list[Rows]:
    each = len(rows) // number
    return [rows[part * each : (part + 1) * each] for part in range(number)]


def experts(layer: Experts, tallies: Tallies, own: Weights, sums: Weights, x: Rows) -> tuple[Rows, Backward]:
    """Position by position; the gradients of weights of all positions that chose an expert are products."""
    f, b, w = tallies.forward, tallies.input_grad, tallies.weight_grad
    kept: list[Any] = []
    y: Rows = []
    for row in x:
        scores = [f.dot(row, weights) for weights in own["router"]]
        left = dict(enumerate(map(f.add, scores, own["balance"])))
        which = []
        for _ in range(layer.chosen):
            greatest = f.greatest(list(left.values()))
            which.append(next(expert for expert, value in left.items() if value == greatest))
            del left[which[-1]]
        powers = [f.exp(f.sub(scores[expert], max(scores[e] for e in which))) for expert in which]
        total = f.sum(powers)
        shares = [f.div(power, total) for power in powers]
        parts, made = [], []
        for expert in which:
            one = Tallies(f, b, Tally())
            into = [f.dot(row, weights) for weights in own["up"][expert]]
            if layer.gated:
                gate = [f.dot(row, weights) for weights in own["gate"][expert]]
                (acted,), of_silu = naive(SiLU(), one, {}, {}, [gate])
                (hidden,), of_product = naive(Product(), one, {}, {}, [acted], [into])
                parts.append((hidden, of_silu, of_product))
            else:
                (hidden,), of_gelu = naive(GELU(), one, {}, {}, [into])
                parts.append((hidden, of_gelu, None))
            made.append([f.dot(hidden, weights) for weights in own["down"][expert]])
        weighed = [[f.mul(share, value) for value in out] for share, out in zip(shares, made, strict=True)]
        y.append(added(f, [[out] for out in weighed])[0])
        kept.append((row, which, shares, parts, made))

    def backward(dy: Rows) -> tuple[list[Rows], Weights]:
        dx, ds = [], []
        rows: dict[str, dict[int, list[tuple[list[float], list[float]]]]] = {"up": {}, "gate": {}, "down": {}}
        for g, (row, which, shares, parts, made) in zip(dy, kept, strict=True):
            dp = [b.sum(list(map(b.mul, g, out))) for out in made]
            along = b.sum(list(map(b.mul, shares, dp)))
            ds.append([0.0] * layer.experts)
            for expert, p, value in zip(which, shares, dp, strict=True):
                ds[-1][expert] = b.mul(p, b.sub(value, along))
            reads = [[b.dot(ds[-1], column) for column in columns(own["router"])]]
            for expert, p, (hidden, of_activation, of_product) in zip(which, shares, parts, strict=True):
                go = [b.mul(p, value) for value in g]
                gh = [b.dot(go, column) for column in columns(own["down"][expert])]
                rows["down"].setdefault(expert, []).append((go, hidden))
                gradients = {}
                if of_product is None:
                    ((gradients["up"],),), _ = of_activation([gh])
                else:
                    ((ga,), (gradients["up"],)), _ = of_product([gh])
                    ((gradients["gate"],),), _ = of_activation([ga])
                for name, gradient in gradients.items():
                    reads.append([b.dot(gradient, column) for column in columns(own[name][expert])])
                    rows[name].setdefault(expert, []).append((gradient, row))
            dx.append(added(b, [[read] for read in reads])[0])
        found = {"router": [[w.dot(g, v) for v in columns(x)] for g in columns(ds)]}
        for name in ("gate", "up", "down") if layer.gated else ("up", "down"):
            found[name] = [
                [
                    [w.dot(g, v) for v in columns([v for _, v in pairs])]
                    for g in columns([g for g, _ in pairs])
                ]
                if (pairs := rows[name].get(expert))
                else sums[name][expert]
                for expert in range(layer.experts)
            ]
        return [dx], found

    return y, backward


def added(tally: Tally, parts: Sequence[Rows]) -> Rows:
    total = parts[0]
    for part in parts[1:]:
        total = elements(tally.add, total, part)
    return total


def log_probability(tally: Tally, logits: Sequence[float], right: int) -> float:
    """As an evaluation asks for it."""
    greatest = tally.greatest(logits)
    less = [tally.sub(value, greatest) for value in logits]
    return tally.sub(less[right], tally.log(tally.sum([tally.exp(value) for value in less])))


def cross_entropy(tallies: Tallies, logits: Sequence[float], right: int) -> tuple[float, list[float]]:
    """The loss and its gradient, which is multiplied by the share of the position in the mean."""
    f, b = tallies.forward, tallies.input_grad
    greatest = f.greatest(logits)
    powers = [f.exp(f.sub(value, greatest)) for value in logits]
    total = f.sum(powers)
    probabilities = [f.div(power, total) for power in powers]
    loss = f.add(f.sub(greatest, logits[right]), f.log(total))
    wanted = [float(place == right) for place in range(len(logits))]
    return loss, [b.mul(b.sub(p, one), 1.0) for p, one in zip(probabilities, wanted, strict=True)]
