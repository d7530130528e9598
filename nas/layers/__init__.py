"""Every layer: its shape, its weights and its operations, stated once and derived everywhere else.

Shapes are (channels, height, width) or (features,), without a batch dimension. A layer stores only
what was chosen; what it reads is given by the graph. Closed forms use x elements in, y elements out.
Padding is (kernel - 1) // 2 on every side unless it is stated, and padding taps count as operations.
"""

from nas.layers.convolutions import Conv2d, DepthwiseConv2d
from nas.layers.dense import Dense, softmax_cross_entropy
from nas.layers.joins import Add, Concat, Flatten
from nas.layers.layer import Layer
from nas.layers.pointwise import BatchNorm, Dropout, Gate, ReLU, ReLU6
from nas.layers.pools import AdaptiveAveragePool, AveragePool, GlobalPool, MaxPool
from nas.layers.shapes import Shape, ShapeError, is_size
from nas.layers.windows import Convolution, Windowed, Windows

__all__ = [
    "AdaptiveAveragePool",
    "Add",
    "AveragePool",
    "BatchNorm",
    "Concat",
    "Conv2d",
    "Convolution",
    "Dense",
    "DepthwiseConv2d",
    "Dropout",
    "Flatten",
    "Gate",
    "GlobalPool",
    "Layer",
    "MaxPool",
    "ReLU",
    "ReLU6",
    "Shape",
    "ShapeError",
    "Windowed",
    "Windows",
    "is_size",
    "softmax_cross_entropy",
]
