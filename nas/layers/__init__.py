"""Every layer: its shape, weights, operations, memory and exported forms, stated once in its class.

Shapes are (channels, height, width) or (features,), of sequences (positions,) or (positions, features), all
without a batch dimension. A layer stores only
what was chosen; what it reads is given by the graph. Closed forms use x elements in, y elements out.
Padding is (kernel - 1) // 2 on every side unless it is stated, and padding taps count as operations.
"""

from nas.layers.activations import GELU, HardSigmoid, HardSwish, SiLU, SquaredReLU
from nas.layers.attention import Attention
from nas.layers.convolutions import Conv2d, DepthwiseConv2d
from nas.layers.dense import Dense, softmax_cross_entropy
from nas.layers.experts import Experts
from nas.layers.joins import Add, ChannelShuffle, Concat, Flatten, Product, Upsample
from nas.layers.layer import Layer, MissingReading
from nas.layers.norms import ChannelNorm, GroupNorm
from nas.layers.pointwise import BatchNorm, Dropout, Gate, ReLU, ReLU6
from nas.layers.pools import AdaptiveAveragePool, AveragePool, GlobalPool, MaxPool
from nas.layers.sequences import Embedding, LayerNorm, Linear, Positions, RMSNorm
from nas.layers.shapes import Shape, ShapeError, is_size
from nas.layers.windows import Convolution, Windowed, Windows

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
    "Convolution",
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
    "softmax_cross_entropy",
]
