"""The cores of this host that this process may use."""

from __future__ import annotations

import os


def allowed_cores() -> int:
    """Number of cores to which this process is bound; where a system does not say that, those of the host."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
