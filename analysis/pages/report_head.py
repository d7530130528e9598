"""What a report says first: the answer on the run, and the figures that it may be compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aiperf.journal.mark import Mark
from aiperf.rules.ending import Answer
from aiperf.wording import figure, kilowatt_hours, rate
from analysis.readings import run_tables
from analysis.readings.conclusion import conclusion, group_health, losses_text
from analysis.readings.devices import DeviceReadings, ceiling_text, slow_text
from analysis.readings.disturbance import disturbance_text
from analysis.readings.fabric import coupled_reading
from analysis.readings.judgement import Judged
from analysis.readings.progress import node_hours
from analysis.readings.score_figures import Figure, Unit, figures
from analysis.table import Table
from launch.price import Price
from nas.frozen import frozen

COUPLED = "coupled_share"
"""The figure of runs of several devices only."""
KEY = (
    "ops_per_second",
    "regulated_score",
    "error",
    "ops_per_second_per_device",
    "mfu",
    "tensor_ops_per_second",
    "goodput",
    "control_examples_per_second",
    COUPLED,
)
"""Keys of the figures that are read first. Energy and, with a price, money follow, and then `OLD`."""
OLD = "aiperf1_ops_per_second"
"""The rate as the program of 2021 counted it, which comes last because it is not a score."""
FIRST = 3
"""Number of figures next to the throughput, on the first screen."""
SHOWN = 3
"""Most slow ones, and most losses, that are shown first; the section on devices has more."""
STYLES = {
    Answer.VALID: "",
    Answer.INVALID: "refuted",
    Answer.SIMULATED: "",
    Answer.NO_RESULT: "empty",
    Answer.INCOMPLETE: "so-far",
}
"""Class of the style sheet by answer: figures are crossed out or grey."""


@frozen
class About:
    """What is known of a run in addition to its journal."""

    system: str = ""
    """What its owner calls the machine."""
    owner: str = ""
    """Who owns the machine; empty: not stated."""
    price: Price | None = None
    """Price of a node-hour, from which the cost of the run is computed."""
    others: Sequence[tuple[str, Judged]] = ()
    """Runs of other machines to compare it with, each with the name of its machine; empty: not known."""
    tables: Sequence[tuple[str, Table]] = ()
    """Further tables of the page, each with its title."""
    back: str = ""
    """The page of the ranking that this one belongs to."""


NOTHING_MORE = About()
"""Nothing but the journal is known."""


@frozen
class PageHead:
    """The top of a page, in the names of the template."""

    title: str
    """Name of the machine if it is known, otherwise the id of the run."""
    eyebrow: str
    """The small line above the title: owner, run, version, preset."""
    headline: str
    """Shown next to the title in a browser's name of the page."""
    conclusion: str
    """The run in one sentence."""
    standing: Sequence[tuple[str, str]]
    """How good the rate is, and whether it can be trusted: share of the ceiling, and what disturbed the
    run."""
    attention: Sequence[tuple[str, str]]
    """ "slow" or "lost", and a sentence on one such rank or group."""
    word: str
    """The verdict."""
    outcome: str
    """Colour of the word: passed, failed or unknown."""
    text: str
    """Why the verdict is so."""
    style: str
    """Class of the style sheet for the whole page."""
    key: Sequence[Figure]
    """Figures that are read first; empty for a run without a result."""

    @property
    def first(self) -> list[Figure]:
        """The figures of the first screen, next to the throughput."""
        return [one for one in self.key if one.value is not None][:FIRST]

    @property
    def others(self) -> list[Figure]:
        """The figures below the first screen."""
        return [one for one in self.key if one.value is not None][FIRST:]

    @property
    def unknown(self) -> list[Figure]:
        """Figures without a value, of which one line says why."""
        return [one for one in self.key if one.value is None]


