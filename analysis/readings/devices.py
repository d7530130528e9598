"""How far the devices of a run stayed from their limits, what they used, which were slow: in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum

from aiperf.errors import JournalError
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.rules.measurements import mean_ceiling
from aiperf.score.lineage import rebuild
from aiperf.score.score import Score
from aiperf.tasks.registry import task_of
from aiperf.wire.reports import Ceiling
from aiperf.wording import clock, counted, kilowatt_hours, percent, plain, rate, scaled
from analysis.readings.energy import Energy, Level, read_energy
from analysis.readings.limits import limits_of
from analysis.readings.outliers import Outlier, outlier_text, outliers
from analysis.readings.references import usual_text
from analysis.readings.robust import LEAST_NUMBER
from analysis.readings.roofline import example_seconds
from analysis.readings.score_figures import num_devices
from analysis.readings.usage import DeviceUse, Usage, read_usage
from analysis.table import Cell, Table
from nas.frozen import frozen

DEVICES_SHOWN = 64
"""Most devices in the table."""
MIXED = ""
"""Key in place of a number of threads if the ranks were measured with different numbers."""


@frozen
class DeviceReadings:
    """What the devices used, and which were slow."""

    usage: Usage
    energy: tuple[Energy, ...]
    """By level, that of the devices first."""
    slow: tuple[Outlier, ...]


def look(files: RunFiles, replay: Replay) -> DeviceReadings:
    """Reads what the devices of a run used, once for all that is said of it."""
    usage = read_usage(files, replay)
    return DeviceReadings(usage, read_energy(files, replay, usage=usage), outliers(replay, usage))


def ceiling_text(replay: Replay, score: Score) -> str:
    """ "9.3 % of 171 GOPS, …": tensor operations over what the ranks measured just before the span."""
    total = mean_ceiling(replay)
    if total is None:
        return "unknown (not measured in this run)"
    share = score.tensor_ops_per_second / total
    if share > 1:
        return f"unknown: the ceiling was measured too low, {rate(total)} in a worse moment than the run"
    usual = usual_text(replay)
    told = f"{percent(share, 1)} of {rate(total)}, the fastest work seen before the span"
    return f"{told}; {usual}" if usual else told


def product_ceilings(replay: Replay) -> Mapping[str, float]:
    """OPS of matrix products of all ranks together, before the span, by number of threads.

    It has the numbers that all ranks were measured with. If there is none, each rank counts with its own, as
    MIXED.
    """
    measured = _first_ceilings(replay)
    counts = set[str]().union(*(one.products for one in measured[:1]))
    counts = counts.intersection(*(one.products for one in measured))
    if measured and not counts:
        return {MIXED: fsum(one.product.fastest for one in measured)}
    in_order = sorted(counts, key=_in_order)
    return {count: fsum(one.products[count].fastest for one in measured) for count in in_order}


def _first_ceilings(replay: Replay) -> list[Ceiling]:
    """Those of the first counted leg that measured any, one per rank."""
    return next(([*leg.ceilings.values()] for leg in replay.counted_legs if leg.ceilings), [])


def most_threads(counts: Iterable[str]) -> str:
    """The largest of these numbers of threads; MIXED if there is none."""
    return max(counts, key=_in_order, default=MIXED)


def products_text(found: Mapping[str, float], count: str) -> str:
    """ "212 GOPS with 1 thread"; of devices that have none, or of several numbers, the rate alone."""
    words = "" if count in (MIXED, "0") else f" with {plain(count)} thread{'' if count == '1' else 's'}"
    return f"{rate(found[count])}{words}"


def threads_text(replay: Replay) -> str:
    """The ceilings of products with each number of threads; empty where only one was measured."""
    found = product_ceilings(replay)
    return ", ".join(products_text(found, count) for count in found) if len(found) > 1 else ""


def choice_text(replay: Replay) -> str:
    """How the number of threads was chosen, by the rank that was least sure; empty if nothing was chosen."""
    chosen = [ceiling for ceiling in _first_ceilings(replay) if ceiling.thread_seconds]
    if not chosen:
        return ""
    least = min(chosen, key=lambda ceiling: ceiling.threads_share)
    times = sorted(least.thread_seconds.items(), key=lambda item: _in_order(item[0]))
    words = ", ".join(f"{1000 * seconds:.3g} ms with {plain(count)}" for count, seconds in times)
    sure = (
        f"{percent(least.threads_share, 0)} of resampled measurements choose the same"
        if least.threads_share
        else "too few measurements to say how sure that is"
    )
    return f"{counted(least.threads, 'thread')} per rank: a step took {words}; {sure}"


def _in_order(count: str) -> tuple[int, str]:
    """Sorting key of a number of threads, which is text here, because a journal may hold any text."""
    return len(count), count


def energy_rows(energy: Sequence[Energy], score: Score) -> list[tuple[str, str]]:
    """A row for each level that was measured; that of the devices always."""
    return [
        ("energy" if each.level is Level.L0 else f"energy, {each.level.name}", energy_text(each, score))
        for each in energy
    ]


def energy_text(energy: Energy, score: Score) -> str:
    """ "1.234 MJ (0.3428 kWh); 5.6 GOPS/W (L1, nodes; by the site's meters, power/L1.csv: 100.0 % of the
    span)", or why it is not known."""
    if energy.joules is None:
        return f"unknown ({energy.missing})"
    per_joule = energy.ops_per_joule(score.goodput.operations) or 0.0
    joules = f"{scaled(energy.joules, 'J')} ({kilowatt_hours(energy.joules)})"
    covered = "" if energy.coverage is None else f": {percent(energy.coverage, 1)} of the span"
    return f"{joules}; {scaled(per_joule, 'OPS/W')} ({energy.level.text}; by {energy.source}{covered})"


