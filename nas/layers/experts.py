"""A mixture of experts: at each position a few of many MLPs, chosen by a router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nas.layers.activations import GELU, SiLU
from nas.layers.joins import Product
from nas.layers.layer import Layer
from nas.layers.shapes import Shape, ShapeError, refuse_no_sizes, sequence
from nas.ops import Cost, Ops


@dataclass(frozen=True)
class Experts(Layer):
    """The outputs of the `chosen` experts with the greatest scores, weighed by the softmax of these scores.

    Shazeer et al., arXiv:1701.06538; the weights are those of the chosen alone, as in Jiang et al.,
    "Mixtral", arXiv:2401.04088. Each position chooses for itself and none is dropped. An expert is
    down·GELU(up·x), and `gated` down·(SiLU(gate·x) ⊙ up·x), of width `hidden`. For the choice alone a balance
    is added to the scores; it grows while an expert is chosen too seldom (Wang et al., arXiv:2408.15664).

    Weights: router (experts, features), up and gate (experts, hidden, features), down (experts, features,
    hidden).
    """

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
        """Of the experts that are chosen. Those that are not make nothing."""
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
