"""The text around the lines of a network."""

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
