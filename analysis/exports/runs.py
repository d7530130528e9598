"""The runs of a directory, a line each, for a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from aiperf.errors import AiperfError
from aiperf.journal.run_files import RunFiles
from aiperf.wording import plain
from analysis.readings.judgement import glance
from analysis.readings.run_tables import verdict_word
from analysis.readings.score_figures import figures
from analysis.table import aligned
from nas.frozen import frozen

COLUMNS = ("run", "started", "preset", "search", "devices", "span", "sustained OPS", "test error", "verdict")
"""Columns on a terminal."""
FIGURES = ("devices", "span_seconds", "ops_per_second", "error")
"""Figures of a line, by their names in JSON."""


@frozen
class Listed:
    """One run, or why it could not be read."""

    run: str
    """Its directory's name."""
    verdict: str = "unreadable"
    """The verdict in a word or two."""
    run_class: str | None = None
    """ranked or smoke; None if the run is not VALID."""
    started: str = ""
    """Start of its first leg, in the form of ISO 8601."""
    preset: str = ""
    """Name of its preset."""
    search: str = ""
    """Name of its search."""
    figures: tuple[float | None, ...] = (None,) * len(FIGURES)
    """Values of `FIGURES`: a count, seconds, operations per second, and an error from 0 to 1."""
    shown: tuple[str, ...] = ("",) * len(FIGURES)
    """The same values in words, with their units."""
    problem: str = ""
    """Why it could not be read; empty if it could."""

    @classmethod
    def of(cls, files: RunFiles) -> Listed:
        """Reads a run. The figures of a long run that was never validated are those that the journal states,
        because a recount takes long (`glance`). A run that cannot be read is listed with its problem, so that
        one damaged directory hides no other."""
        name = files.directory.name
        try:
            judged = glance(files)
        except AiperfError as error:
            return cls(name, problem=str(error))
        replay, verdict = judged.replay, judged.verdict
        known = figures(replay, judged.score)
        return cls(
            run=name,
            verdict=verdict_word(verdict, judged.validated),
            run_class=verdict.run_class.value if verdict.run_class else None,
            started=replay.legs[0].began.started if replay.legs else "",
            preset=replay.opened.config.preset,
            search=replay.opened.config.search.name,
            figures=tuple(known[key].value for key in FIGURES),
            shown=tuple(known[key].text for key in FIGURES),
        )

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of COLUMNS. What a user named may hold any character."""
        answer = f"{self.verdict}, {self.run_class}" if self.run_class else self.verdict
        day = self.started[:16].replace("T", " ")
        return tuple(map(plain, (self.run, day, self.preset, self.search, *self.shown, answer)))


def runs_text(found: Sequence[Listed]) -> str:
    """One line per run, the oldest first; then those that could not be read."""
    return aligned([COLUMNS, *(each.row for each in _in_order(found))])


def runs_json(found: Sequence[Listed]) -> str:
    """A list of objects, one per run; null means not known."""
    records = [asdict(each) | dict(zip(FIGURES, each.figures)) for each in _in_order(found)]
    for record in records:
        # They are in the record under their own names, or only for a terminal.
        del record["figures"], record["shown"]
    return json.dumps(records, indent=1) + "\n"


def _in_order(found: Sequence[Listed]) -> list[Listed]:
    """The oldest first; those that could not be read come last."""
    return sorted(found, key=lambda each: (bool(each.problem), each.started, each.run))
