"""A mixture of experts: at each position a few of many MLPs, chosen by a router."""

from __future__ import annotations

from collections.abc import Mapping

from nas.frozen import frozen
from nas.layers.activations import GELU, SiLU, onnx_gelu, onnx_silu
from nas.layers.joins import Product
from nas.layers.layer import INDEX, WIDE, Footprint, Layer, LayerPlace, Read, Start, TorchLine, text_start
from nas.layers.shapes import Shape, ShapeError, refuse_no_sizes, sequence
from nas.ops import Cost, Ops


@frozen
class Experts(Layer):
    """The outputs of the `chosen` experts with the greatest scores, weighed by the softmax of these scores.

    Shazeer et al., arXiv:1701.06538; the weights are those of the chosen alone, as in Jiang et al.,
    "Mixtral", arXiv:2401.04088. Each position chooses for itself and none is dropped. An expert is
    down·GELU(up·x), and `gated` down·(SiLU(gate·x) ⊙ up·x), of width `hidden`. For the choice alone a balance
    is added to the scores; it grows while an expert is chosen too seldom (Wang et al., arXiv:2408.15664).

    Weights: router (experts, features), up and gate (experts, hidden, features), down (experts, features,
    hidden).
    """

    frees_output = True
    experts: int
    chosen: int
    hidden: int
    gated: bool = True

    def __post_init__(self) -> None:
        refuse_no_sizes(self, "experts", "chosen", "hidden")
        if not 2 <= self.chosen <= self.experts:
            # Of one alone the weight is always 1, so that no gradient reaches the router.
            raise ShapeError(
                f"Experts: {self.chosen} chosen of {self.experts}; 2 or more, and no more than all"
            )

    def shape(self, *inputs: Shape) -> Shape:
        return sequence(self, inputs)

    def weights(self, *inputs: Shape) -> Mapping[str, Shape]:
        features = inputs[0][1]
        up = (self.experts, self.hidden, features)
        gate = {"gate": up} if self.gated else {}
        down = (self.experts, features, self.hidden)
        return {"router": (self.experts, features), **gate, "up": up, "down": down}

    def statistics(self, *inputs: Shape) -> Mapping[str, Shape]:
        return {"balance": (self.experts,)}

    def num_activations(self, *inputs: Shape) -> int:
        """Scores and output; of each that is chosen, what its layers put out by themselves."""
        positions, d = inputs[0]
        inside = (4 if self.gated else 2) * self.hidden + d
        return positions * (self.experts + self.chosen * inside + d)

    def costs(self, *inputs: Shape) -> Mapping[str, Cost]:
        """The operations of the router and of the experts that are chosen; the others make nothing."""
        (positions, d), k, all_of = inputs[0], self.chosen, self.experts
        products = Ops(mac=positions * all_of * d)
        # balance: add E; the k greatest: cmp (E − 1) + … + (E − k); differences from the greatest: add k,
        # exp k; sum: add k − 1; div k
        choice = Ops(add=all_of + 2 * k - 1, cmp=k * all_of - k * (k + 1) // 2, exp=k, div=k) * positions
        # p·(dp − Σ p·dp): mul k, add k − 1, add k, mul k
        choice_grad = Ops(mul=2 * k, add=2 * k - 1) * positions
        router = Cost(products + choice, products + choice_grad, products, products + choice)

        matrices = 3 if self.gated else 2
        products = Ops(mac=positions * k * matrices * self.hidden * d)
        # weighed: mul k·d; sum: add (k − 1)·d
        weighed = Ops(mul=k * d, add=(k - 1) * d) * positions
        # p·dy: mul k·d; dp = Σ dy·out: mul k·d, add k·(d − 1); what reads x, the router too, adds up its dx:
        # add k·(matrices − 1)·d
        weighed_grad = Ops(mul=2 * k * d, add=k * (d - 1) + k * (matrices - 1) * d) * positions
        experts = Cost(products + weighed, products + weighed_grad, products, products + weighed)
        for layer, reads in ((SiLU(), 1), (Product(), 2)) if self.gated else ((GELU(), 1),):
            for cost in layer.costs(*[(positions * k, self.hidden)] * reads).values():
                experts += cost
        return {"router": router, "experts": experts}

    def counted_in_vain(self, *inputs: Shape) -> str:
        """Choosing is counted as one pass over the scores for each expert that is chosen. For a few these
        comparisons are less work than the router's products; for many, nobody makes them."""
        if self.chosen <= (features := inputs[0][1]):
            return ""
        return f"the router of {{}} chooses {self.chosen:,} experts by {features:,} features"

    def start(self, tensor: str, *inputs: Shape) -> Start:
        return text_start(tensor)

    def footprint(self, narrow: int, *reads: Read) -> Footprint:
        """The rows of each expert in each of its products, what its layers put out, and the order of the
        rows."""
        (positions, features), chosen = reads[0].shape, self.chosen
        copied = reads[0].width != narrow
        rows = positions * chosen * features
        matrices, hidden = (2, 4) if self.gated else (1, 2)
        inside = rows * narrow * ((matrices if copied else 1) + 1) + narrow * positions * features * copied
        inside += positions * chosen * (hidden * self.hidden * narrow + 3 * INDEX + WIDE + narrow)
        inside += positions * self.experts * narrow
        return Footprint(
            narrow,
            () if copied else (0,),
            inside=inside,
            forward=rows * narrow,
            backward=2 * rows * reads[0].width,
            narrow_weights=narrow < WIDE,
        )

    def torch_line(self, *inputs: Shape) -> TorchLine:
        sizes = f"{inputs[0][1]}, {self.experts}, {self.chosen}, {self.hidden}, gated={self.gated}"
        return TorchLine("{own}({0})", f"Experts({sizes})", (IN_PYTHON,))

    def onnx(self, at: LayerPlace, *inputs: str) -> None:
        """Every expert makes something of every position, and the shares of those not chosen are 0. ONNX
        cannot sort rows by their expert, so that this does experts / chosen times the work."""
        positions, features = at.reads[0]
        rows = at.step("Reshape", inputs[0], at.constant("rows", [-1, features]))
        scores = at.step("MatMul", rows, at.constant("router", at.weights["router"].T))
        balanced = at.step("Add", scores, at.weight("balance"))
        _, which = at.steps("TopK", 2, balanced, at.constant("chosen", [self.chosen]), axis=1)
        shares = at.step("Softmax", at.step("GatherElements", scores, which, axis=1), axis=1)
        none = at.step("ConstantOfShape", at.step("Shape", scores))
        shares = at.step("Transpose", at.step("ScatterElements", none, which, shares, axis=1), perm=(1, 0))

        def by_expert(values: str, tensor: str) -> str:
            """(experts, rows, features out)"""
            return at.step("MatMul", values, at.constant(tensor, at.weights[tensor].swapaxes(1, 2)))

        hidden = by_expert(rows, "up")
        if self.gated:
            hidden = at.step("Mul", onnx_silu(at, by_expert(rows, "gate")), hidden)
        else:
            hidden = onnx_gelu(at, hidden)
        weighed = at.step(
            "Mul", by_expert(hidden, "down"), at.step("Unsqueeze", shares, at.constant("features", [2]))
        )
        mixed = at.step("ReduceSum", weighed, at.constant("experts", [0]), keepdims=0)
        at.last("Reshape", mixed, at.constant("shape", [-1, positions, features]))


IN_PYTHON = '''\
class Experts(nn.Module):
    """At each position the `chosen` experts with the greatest scores, weighed by the softmax of these. The
    balance is added for the choice alone; the run that trained the network changed it, this file does not."""

    def __init__(self, features: int, experts: int, chosen: int, hidden: int, gated: bool) -> None:
        super().__init__()
        self.chosen, self.gated = chosen, gated
        self.router = nn.Parameter(torch.empty(experts, features))
        self.up = nn.Parameter(torch.empty(experts, hidden, features))
        self.down = nn.Parameter(torch.empty(experts, features, hidden))
        self.register_buffer("balance", torch.empty(experts))
        if gated:
            self.gate = nn.Parameter(torch.empty(experts, hidden, features))

    def forward(self, values: Tensor) -> Tensor:
        rows = values.flatten(0, -2)
        scores = F.linear(rows, self.router)
        which = (scores + self.balance).topk(self.chosen).indices
        shares = scores.gather(1, which).softmax(1)
        result = torch.zeros_like(rows)
        for expert in range(len(self.router)):
            row, place = (which == expert).nonzero(as_tuple=True)
            hidden = F.linear(rows[row], self.up[expert])
            hidden = F.silu(F.linear(rows[row], self.gate[expert])) * hidden if self.gated else F.gelu(hidden)
            made = F.linear(hidden, self.down[expert]) * shares[row, place, None]
            result = result.index_add(0, row, made.to(result))  # under autocast it is of another type
        return result.view_as(values)


'''