def head(judged: Judged, about: About, devices: DeviceReadings) -> PageHead:
    """The top of the page of a run: name, verdict, what needs attention, and the key figures. `devices` are
    the readings of sensors and logs."""
    replay, verdict = judged.replay, judged.verdict
    opened, known = replay.opened, figures(replay, judged.score)
    sound = "passed" if judged.validated else "unknown"
    health = group_health(replay, devices.slow)
    run = f"run {opened.run_id} · " if about.system else ""
    return PageHead(
        title=about.system or opened.run_id,
        eyebrow=f"{f'{about.owner} · ' if about.owner else ''}{run}aiperf-hpc {opened.program} · "
        f"preset {opened.config.preset}",
        headline=known["ops_per_second"].text if verdict.valid else verdict.answer.value,
        conclusion=conclusion(replay, judged.score, verdict, judged.validated, health, about.system),
        standing=_standing(judged),
        attention=_attention(judged, devices),
        word=run_tables.verdict_word(verdict, judged.validated),
        outcome={Answer.VALID: sound, Answer.INVALID: "failed"}.get(verdict.answer, "unknown"),
        text=_sentence(run_tables.verdict_text(verdict, judged.validated), verdict.mark),
        style=STYLES[verdict.answer],
        key=[] if verdict.answer is Answer.NO_RESULT else _key(judged, about.price, devices),
    )


def _standing(judged: Judged) -> list[tuple[str, str]]:
    """Nothing for a run without a result; a run that was not measured was not disturbed either."""
    if judged.verdict.answer is Answer.NO_RESULT:
        return []
    disturbed = [] if judged.verdict.mark else disturbance_text(judged.replay)
    told = [("of the ceiling", ceiling_text(judged.replay, judged.score))]
    return told + ([("disturbed", "; ".join(disturbed))] if disturbed else [])


def _sentence(text: str, mark: Mark | None) -> str:
    """The reason of a mark as a sentence of its own: elsewhere it follows a colon."""
    return text if mark is None else f"{text[:1].upper()}{text[1:]}."


def _attention(judged: Judged, devices: DeviceReadings) -> list[tuple[str, str]]:
    """Slow ranks and lost groups, the first of each kind."""
    slow = slow_text(devices.slow, judged.replay) if devices.slow else []
    found = []
    for word, texts in (("slow", slow), ("lost", losses_text(judged.replay))):
        more = len(texts) - SHOWN
        texts = [*texts[:SHOWN], f"and {more:,} more, below"] if more > 0 else texts
        found += [(word, text) for text in texts]
    return found


def _key(judged: Judged, price: Price | None, devices: DeviceReadings) -> list[Figure]:
    """The key figures in the order of the page. Those of an incomplete run are so far only."""
    known, verdict = figures(judged.replay, judged.score), judged.verdict
    apart = () if coupled_reading(judged.replay) else (COUPLED,)
    found = [known[name] for name in KEY if name not in apart]
    beside = [_energy(judged, devices), *([_money(judged, price)] if price else [])]
    found += [replace(one, mark=verdict.mark) for one in beside]
    if known[OLD].value is not None:
        found.append(known[OLD])
    if verdict.answer is Answer.INCOMPLETE:  # controls were timed before the span, and are what they are
        before = known["control_examples_per_second"], known[COUPLED]
        return [one if one in before else replace(one, name=f"{one.name} so far") for one in found]
    return found


def _energy(judged: Judged, devices: DeviceReadings) -> Figure:
    """The energy of the devices. That of nodes is in the section on devices: two levels side by side would be
    taken for two measurements of one thing. It is unknown if a device has no sensor, and `missing` says
    why."""
    energy = devices.energy[0]
    aside = energy.missing
    if energy.joules is not None:
        per_joule = energy.ops_per_joule(judged.score.goodput.operations) or 0.0
        aside = f"{rate(per_joule)}/W ({energy.level.name})"
    about = f"{energy.level.name}: devices only, from their own sensors; hosts and cooling are not included."
    return Figure("energy", energy.joules, Unit(kilowatt_hours), aside, help=about)


def _money(judged: Judged, price: Price) -> Figure:
    """The cost by node-hours, as `cost` computes it. It is in the currency of the price, and
    the span alone is paid for."""
    hours = node_hours(judged.replay)
    unit = Unit(lambda value: f"{figure(value)} {price.currency}".rstrip())
    about = "Of all nodes over the span, busy or idle."
    return Figure("cost", price.money(hours), unit, f"{figure(hours)} node-hours at {price}", help=about)
