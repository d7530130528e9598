"""Training on a CPU with few passes over memory for the layers between the convolutions.

`kernels.c` is compiled by the machine's compiler when it is first needed. See docs/performance.md.
"""

from aiperf.engines.fused.engine import Fused
from aiperf.engines.fused.library import unavailable
from aiperf.engines.fused.plan import fuse

__all__ = ["Fused", "fuse", "unavailable"]