def slow_text(slow: Sequence[Outlier], replay: Replay) -> list[str]:
    """A line for each that was slow, or why nobody is named."""
    if slow:
        return [outlier_text(outlier) for outlier in slow]
    if replay.legs and num_devices(replay) < LEAST_NUMBER:
        return ["unknown (fewer than four ranks cannot be compared)"]
    return ["no outliers"]


def roofline_share_text(replay: Replay) -> str:
    """How near the best network's training came to what the measured ceilings allow it; empty: not known."""
    limits, best = limits_of(replay), replay.best
    if limits is None or best is None:
        return ""
    attempt = best.attempts[-1]
    worked = replay.worked()
    examples, seconds = int(worked.examples[attempt.index]), float(worked.seconds[attempt.index])
    if not examples or seconds <= 0:
        return ""
    try:
        graph = rebuild(replay, best.number)
    except JournalError:  # the rule "operations" says so
        return ""
    ranks = len(attempt.leg.began.groups[attempt.group])
    batch = attempt.trial.hyper.batch_size
    allowed = example_seconds(graph, limits, max(1, batch // ranks)) / ranks
    share = allowed / (seconds / examples)
    data = replay.opened.config.data
    at_most = task_of(data).amount.rate_text(1 / allowed, data.size)
    return (
        f"{percent(share, 0)} of the {at_most} that the ceilings of memory and of "
        "matrix products allow the best network, if no layer finds its data in a cache"
    )


def device_table(usage: Usage) -> Table:
    """One row a device; of very many, those that used least and most come first."""
    found = usage.devices
    if len(found) > DEVICES_SHOWN:
        by_joules = sorted(found, key=lambda use: use.joules or 0.0)
        found = (*by_joules[: DEVICES_SHOWN // 2], *by_joules[-DEVICES_SHOWN // 2 :])
    columns = ("host", "device", "energy", "power", "clock, mean", "clock, least", "temperature", "held back")
    return Table.of(columns, map(_row, found), (False, False, True, True, True, True, True, False))


def _row(use: DeviceUse) -> list[Cell]:
    """The cells of a device. Its power is the mean over the spans in which a rank had it."""
    span, held, heat = use.span_seconds, use.throttled_seconds, use.mean_temperature_celsius
    power = None if use.joules is None or span <= 0 else use.joules / span
    held_text = "unknown"
    if held is not None:
        texts = [f"{clock(seconds)} {reason}" for reason, seconds in held.items()]
        held_text = ", ".join(texts) or "never, as far as is known"
    return [
        use.host,
        use.device,
        _known(use.joules, "J"),
        _known(power, "W"),
        _known(use.mean_clock_hertz, "Hz"),
        _known(use.least_clock_hertz, "Hz"),
        ("unknown" if heat is None else f"{heat:.0f} °C", heat),
        held_text,
    ]


def _known(value: float | None, unit: str) -> Cell:
    """A cell that is sorted by its value."""
    return "unknown" if value is None else scaled(value, unit), value
