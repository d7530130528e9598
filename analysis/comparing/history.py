"""A run compared with the earlier ones of its machine: what changed in its figures and environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum
from statistics import median

from aiperf.names import differ
from aiperf.score.rungs import at_common_rung, controls_of
from aiperf.wording import counted, percent
from analysis.comparing.comparability import CODE, unlike
from analysis.comparing.comparison import environment
from analysis.readings.judgement import Judged
from analysis.readings.score_figures import Figure, figures, num_devices

HELD = ("ops_per_second", "control_examples_per_second")
"""Keys of the figures that fall when a machine becomes slower."""


@dataclass(frozen=True)
class Drop:
    """How far one figure of some runs lies below the median of earlier runs."""

    figure: Figure
    share: float | None
    """The difference as a share of that median; below 0 if the runs have more. None if the figure is unknown
    for one of the runs or for all earlier ones."""
    earlier: int
    """Earlier runs that have the figure."""

    @property
    def text(self) -> str:
        if self.share is None:
            return f"{self.figure.name}: not known for both these runs and an earlier one"
        side = "below" if self.share >= 0 else "above"
        of = "the earlier run" if self.earlier == 1 else f"the median of {self.earlier} earlier runs"
        return f"{self.figure.name} {percent(abs(self.share))} {side} {of}"


def earlier(run: Judged, others: Sequence[Judged], most: int) -> list[Judged]:
    """The last `most` VALID runs that began before `run`, with its configuration, data, devices and size,
    oldest first.

    Their code may differ: a new version of the program is one of the changes that a site looks for, and
    `environment` names it.
    """
    same = [
        other
        for other in others
        if other.valid
        and other.replay.begin_chain != run.replay.begin_chain
        and other.began < run.began
        and num_devices(other.replay) == num_devices(run.replay)
        and set(unlike(run, other)) <= {CODE}
    ]
    return sorted(same, key=lambda other: other.began)[-most:]


def drops(runs: Sequence[Judged], before: Sequence[Judged]) -> list[Drop]:
    """The medians of sustained OPS and the control, compared with those of the earlier runs."""
    own = [figures(run.replay, run.score) for run in runs]
    ops, control = (_median([each[key] for each in own]) for key in HELD)
    return [
        _drop(ops, [each.score.ops_per_second for each in before]),
        _drop(control, [_control(runs, each, control.value) for each in before]),
    ]


def _median(each: Sequence[Figure]) -> Figure:
    """The figure with the median of its values; unknown if one value is."""
    values = [one.value for one in each if one.value is not None]
    return replace(each[0], value=median(values) if len(values) == len(each) else None)


def _control(runs: Sequence[Judged], other: Judged, own: float | None) -> float | None:
    """The other run's control, scaled so that it compares with `own`, the median control of the runs.

    Both are taken at a rung that all have, because rates of two rungs do not compare. None if there is none.
    """
    common = at_common_rung([controls_of(each.replay) for each in (*runs, other)])
    if own is None or common is None:
        return None
    *mine, its = (fsum(each.examples_per_second for each in controls.values()) for controls in common)
    return own * its / median(mine) if median(mine) > 0 else None


def _drop(own: Figure, theirs: Sequence[float | None]) -> Drop:
    known = [value for value in theirs if value]
    if own.value is None or not known:
        return Drop(own, None, len(known))
    return Drop(own, 1 - own.value / median(known), len(known))


def changes(before: Judged, after: Judged) -> list[str]:
    """The differences of the environment, one text per name: "governor: performance, was powersave"."""
    old, new = environment(before), environment(after)
    return [
        f"{name}: {new.get(name, 'absent')}, was {old.get(name, 'absent')}"
        for name in dict.fromkeys((*old, *new))
        if differ(old.get(name), new.get(name))
    ]


def changes_text(found: Sequence[str]) -> str:
    """All of them in one line."""
    return f"{counted(len(found), 'change')}: {'; '.join(found)}" if found else "no change"
