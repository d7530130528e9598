"""Training on a CPU with few passes over memory for the layers between the convolutions.

`kernels.c` is compiled by the machine's compiler when it is first needed. See docs/performance.md.
"""

from aiperf.engines.fused.fusion import Fused, fuse
from aiperf.engines.fused.kernels import unavailable

__all__ = ["Fused", "fuse", "unavailable"]
