"""Training on a processor with what lies between the convolutions in few passes over memory.

`kernels.c` is compiled by the compiler of the machine when it is first needed. See docs/performance.md.
"""

from aiperf.engines.fused.engine import Fused
from aiperf.engines.fused.library import unavailable
from aiperf.engines.fused.plan import fuse

__all__ = ["Fused", "fuse", "unavailable"]
