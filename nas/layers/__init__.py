"""Every layer: its shape, weights, operations, memory and exported forms, stated once in its class.

Shapes are (channels, height, width) or (features,), of sequences (positions,) or (positions, features), all
without a batch dimension. A layer stores only
what was chosen; what it reads is given by the graph. Closed forms use x elements in, y elements out.
Padding is (kernel - 1) // 2 on every side unless it is stated, and padding taps count as operations.
"""

from nas.layers.activations import GELU, Dropout, HardSigmoid, HardSwish, ReLU, ReLU6, SiLU, SquaredReLU
from nas.layers.attention import Attention
from nas.layers.convolutions import Conv2d, DepthwiseConv2d
from nas.layers.dense import Dense, Embedding, Linear, Positions
from nas.layers.experts import Experts
from nas.layers.joins import Add, ChannelShuffle, Concat, Flatten, Gate, Product, Upsample
from nas.layers.layer import Layer, MissingReading
from nas.layers.norms import BatchNorm, ChannelNorm, GroupNorm, LayerNorm, RMSNorm
from nas.layers.pools import AdaptiveAveragePool, AveragePool, GlobalPool, MaxPool
from nas.layers.shapes import Shape, ShapeError, Windowed, Windows, is_size

__all__ = [
    "GELU",
    "AdaptiveAveragePool",
    "Add",
    "Attention",
    "AveragePool",
    "BatchNorm",
    "ChannelNorm",
    "ChannelShuffle",
    "Concat",
    "Conv2d",
    "Dense",
    "DepthwiseConv2d",
    "Dropout",
    "Embedding",
    "Experts",
    "Flatten",
    "Gate",
    "GlobalPool",
    "GroupNorm",
    "HardSigmoid",
    "HardSwish",
    "Layer",
    "LayerNorm",
    "Linear",
    "MaxPool",
    "MissingReading",
    "Positions",
    "Product",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Shape",
    "ShapeError",
    "SiLU",
    "SquaredReLU",
    "Upsample",
    "Windowed",
    "Windows",
    "is_size",
]
