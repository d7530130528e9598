"""Words of a journal that batch scripts look for: they are known without what reads one."""

from __future__ import annotations

TERMINATED = "terminated"
"""Why a leg ended: the scheduler asked for it, and the run is to be continued."""

TESTED = "Tested"
"""The event after which a run is complete: the name of its class."""
