"""The text around the lines of a network: its file, and what torch has no function for."""

FILE = '''"""A network that aiperf-hpc found. This file needs torch and safetensors alone.

{told}

The weights are beside it, in the file of the same name that ends with .safetensors.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
{functional}

{helpers}class Network(nn.Module):
    """{reads} (batch × {shape}) to logits (batch × {output}). A line that changes the shape says the new one,
    without the batch."""

    def __init__(self) -> None:
        super().__init__()
        {made}

    def forward(self, {reads}: Tensor) -> Tensor:
        {computed}
        return {result}


def load(path: Path = Path(__file__).with_suffix(".safetensors")) -> Network:
    """The trained network, ready to be evaluated."""
    network = Network()
    network.load_state_dict(load_file(path))
    return network.eval()


if __name__ == "__main__":
    with torch.inference_mode():
        print(load()({example}))
'''

ATTENTION = '''\
def attention(q: Tensor, k: Tensor, v: Tensor, heads: int, groups: int, rotary: float) -> Tensor:
    """Causal. Query head i reads group i * groups // heads. Where `rotary` is not 0, it is the base by which
    queries and keys are turned by their position."""
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
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


'''

EXPERTS = '''\
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
            result = result.index_add(0, row, F.linear(hidden, self.down[expert]) * shares[row, place, None])
        return result.view_as(values)


'''
