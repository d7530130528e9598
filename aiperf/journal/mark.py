"""The mark that every output shows for a run that was not measured. All outputs take its words from here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aiperf.errors import AiperfError
from aiperf.journal.events import Origin
from nas.frozen import frozen


@frozen
class Mark:
    """The mark for one origin."""

    origin: Origin
    text: str
    """Reason why the figures are not a result."""

    @property
    def word(self) -> str:
        """The mark in one word, for a figure or a drawing."""
        return self.origin.value

    @property
    def line(self) -> str:
        """The mark as a line above an output."""
        return f"{self.word.upper()}: {self.text}"

    def sentence(self, run: str = "the run") -> str:
        """The mark as a sentence, for a list of reasons, or for one of several runs."""
        return f"{run} is {self.word}: {self.text}"


_MARKS: Mapping[Origin, Mark] = {
    mark.origin: mark
    for mark in (
        Mark(
            Origin.PRETENDED,
            "no network was trained; workers waited as long as a machine model predicts, "
            "and errors come from it",
        ),
        Mark(
            Origin.SIMULATED,
            "no network was trained and nothing was timed; times and errors come from a machine model",
        ),
    )
}


def mark_of(origin: Origin) -> Mark | None:
    """The mark of a run with this origin; None if it was measured."""
    return None if origin is Origin.MEASURED else _MARKS[origin]


def marked(name: str, mark: Mark | None) -> str:
    """The name of a figure with the mark: "sustained OPS, simulated"."""
    return name if mark is None else f"{name}, {mark.word}"


def refuse_marked(origin: Origin, directory: Path, what: str) -> None:
    """Raises AiperfError for a run that was not measured. `what`: "cannot" be done with it."""
    if (mark := mark_of(origin)) is not None:
        raise AiperfError(f"{directory} cannot {what}: {mark.sentence()}")
