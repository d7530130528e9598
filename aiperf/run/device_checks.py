"""The device check as the master asks for it: before the span, again of devices that deviate, after it."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.config import LimitsConfig
from aiperf.errors import WorldError
from aiperf.journal.attempts import Leg
from aiperf.proposing.plan import measuring_seconds
from aiperf.score.deviation import Deviation, at_beginning
from aiperf.wire.messages import CheckDevice
from aiperf.wording import first_few

SHARE = 0.25
"""Time of a check on an accelerator, as a share of `measuring_seconds`: 5 s in a run of five minutes."""
END_SECONDS = 30.0
"""Time in seconds, added to that of the check, after which a device that did not answer is unknown."""


def check_devices(limits: LimitsConfig, ranks: Sequence[int] = ()) -> CheckDevice:
    """The request to these ranks, or to all."""
    return CheckDevice(SHARE * measuring_seconds(limits), tuple(ranks))


def deviating_note(deviations: Sequence[Deviation]) -> str:
    """The devices that deviate, in one line; empty if none does."""
    return first_few([deviation.text for deviation in deviations])


def refuse_deviating(leg: Leg, allowed: bool) -> str:
    """A note on the devices that deviate, if they are `allowed`; otherwise raises WorldError if there are
    any. Devices whose bits cannot be compared deviate from nothing."""
    note = deviating_note(at_beginning(leg).deviations)
    if note and not allowed:
        raise WorldError(
            f"{note}; leave out that device and have it tested, or use --allow-deviating, which costs the "
            f"class ranked"
        )
    return note
