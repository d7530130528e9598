"""Words of a journal that batch scripts search for. They are here so that scripts can be written without
importing the code that reads journals."""

from __future__ import annotations

TERMINATED = "terminated"
"""Reason of a leg that ended at a scheduler's request, and will be continued."""

TESTED = "Tested"
"""Type of the event after which a run is complete, which is the name of its class."""
