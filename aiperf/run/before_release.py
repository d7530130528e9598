"""Checks of the ranks that are ready, before the clock starts.

Pure functions of the ranks' messages. Those named `refuse…` raise WorldError for the first fault, with its
remedy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from aiperf.errors import NotReady, WorldError
from aiperf.journal.events import RankReady
from aiperf.rules.participants import format_faults
from aiperf.wire.clocks import CLOCK_SECONDS
from aiperf.wire.formats import emulation_text
from aiperf.wire.messages import NOTE, Observe, Ready

USE_SECONDS, LEAST_USE_SECONDS, USE_SHARE = 60.0, 2.0, 0.1
"""Time between two reports on the use of a host's processors: a minute, in a short run a tenth of it, because
its last interval is not reported."""
LATE_SHOWN = 10
"""Maximum number of late ranks named in a message: on a large machine whole nodes are late, and the message
is one line."""


def refuse_difference(ready: Ready, first: Ready) -> None:
    """Refuses a rank whose code, data or initial weights differ from the first rank's, since their work would
    not be comparable."""
    for what in ("code_hash", "data", "initial_weights"):
        if getattr(ready, what) != getattr(first, what):
            raise WorldError(
                f"rank {ready.rank} on {ready.host} and rank {first.rank} on {first.host} differ in "
                f"{what.replace('_', ' ')}; use the same installation and data on all nodes"
            )


def refuse_idle_devices(ranks: Sequence[Ready]) -> None:
    """Refuses devices of a host that no rank uses, or that several ranks share: the commonest mistake in a
    first job script."""
    shared = Counter((each.host, each.device_id) for each in ranks if each.device_id)
    for (host, _), num_ranks in shared.items():
        if num_ranks > 1:
            raise WorldError(
                f"{num_ranks} ranks on {host} have the same device; start one rank for each device and "
                "one more for the master, and make all devices of a host visible to each of its ranks"
            )
    workers = Counter(each.host for each in ranks)
    for each in ranks:
        if each.device_id and workers[each.host] < each.visible_devices and each.visible_devices > 1:
            right = len(workers) * each.visible_devices + 1
            raise WorldError(
                f"{each.host} shows {each.visible_devices} devices to {workers[each.host]} training "
                f"rank(s); start {right} ranks (one per device, plus the master), or make fewer devices "
                f"visible"
            )


def refuse_other_formats(declared: str, ranks: Iterable[Ready]) -> None:
    """Refuses products in a narrower format than declared, which would make the run INVALID at its end."""
    for ready in ranks:
        for wrong in format_faults(declared, ready):
            raise WorldError(f"{wrong}; unset the setting that causes this, or declare that format")


def refuse_other_clocks(ranks: Iterable[RankReady]) -> None:
    """Refuses hosts whose time of day differs from the master's, which would make the run INVALID as well."""
    for event in ranks:
        if event.clock.least_seconds > CLOCK_SECONDS:
            raise WorldError(
                f"the clocks of {event.ready.host} and the master differ by "
                f"{abs(event.clock_offset_seconds):.1f} s; synchronise them (chrony, ntp)"
            )


def not_in_time(seconds: float, groups: Iterable[tuple[int, ...]], ranks: Iterable[Ready]) -> NotReady:
    """The error of a run that cannot begin because its groups were not ready after `seconds`; `ranks` are
    those that were."""
    ready = {each.rank for each in ranks}
    late = [str(rank) for group in groups for rank in group if rank not in ready]
    which = f", of {len(late)} no word came: rank {', '.join(late[:LATE_SHOWN])}" if late else ""
    return NotReady(f"not all ranks were ready in {seconds / 60:.0f} minutes{which}; see logs/")


def lost(group: int, was_ready: bool, reason: str) -> NotReady:
    """The error of a run that cannot begin because a group was lost."""
    what = "was lost before the clock started" if was_ready else "failed to start"
    return NotReady(f"group {group} {what}: {reason}")


def notes(directory: Path, declared: str, ranks: Sequence[Ready]) -> list[str]:
    """Notes for the user: what of a folder is read, accelerators that are not used, hosts that do not share
    the run directory, and a format that is emulated."""
    found = [f"data: {ranks[0].data_note}"] if ranks[0].data_note else []
    if apart := sorted({ready.host for ready in ranks if not ready.sees_run}):
        found.append(
            f"{directory} is not shared with {', '.join(apart)}: weights, and at the end rank logs, are "
            f"sent over MPI"
        )
    emulated = (emulation_text(ready.device, declared, ready.formats) for ready in ranks)
    if text := next(filter(None, emulated), ""):
        found.append(f"{text}; --format auto chooses the fastest native format")
    noted = {ready.host: ready.settings[NOTE] for ready in ranks if NOTE in ready.settings}
    for text in dict.fromkeys(noted.values()):
        hosts = sorted(host for host, other in noted.items() if other == text)
        found.append(f"{hosts[0]}{f' and {len(hosts) - 1} more' * (len(hosts) > 1)}: {text}")
    return found


def observed(ranks: Sequence[Ready], master: tuple[str, int], minutes: float) -> Observe:
    """The message that starts the recording. `master`: host and process of the master. `minutes`: the length
    of the run, 0 without a limit."""
    host, process = master
    processes: dict[str, tuple[int, ...]] = {host: (process,)}
    for ready in ranks:
        processes[ready.host] = (*processes.get(ready.host, ()), ready.pid)
    share = 60 * minutes * USE_SHARE or USE_SECONDS
    return Observe(devices_by_host(ranks), processes, min(USE_SECONDS, max(LEAST_USE_SECONDS, share)))


def devices_by_host(ranks: Iterable[Ready]) -> dict[str, tuple[str, ...]]:
    """The identities of the devices that the ranks of each host have."""
    devices: dict[str, tuple[str, ...]] = {}
    for ready in ranks:
        known = devices.get(ready.host, ())
        devices[ready.host] = known if ready.device_id in ("", *known) else (*known, ready.device_id)
    return devices
