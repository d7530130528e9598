"""Training with few passes over memory for the layers between the convolutions: in C on a CPU, in Triton on
NVIDIA's and AMD's devices. See docs/performance.md."""

from aiperf.engines.fused.c_backend import IN_C
from aiperf.engines.fused.fused_engine import BACKENDS, Fused
from aiperf.engines.fused.kernels import unavailable
from aiperf.engines.fused.plan import fuse

__all__ = ["BACKENDS", "IN_C", "Fused", "fuse", "unavailable"]
